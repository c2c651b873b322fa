"""Requests and rows as plain data, with the files of a model or their place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.model_zoo import model_process
from graphfix.model_zoo.figures import FIGURES
from graphfix.model_zoo.model_process import Request, failed_row, read_request
from graphfix.model_zoo.recipe import Recipe


def request(folder: Path, *, feeds: bool = True) -> Request:
    folder.mkdir(exist_ok=True)
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[T, 4] x) => (float[T, 4] y)
        <float[4] w = {1, 2, 3, 4}> { y = Add (x, w) }"""
    ir.save(
        ir.from_onnx_text(text), folder / "model.onnx", external_data="w.bin",
        size_threshold_bytes=0,
    )  # fmt: skip
    np.savez(folder / "in.npz", x=np.zeros(2))
    recipe = Recipe("m", folder / "model.onnx", feeds=folder / "in.npz" if feeds else None)
    return Request(recipe, "cpu", "key")


def test_a_request_for_the_same_machine_has_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = Request(Recipe("m", Path("model.onnx"), feeds=Path("in.npz")), "cpu", "key")
    data = given.to_json()
    assert data["recipe"]["model"] == str(tmp_path / "model.onnx")
    assert data["recipe"]["feeds"] == str(tmp_path / "in.npz")
    assert (data["ep"], data["key"]) == ("cpu", "key")
    again = read_request(data, tmp_path / "elsewhere")
    assert again.recipe.model == tmp_path / "model.onnx"
    assert dataclasses.replace(again.recipe, model=Path("model.onnx"), feeds=Path("in.npz")) == (
        given.recipe
    )
    bare = Request(Recipe("m", Path("model.onnx")), "cpu", "key")
    assert bare.to_json()["recipe"]["feeds"] is None
    assert read_request(bare.to_json(), tmp_path).recipe.feeds is None


def test_a_request_for_another_machine_has_the_files(tmp_path: Path) -> None:
    data = request(tmp_path / "here").to_send()
    assert sorted(data["contents"]) == ["in.npz", "model.onnx", "w.bin"]
    assert (data["recipe"]["model"], data["recipe"]["feeds"]) == ("model.onnx", "in.npz")
    there = tmp_path / "there"
    again = read_request(data, there)
    assert again.recipe.model == there / "model.onnx"
    assert again.recipe.feeds == there / "in.npz"
    assert (there / "w.bin").read_bytes() == (tmp_path / "here" / "w.bin").read_bytes()
    without = request(tmp_path / "here", feeds=False).to_send()
    assert without["recipe"]["feeds"] is None
    assert sorted(without["contents"]) == ["model.onnx", "w.bin"]


@pytest.mark.parametrize(("spare", "travels"), [(0, True), (-1, False)])
def test_what_is_too_large_stays_where_it_is(
    spare: int, travels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = request(tmp_path)
    total = sum(x.stat().st_size for x in given.recipe.files)
    monkeypatch.setattr(model_process, "TRAVELS", total + spare)
    data = given.to_send()
    assert ("contents" in data) is travels
    assert travels or data["recipe"]["model"] == str(tmp_path / "model.onnx")
    outside = dataclasses.replace(given.recipe, feeds=tmp_path / ".." / tmp_path.name / "in.npz")
    assert "contents" not in Request(outside, "cpu", "k").to_send()


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    data = request(tmp_path).to_json()
    data["recipe"]["model"] = str(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match=r"none\.onnx is not on this machine"):
        read_request(data, tmp_path)


@pytest.mark.parametrize(
    ("results", "ok", "reason"),
    [
        ([True, True], True, ""),
        ([True, None], True, ""),
        ([True, False, False], False, "1 is bad"),
        ([], True, ""),
    ],
)
def test_a_row_is_ok_if_no_gate_failed(
    results: list[bool | None], ok: bool, reason: str, tmp_path: Path
) -> None:
    judged: list[dict[str, Any]] = [{"ok": x, "text": f"{i} is bad"} for i, x in enumerate(results)]
    row = model_process._make_row(request(tmp_path), judged, {}, {}, 1.5)
    assert (row["ok"], row["reason"], row["seconds"]) == (ok, reason, 1.5)
    assert (row["id"], row["key"], row["ep"]) == ("m", "key", "cpu")


def test_work_that_did_not_end_is_tried_again(tmp_path: Path) -> None:
    row = failed_row(request(tmp_path), "it died")
    assert (row["ok"], row["reason"], row["key"], row["seconds"]) == (False, "it died", "", 0.0)
    assert [*row["figures"]] == [*FIGURES]
    assert row["stages"] == {}

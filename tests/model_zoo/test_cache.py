"""Rows that are kept: by what they depend on, and not believed where they are of something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.model_zoo import cache
from graphfix.model_zoo.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path


def recipe(folder: Path, body: str = "y = Neg (x)", **facts: Any) -> Recipe:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (float[B, T] y)
        {{ {body} }}"""
    folder.mkdir(exist_ok=True)
    ir.save(ir.from_onnx_text(text), folder / "model.onnx")
    return Recipe("m", folder / "model.onnx", **facts)


def test_a_key_is_of_all_that_a_row_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache.key_of(recipe(tmp_path / "a"), "cpu")
    assert cache.key_of(recipe(tmp_path / "b"), "cpu") == first  # in another folder
    assert len(first) == 64
    others = {
        cache.key_of(recipe(tmp_path / "a"), "dml"),
        cache.key_of(recipe(tmp_path / "a", passes="fast"), "cpu"),
        cache.key_of(recipe(tmp_path / "a", gates={"nodes": 1.0}), "cpu"),
        cache.key_of(recipe(tmp_path / "c", "y = Abs (x)"), "cpu"),
    }
    assert len(others - {first}) == 4
    monkeypatch.setattr(cache, "hash_sources", lambda: "other")
    assert cache.key_of(recipe(tmp_path / "a"), "cpu") != first


def test_the_source_is_hashed_with_the_passes() -> None:
    cache.hash_sources.cache_clear()
    first = cache.hash_sources()
    cache.hash_sources.cache_clear()
    assert cache.hash_sources() == first
    assert len(first) == 64


@pytest.mark.parametrize(
    ("stored", "key", "known"),
    [
        ({"schema": cache.SCHEMA, "key": "k"}, "k", True),
        ({"schema": cache.SCHEMA, "key": "k"}, None, True),
        ({"schema": cache.SCHEMA, "key": "k"}, "other", False),
        ({"schema": cache.SCHEMA}, "k", False),
        ({"schema": cache.SCHEMA + 1, "key": "k"}, "k", False),
        ({"key": "k"}, "k", False),
        ([1], None, False),
        ("no", None, False),
    ],
)
def test_a_row_is_believed_if_it_is_of_this(
    stored: object, key: str | None, known: bool, tmp_path: Path
) -> None:
    path = tmp_path / "row.json"
    assert cache.load_row(path) is None
    path.write_text("{", encoding="utf-8")
    assert cache.load_row(path) is None
    path.write_text(json.dumps(stored), encoding="utf-8")
    assert (cache.load_row(path, key) == stored) is known
    assert known or cache.load_row(path, key) is None


def test_a_row_is_written_into_folders_that_are_made(tmp_path: Path) -> None:
    row = {"schema": cache.SCHEMA, "key": "k"}
    for _ in range(2):
        cache.save_row(tmp_path / "a" / "b" / "row.json", row)
    assert cache.load_row(tmp_path / "a" / "b" / "row.json", "k") == row


def test_a_package_may_have_another_name() -> None:
    assert cache._package_version("no-such-package") == "none"
    assert cache._package_version("onnx")[0].isdigit()
    assert cache._package_version("onnxruntime")[0].isdigit()


@pytest.mark.parametrize("kind", ["directml", "gpu"])
def test_onnxruntime_of_another_kind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != f"onnxruntime-{kind}":
            raise cache.metadata.PackageNotFoundError
        return "1.2.3"

    monkeypatch.setattr(cache.metadata, "version", version)
    assert cache._package_version("onnxruntime") == f"1.2.3 (onnxruntime-{kind})"
    assert cache._package_version("onnx") == "none"

"""One model, its passes, and how the result is proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.engine.pipeline import resolve_passes
from graphfix.engine.report import Report
from graphfix.errors import FeedError, UsageError
from graphfix.job import task as tasks
from graphfix.job.task import Task
from graphfix.proof.compare import HALF_GATE, Tolerance
from graphfix.runtime.memory_need import MemoryNeed

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model() -> ir.Model:
    return ir.from_onnx_text(f"{HEAD} m (float[B, T] x) => (float[B, T] y) {{ y = Neg (x) }}")


def made(**options: Any) -> Task:
    return Task.from_options("m.onnx", options)  # type: ignore[arg-type]


def test_a_task_of_no_options() -> None:
    task = made()
    assert task == Task(Path("m.onnx"), tell=task.tell, start=task.start)
    assert task.check
    assert (task.dims, task.exclude, task.ep, task.strict) == ({}, (), "cpu", False)
    task.tell("nobody hears")


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({}, True),
        ({"check": False}, False),
        ({"dry_run": True}, False),
        ({"check": True, "dry_run": False}, True),
        ({"check": False, "dry_run": True}, False),
    ],
)
def test_a_dry_run_proves_nothing(options: dict[str, Any], check: bool) -> None:
    assert made(**options).check == check


def test_options_are_kept() -> None:
    steps: list[str] = []
    mine = Tolerance(max_abs=1)
    task = made(
        dims={"T": 7}, exclude="a/*", progress=steps.append, tolerance=mine, ep="dml",
        kernels=False, strict=True, budget=3.0, feeds="f.npz", external_data="keep", page="p.html",
    )  # fmt: skip
    assert {name: [*sizes] for name, sizes in task.dims.items()} == {"T": [7]}
    assert task.exclude == ("a/*",)
    assert made(exclude=["a", "b"]).exclude == ("a", "b")
    assert (task.tolerance, task.ep, task.kernels) == (mine, "dml", False)
    assert (task.strict, task.budget, task.feeds) == (True, 3.0, "f.npz")
    task.tell("step")
    assert steps == ["step"]
    with pytest.raises(UsageError, match="dim"):
        made(dim={"T": 7})


def test_passes_bring_their_sizes_and_the_tolerance_of_rounding() -> None:
    passes = resolve_passes("fold,fix-dims:T=6,float16")
    task = made(dims={"B": 2}).with_passes(passes, model())
    assert task.chosen == tuple(passes)
    assert {name: [*sizes] for name, sizes in task.dims.items()} == {"B": [2], "T": [6]}
    assert task.tolerance is HALF_GATE
    assert task.has_calibrated_passes
    mine = Tolerance(max_abs=1)
    assert made(tolerance=mine).with_passes(passes, model()).tolerance is mine
    plain = made().with_passes(resolve_passes("fold"), model())
    assert plain.tolerance is None
    assert not plain.has_calibrated_passes
    # Sizes matter only where something is run.
    assert made(check=False).with_passes(passes, model()).dims == {}


def test_what_needs_no_model_is_checked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tasks, "require_provider", asked.append)
    np.savez(tmp_path / "f.npz", x=np.ones(3))
    task = made(feeds=tmp_path / "f.npz")
    assert task.check_before_loading()["x"].tolist() == [1, 1, 1]
    assert made().check_before_loading() == {}
    assert asked == ["cpu", "cpu"]
    assert made(check=False, feeds=tmp_path / "gone.npz").check_before_loading() == {}
    assert asked == ["cpu", "cpu"]
    with pytest.raises(FeedError):
        made(feeds=tmp_path / "gone.npz").check_before_loading()


def test_inputs_are_held_to_the_model() -> None:
    fits = {"x": np.ones((1, 3), np.float32)}
    made().check_inputs(model(), fits)
    with pytest.raises(FeedError):
        made().check_inputs(model(), {"z": np.ones(3)})
    with pytest.raises(FeedError, match="no input has a dim named 'F'"):
        made(dims={"F": 3}).check_inputs(model(), {})
    made(check=False, dims={"F": 3}).check_inputs(model(), {"z": np.ones(3)})


def test_memory_is_estimated_for_a_proof_alone() -> None:
    need = made().estimate_memory(model())
    assert isinstance(need, MemoryNeed)
    assert made(check=False).estimate_memory(model()) is None
    empty = Report("", (), {}, {})
    report = made().complete_report(empty, need)
    assert report.source == "m.onnx"
    assert report.memory == need.to_json()
    assert made().complete_report(empty, None).memory is None


def test_a_search_takes_half_of_what_is_left_and_a_proof_a_third_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(tasks.time, "monotonic", lambda: now[0])
    work = Task(Path("m.onnx"), budget=30.0)
    assert (work.proof_seconds, work.limit_search(7).seconds) == (30.0, 15.0)
    now[0] += 12.0
    later = work.with_passes((), None)  # type: ignore[arg-type]
    assert (later.proof_seconds, later.limit_search(7).seconds) == (18.0, 9.0)
    assert not later.is_late
    now[0] += 9.0
    assert (later.proof_seconds, later.limit_search(7).seconds) == (10.0, 5.0)
    assert later.is_late
    spending = later.limit_search(7)
    assert (spending.most, spending.total) == (7, 30.0)

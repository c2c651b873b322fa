"""The 79 real exports: every pass alone and the profile, twice, with the numbers compared."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.core import Match, Pass
from graphfix.engine import pipeline, registry
from graphfix.engine.fixpoint import PassTurns
from graphfix.errors import PaddingError, UsageError
from graphfix.facts.view import index_nodes
from graphfix.job import planning
from graphfix.proof.half_outputs import computes_in_half

_spec = importlib.util.spec_from_file_location("counts", Path(__file__).with_name("counts.py"))
counts = importlib.util.module_from_spec(_spec)
sys.modules["counts"] = counts  # its dataclasses look themselves up there
_spec.loader.exec_module(counts)

ROWS = counts.models()
pytestmark = pytest.mark.skipif(not ROWS, reason=f"no zoo at {counts.ROOT}; set GRAPHFIX_ZOO")


def reasons(studied: Any, name: str) -> int:
    return sum(studied.reasons.get(name, {}).values())


def study(row: dict[str, Any], spec: str = "directml") -> Any:
    try:
        return counts.study(row, spec)
    except counts.RejectedError as error:
        if not ort.__version__.startswith("1.24."):
            raise
        pytest.skip(f"this ONNX Runtime does not load the export: {error}")


def the_profile_repairs_every_site_or_says_why_not(row: dict[str, Any]) -> None:
    studied = study(row)
    assert not studied.errors
    assert (studied.difference or 0.0) <= 1e-5
    assert studied.after["masks"] <= reasons(studied, "additive-mask")
    assert studied.after["ranges"] <= reasons(studied, "cumsum-index")
    assert studied.after["reshapes"] <= reasons(studied, "unflatten-heads")


def _rounds(name: str) -> bool:
    """Whether it is the job of a pass to round, which has a promise and tests of its own."""
    return bool(getattr(registry.pass_class(name), "needs_calibration", False))


LAST = "ilens-mask"  # the only one that is all or nothing, and may refuse a model
ALONE = [x for x in registry.pass_names() if not _rounds(x)]


@functools.lru_cache(maxsize=2)  # the tests of one model follow each other
def untouched(name: str) -> frozenset[str]:
    """The passes that leave an export as it is, to the byte.

    Most do; those that see no site go over one model, whose shapes are inferred once. The one that
    takes the longest is not asked, since it leaves few as they are.
    """
    model = graphfix.load(counts.ROOT / "models" / f"{name}.onnx")
    before, turns, found = _bytes(model), PassTurns(model, None), []
    for one in (registry.make_pass(x) for x in ALONE if x != LAST):
        index_nodes(model)
        if isinstance(one, Pass) and any(isinstance(x, Match) for x in one.sites(model)):
            continue
        turns.run_first(one, one)
        found.append(one.name)
    return frozenset(found) if _bytes(model) == before else frozenset()


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


def each_pass_alone_keeps_the_numbers(row: dict[str, Any]) -> None:
    left = untouched(row["name"])
    # A fused kernel rounds to float16 once, where the pieces did so at each step.
    fused = 1e-2 if _is_half(row) else 1e-5
    wrong = {}
    for name in ALONE:
        if name in left:
            continue
        try:
            studied = study(row, name)
        except (PaddingError, UsageError):
            assert name == LAST
            continue
        if studied.errors or (studied.difference or 0.0) > (fused if "fuse" in name else 1e-5):
            wrong[name] = (studied.errors, studied.difference)
    assert not wrong


def _is_half(row: dict[str, Any]) -> bool:
    return computes_in_half(graphfix.load(counts.ROOT / "models" / f"{row['name']}.onnx"))


@functools.lru_cache(maxsize=2)
def exported_kernels(name: str) -> dict[str, int] | None:
    return planning.kernels_per_run(graphfix.load(counts.ROOT / "models" / f"{name}.onnx"))


def a_profile_adds_no_kernel_and_leaves_nothing(row: dict[str, Any], profile: str) -> None:
    path = counts.ROOT / "models" / f"{row['name']}.onnx"
    model = graphfix.load(path)
    graphfix.run(model, profile)
    fresh = ir.from_proto(ir.to_proto(model))
    left = [
        x.name
        for x in pipeline.parse_passes(profile)
        for y in x.sites(fresh)
        if isinstance(y, Match)
    ]
    assert not left
    before, after = exported_kernels(row["name"]), planning.kernels_per_run(model)
    assert after is not None
    if before is not None:  # one of them does not load as it was exported
        assert after["all"] <= before["all"]
        assert after["directml"] <= before["directml"]
        assert after["recompiled"] <= before["recompiled"]


def looking_keeps_every_byte(row: dict[str, Any]) -> None:
    model = graphfix.load(counts.ROOT / "models" / f"{row['name']}.onnx")
    before = _bytes(model)
    looked = graphfix.check(
        model, [registry.make_pass(x) for x in registry.pass_names() if x != LAST]
    )
    assert isinstance(looked, list)
    with contextlib.suppress(UsageError):  # it cannot tell what is to be padded
        graphfix.check(model, LAST)
    assert _bytes(model) == before


def the_signature_stays(row: dict[str, Any]) -> None:
    path = counts.ROOT / "models" / f"{row['name']}.onnx"
    model = graphfix.load(path)
    graphfix.run(model)
    before, after = onnx.load(path).graph, ir.to_proto(model).graph
    assert list(after.input) == list(before.input)
    assert list(after.output) == list(before.output)


@pytest.mark.parametrize("row", ROWS or [None], ids=lambda row: row["name"] if row else "none")
def test_export(row: dict[str, Any]) -> None:
    the_profile_repairs_every_site_or_says_why_not(row)
    each_pass_alone_keeps_the_numbers(row)
    for profile in ("directml", "fast"):
        a_profile_adds_no_kernel_and_leaves_nothing(row, profile)
    looking_keeps_every_byte(row)
    the_signature_stays(row)

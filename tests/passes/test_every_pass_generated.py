"""What every pass owes on graphs that nobody wrote for it: it never raises, and keeps the outputs.

``GRAPHFIX_GRAPHS=5000`` (``make graphs``) takes that many.
"""

from __future__ import annotations

import os
import random
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Pass, interface_changes_of
from graphfix.engine import pipeline, registry
from graphfix.errors import GraphfixError, PassError
from graphfix.spec.manual import manual_of
from tests.lengths.catalogue import generated
from tests.lengths.steps import STEPS
from tests.passes.models import data, opened
from tests.passes.mutated import (
    OTHER_SIZE,
    SIZES,
    all_inner_outputs,
    each_inner_output,
    feeds_for,
    mutated,
)

if TYPE_CHECKING:
    from graphfix.core import Check

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 8
EACH = 2
ALONE = 2  # inner tensors that are outputs alone
TOLERANCE = 1e-3  # of the largest around: float norms of small numbers lose digits


@cache
def seeds() -> list[onnx.ModelProto]:
    """What passes repair, and what they make of it."""
    manuals = [manual_of(registry.pass_class(name)) for name in registry.pass_names()]
    texts = [text for manual in manuals for text in (manual.before, manual.after)]
    return [ir.to_proto(ir.from_onnx_text(text)) for text in texts]


def model_of(proto: onnx.ModelProto) -> ir.Model:
    """A model of its own: onnx-ir gives names to the tensors of the proto that it reads."""
    own = onnx.ModelProto()
    own.CopyFrom(proto)
    return ir.from_proto(own)


def graph_of(number: int) -> onnx.ModelProto:
    draw = random.Random(number)
    seed = draw.choice(seeds()) if draw.random() < 0.8 else generated(number, steps=STEPS)[0]
    return mutated(seed, draw, draw.choice((1, 2, 3, 5)))


def specs(proto: onnx.ModelProto) -> list[str]:
    """Every pass, as its manual has it, and as it fits this graph."""
    manuals = {name: manual_of(registry.pass_class(name)) for name in registry.pass_names()}
    names = [manual.spec or name for name, manual in manuals.items()]
    dims = [(x, d) for x in proto.graph.input for d in x.type.tensor_type.shape.dim]
    symbols = dict.fromkeys(d.dim_param for _, d in dims if d.dim_param)
    sizes = [f"{x}={SIZES.get(x, OTHER_SIZE)}" for x in symbols]
    scalars = (x.name for x in proto.graph.input if not x.type.tensor_type.shape.dim)
    own = [f"fix-dims:{','.join(sizes)}"] if sizes else []
    own += [f"static-cache:{x}" for x in sizes[-1:]] + [f"fix-input:{x}=1" for x in scalars]
    return [*names, *own, "float16:io=half", "fuse-norm:residual=yes"]


def failure(proto: onnx.ModelProto, before: ir.Model, spec: str) -> tuple[str, ir.Model | None]:
    """What a pass owes and does not keep, or an empty text; and the graph that it has changed."""
    (check,), bytes_before = pipeline.parse_passes(spec), data(before)
    try:
        report = graphfix.run(before, [check])
    except PassError as error:
        return str(error), None
    except GraphfixError:  # a sentence about the model or the options
        return "it refuses, and has changed the model" if data(before) != bytes_before else "", None
    if any(x.raised for x in report.left):
        return report.left[0].why, None
    if not report.changed:
        return "it has changed bytes, no node" if data(before) != bytes_before else "", None
    text = kept(proto, before, check)
    if not text and isinstance(check, Pass) and check.is_removable:
        bytes_after, again = data(before), graphfix.run(before, [check])
        if again.changed or data(before) != bytes_after:
            text = "a second run changes it again"
    return text, before


def kept(proto: onnx.ModelProto, after: ir.Model, check: Check) -> str:
    """Why the outputs of a changed graph are others than before, or an empty text."""
    before = model_of(proto)
    names = [[x.name for x in m.graph.outputs] for m in (before, after)]
    inputs = [[x.name for x in m.graph.inputs] for m in (before, after)]
    if "outputs" not in interface_changes_of([check]) and names[0] != names[1]:
        return f"the outputs are {names[1]} instead of {names[0]}"
    feeds = feeds_for(proto)
    try:
        old = opened(before, optimized=False).run(None, feeds)
    except Exception:  # these numbers are none that it takes
        return ""
    for x, value, array in zip(before.graph.outputs, after.graph.outputs, old, strict=False):
        if x.name == value.name and rank_of(x) == array.ndim != rank_of(value):
            return f"{value.name} is declared with {rank_of(value)} dims instead of {array.ndim}"
    try:
        session = opened(after, optimized=False)
        if inputs[0] != inputs[1] or interface_changes_of([check]) or needs_calibration(check):
            return ""
        new = session.run(None, feeds)
    except Exception as error:  # ONNX Runtime's own, of all kinds
        return f"the result does not run: {error}"
    for name, x, y in zip(names[0], old, new, strict=True):
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return f"{name} is {y.dtype}{[*y.shape]} instead of {x.dtype}{[*x.shape]}"
        if isinstance(check, Pass) and check.safety == "exact" and differ(x, y):
            return f"{name} differs by {np.abs(x.astype(float) - y).max()}"
    return ""


def rank_of(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def needs_calibration(check: Check) -> bool:
    return isinstance(check, Pass) and check.needs_calibration


def differ(old: np.ndarray, new: np.ndarray) -> bool:
    if old.dtype.kind != "f":
        return not np.array_equal(old, new)
    largest = np.abs(old[np.isfinite(old)]).max(initial=1.0)
    return not np.allclose(old, new, rtol=0, atol=TOLERANCE * largest, equal_nan=True)


def loads(proto: onnx.ModelProto) -> bool:
    try:
        opened(model_of(proto), optimized=False)
    except Exception:  # ONNX Runtime's own, of all kinds
        return False
    return True


@pytest.mark.parametrize("seed", range(QUICK))
def test_no_pass_raises_and_outputs_stay(seed: int) -> None:
    for number in range(seed, max(COUNT, QUICK * EACH), QUICK):
        proto = graph_of(number)
        if not loads(proto):
            continue
        untouched = model_of(proto)
        for spec in specs(proto):
            text, changed = failure(proto, untouched, spec)
            assert not text, f"{spec}, graph {number}: {text}\n{onnx.printer.to_text(proto)}"
            if changed is not None:
                untouched = model_of(proto)


@pytest.mark.parametrize("name", registry.pass_names())
def test_inner_tensors_that_are_outputs_stay(name: str) -> None:
    """What a pass would remove, or give another shape, may be what somebody reads."""
    manual = manual_of(registry.pass_class(name))
    seed = ir.to_proto(ir.from_onnx_text(manual.before))
    alone = list(each_inner_output(seed))
    few = alone if COUNT else random.Random(name).sample(alone, min(ALONE, len(alone)))
    for proto in (all_inner_outputs(seed), *few):
        for spec in dict.fromkeys((manual.spec or name, "fold")):
            text, _ = failure(proto, model_of(proto), spec)
            assert not text, f"{spec}: {text}\n{onnx.printer.to_text(proto)}"

"""What DirectML will do with a model: the steps of :mod:`graphfix.directml`."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from graphfix.directml import plan as planner
from graphfix.directml.plan import Plan
from graphfix.editing import local_functions
from graphfix.engine.pipeline import Progress
from graphfix.engine.report import Kernels
from graphfix.errors import ModelError, UsageError
from graphfix.facts.shapes import shapes_of
from graphfix.feeds.signature import Signature
from graphfix.files import io, stand_in
from graphfix.files.given import Dims, Given, loaded, one_size
from graphfix.graph.walks import nodes_of
from graphfix.runtime.optimizer import Optimizer

# What ONNX Runtime says where the CPU has no kernel for a valid node.
_NO_KERNEL = ("Failed to find kernel", "Could not find an implementation", "Kernel not found")


def plan(model: Given, *, dims: Dims | None = None, progress: Progress | None = None) -> Plan:
    """Predict where each node of a model runs on DirectML, what is fused and what is copied.

    Args:
        model: The model, or its file; it is not changed.
        dims: A size for each symbolic dim that is fixed, as ONNX Runtime's free-dimension
            overrides.
        progress: Called with a short text at each step.

    Raises:
        ModelError: ONNX Runtime rejects the model.
        UsageError: The model has no such dim, or one is given several sizes.
    """
    tell, given = progress or (lambda _: None), one_size(dims)
    tell("loading")
    model = loaded(model)
    sizes = _named(model, given)
    tell("planning")
    notes: list[str] = []
    shown = model
    if stand_in.is_heavy(model):
        shown = stand_in.without_weights(model)
        notes.append("the weights were not read, so fusions that look into them are not predicted")
    try:
        basic, extended = _optimized(shown, sizes)
    except ModelError as error:
        if not any(text in str(error) for text in _NO_KERNEL):
            raise ModelError(f"ONNX Runtime does not load the model: {error}") from error
        basic = extended = _as_it_is(model)
        notes.append(
            f"ONNX Runtime cannot show here what its optimizer does: {error}; so what it folds and "
            "fuses is not predicted" + (", nor are --dims sizes" if sizes else "")
        )
    if shown is not model:
        stand_in.with_weights(basic)
        stand_in.with_weights(extended)
    return planner.plan(model, basic, extended, sizes=sizes, notes=notes)


_TOO_MANY = 20_000
"""Nodes above which kernels are not counted unless asked for: it would take half a minute."""


def kernels(before: ir.Model, after: ir.Model, *, always: bool = False) -> Kernels | None:
    """The kernels per run before and after, as predicted; None if that would take too long.

    Args:
        before: The model as it was given.
        after: The model after passes, or the same object; one that ONNX Runtime rejects has no
            kernels.
        always: Whether to count however long it takes.
    """
    if not always and local_functions.count(before) > _TOO_MANY:
        return None
    found = kernels_of(before)
    return {"before": found, "after": found if after is before else kernels_of(after)}


def kernels_of(model: ir.Model) -> dict[str, int] | None:
    """The kernels per run, as predicted; None where ONNX Runtime rejects the model.

    Returns:
        How many there are in ``all``, how many of them on ``directml`` and on the ``cpu``, and how
        many are ``remade`` where another length comes.
    """
    try:
        found = plan(model)
    except ModelError:
        return None
    on = {"directml": found.steps_on("graph", "dml"), "cpu": found.steps_on("cpu")}
    return {"all": sum(on.values()), **on, "remade": found.remade}


def strip(path: str | Path) -> list[tuple[str, int]]:
    """Where the nodes of a file run, in order: where, and how many in a row."""
    try:
        places = plan(path).places
    except ModelError:
        return []
    return [(where, len([*here])) for where, here in groupby(x.where for x in places)]


def glance(path: str | Path) -> dict[str, object] | None:
    """The plan of a file at a glance, in numbers; None where ONNX Runtime rejects the model."""
    try:
        data = plan(io.load(path)).to_json()
    except ModelError:
        return None
    return {key: data[key] for key in ("nodes", "run", "open", "dynamic", "notes")}


def _optimized(model: ir.Model, sizes: Mapping[str, int] | None) -> tuple[ir.Model, ir.Model]:
    """The model after the basic and after the extended optimizations."""
    if not stand_in.has_half(model):
        return _both(model, sizes)
    try:
        return _widened(model, stand_in.BOTH, sizes)
    except ModelError:
        return _widened(model, stand_in.HALF, sizes)


def _widened(
    model: ir.Model, types: Mapping[ir.DataType, ir.DataType], sizes: Mapping[str, int] | None
) -> tuple[ir.Model, ir.Model]:
    found = _both(stand_in.widened(model, types), sizes)
    for one in found:
        stand_in.narrowed(one, types)
    return found


def _both(model: ir.Model, sizes: Mapping[str, int] | None) -> tuple[ir.Model, ir.Model]:
    with Optimizer(model, sizes) as optimizer:
        basic = optimizer.optimized("basic")
        return basic, optimizer.optimized("extended", without=planner.CPU_ONLY)


def _as_it_is(model: ir.Model) -> ir.Model:
    """The model itself, with the shapes that graphfix infers."""
    copy = model.clone()
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy)
    shapes = shapes_of(copy)
    for value in (value for node in nodes_of(copy.graph) for value in node.outputs):
        dims, dtype = shapes.dims(value), shapes.dtype(value)
        value.shape = None if dims is None else ir.Shape(dims)
        if dtype is not None and value.type is None:
            value.type = ir.TensorType(dtype)
    return copy


def _named(model: ir.Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes by the names of the model's own dims: ``T`` and ``B`` stand for some."""
    if not sizes:
        return {}
    found, signature = dict[str, int](), Signature(model)
    for name, size in sizes.items():
        symbol = signature.symbol_of(name)
        if symbol is None:
            there = ", ".join(map(signature.user_name, signature.symbols())) or "none at all"
            raise UsageError(f"no input has a dim {name!r}; there are: {there}")
        names = map(signature.user_name, signature.members(signature.group(symbol)))
        found |= dict.fromkeys(names, size)
    return found

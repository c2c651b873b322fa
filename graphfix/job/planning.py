"""Predicts what a provider does with a model, by the steps of :mod:`graphfix.providers`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from graphfix.editing import local_functions
from graphfix.engine.pipeline import Progress
from graphfix.engine.report import Kernels
from graphfix.errors import ModelError, UsageError
from graphfix.facts.forced_sizes import forced_sizes_of
from graphfix.facts.shapes import shapes_of
from graphfix.feeds.signature import Signature
from graphfix.files import io, stand_in
from graphfix.files.model_input import (
    Dims,
    ModelLike,
    as_model,
    one_size_by_dim,
    require_valid_choices,
)
from graphfix.graph.walks import nodes_of
from graphfix.job.checking import check
from graphfix.providers.directml.plan import DirectMLPlanner
from graphfix.providers.plan import Planner, ProviderPlan
from graphfix.providers.read_back import bytes_read_back
from graphfix.providers.table import PROVIDERS, DeviceEp
from graphfix.providers.webgpu.plan import WebGPUPlanner
from graphfix.runtime.load_check import lacks_kernel
from graphfix.runtime.optimizer import Optimizer
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.wording import plural

_PLANNERS: dict[DeviceEp, type[Planner[Any]]] = {"dml": DirectMLPlanner, "webgpu": WebGPUPlanner}


@raises_own_errors
def plan(
    model: ModelLike,
    *,
    ep: DeviceEp = "dml",
    dims: Dims | None = None,
    progress: Progress | None = None,
) -> ProviderPlan:
    """Predict where each node of a model runs on a provider, what is fused and what is copied.

    Args:
        model: The model, or its file; it is not changed.
        ep: The provider: ``"dml"`` or ``"webgpu"``.
        dims: A size for each symbolic dim that is fixed, as ONNX Runtime's free-dimension
            overrides.
        progress: Called with a short text at each step.

    Raises:
        ModelError: ONNX Runtime rejects the model.
        UsageError: The model has no such dim, or one is given several sizes.
    """
    require_valid_choices(ep=(ep, tuple(_PLANNERS)))
    planner = _PLANNERS[ep]
    tell, fixed_sizes = progress or (lambda _: None), one_size_by_dim(dims)
    tell("loading")
    model = as_model(model)
    sizes = _sizes_by_own_names(model, fixed_sizes)
    tell("planning")
    notes: list[str] = []
    shown = model
    if stand_in.has_heavy_weights(model):
        shown = stand_in.copy_without_weights(model)
        notes.append("the weights were not read, so fusions that look into them are not predicted")
    try:
        basic, extended = _optimize_model(shown, sizes, planner.foreign)
    except ModelError as error:
        if not lacks_kernel(str(error)):
            raise ModelError(f"ONNX Runtime does not load the model: {error}") from error
        basic = extended = _unoptimized_copy(model)
        notes.append(
            f"ONNX Runtime cannot show here what its optimizer does: {error}; so what it folds and "
            "fuses is not predicted" + (", nor are --dims sizes" if sizes else "")
        )
    if shown is not model:
        stand_in.restore_weights(basic)
        stand_in.restore_weights(extended)
    prediction = planner(model, basic, extended).build_plan(sizes, notes)
    forced = forced_sizes_of(model) if prediction.dims else {}
    return replace(
        prediction,
        forced={name: x.size for name, x in forced.items()},
        read_back=bytes_read_back(model, sizes),
    )


def note_errors(prediction: ProviderPlan, model: ModelLike) -> ProviderPlan:
    """Return the plan with a note if ``check`` finds errors: the nodes are placed all the same.

    Args:
        prediction: The plan of the model.
        model: The model, or its file.
    """
    errors = [x for x in check(model, ep=prediction.ep) if x.severity == "error"]
    if not errors:
        return prediction
    first = errors[0]
    note = (
        f"check finds {plural(len(errors), 'error')}, so a run fails or is wrong: {first.message} "
        f"(at {first.at})"
    )
    return replace(prediction, notes=(*prediction.notes, note))


_TOO_MANY = 20_000
"""Nodes above which kernels are not counted unless asked for: it would take half a minute."""


def count_kernels(
    before: ir.Model, after: ir.Model, ep: DeviceEp = "dml", *, always: bool = False
) -> Kernels | None:
    """Predict the kernels per run before and after; None if that would take too long.

    Args:
        before: The model as it was given.
        after: The model after passes, or the same object; one that ONNX Runtime rejects has no
            kernels.
        ep: The provider.
        always: Whether to count however long it takes.
    """
    if not always and local_functions.count_inlined_nodes(before) > _TOO_MANY:
        return None
    original_kernels = kernels_per_run(before, ep)
    return {
        "before": original_kernels,
        "after": original_kernels if after is before else kernels_per_run(after, ep),
    }


def kernels_per_run(model: ir.Model, ep: DeviceEp = "dml") -> dict[str, int] | None:
    """Predict the kernels per run; None where ONNX Runtime rejects the model.

    Returns:
        How many there are in ``all``, how many of them on the provider, by its name (``directml``
        or ``webgpu``), and on the ``cpu``; how many ``copies`` between them; and how many kernels
        are ``recompiled`` where another length comes.
    """
    prediction = plan_or_none(model, ep)
    return None if prediction is None else kernels_of_plan(prediction)


def plan_or_none(model: ir.Model, ep: DeviceEp = "dml") -> ProviderPlan | None:
    """Return the plan of a model; None where ONNX Runtime rejects it."""
    try:
        return plan(model, ep=ep)
    except ModelError:
        return None


def kernels_of_plan(prediction: ProviderPlan) -> dict[str, int]:
    """Return the kernels per run as :func:`kernels_per_run` does."""
    on = {PROVIDERS[prediction.ep].key: prediction.on_device, "cpu": prediction.steps_on("cpu")}
    counts = {"copies": prediction.steps_on("copy"), "recompiled": prediction.recompiled}
    return {"all": sum(on.values()), **on, **counts}


def placement_strip(path: str | Path, ep: DeviceEp = "dml") -> list[tuple[str, int]]:
    """Return where the nodes of a file run, in order: where, and how many in a row."""
    try:
        places = plan(path, ep=ep).places
    except ModelError:
        return []
    return [(where, len([*group])) for where, group in groupby(x.where for x in places)]


def plan_summary(path: str | Path, ep: DeviceEp = "dml") -> dict[str, object] | None:
    """Return the plan of a file in numbers; None where ONNX Runtime rejects the model."""
    try:
        data = plan(io.load(path), ep=ep).to_json()
    except ModelError:
        return None
    return {key: data[key] for key in ("nodes", "run", "open", "dynamic", "notes")}


Foreign = Sequence[str]  # optimizers that are left out in the extended optimizations


def _optimize_model(
    model: ir.Model, sizes: Mapping[str, int] | None, foreign: Foreign
) -> tuple[ir.Model, ir.Model]:
    """Return the model after the basic and after the extended optimizations."""
    if not stand_in.uses_float16(model):
        return _run_optimizer(model, sizes, foreign)
    try:
        return _optimize_widened(model, stand_in.WIDER_FLOATS, sizes, foreign)
    except ModelError:
        return _optimize_widened(model, stand_in.WIDER_HALF, sizes, foreign)


def _optimize_widened(
    model: ir.Model,
    types: Mapping[ir.DataType, ir.DataType],
    sizes: Mapping[str, int] | None,
    foreign: Foreign,
) -> tuple[ir.Model, ir.Model]:
    optimized = _run_optimizer(stand_in.widened_copy(model, types), sizes, foreign)
    for result in optimized:
        stand_in.narrow_types(result, types)
    return optimized


def _run_optimizer(
    model: ir.Model, sizes: Mapping[str, int] | None, foreign: Foreign
) -> tuple[ir.Model, ir.Model]:
    with Optimizer(model, sizes) as optimizer:
        basic = optimizer.optimize("basic")
        return basic, optimizer.optimize("extended", without=foreign)


def _unoptimized_copy(model: ir.Model) -> ir.Model:
    """Return a copy of the model with the shapes that graphfix infers."""
    copy = model.clone()
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy)
    shapes = shapes_of(copy)
    for value in (value for node in nodes_of(copy.graph) for value in node.outputs):
        dims, dtype = shapes.dims(value), shapes.dtype(value)
        value.shape = None if dims is None else ir.Shape(dims)
        if dtype is not None and value.type is None:
            value.type = ir.TensorType(dtype)
    return copy


def _sizes_by_own_names(model: ir.Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes by the model's own names of dims: ``T`` and ``B`` stand for some."""
    if not sizes:
        return {}
    signature = Signature(model)
    own_sizes = {name: x.size for name, x in signature.forced.items()}
    for name, size in sizes.items():
        symbol = signature.symbol_of(name)
        if symbol is None and signature.require_forced(name, [size]):
            continue
        if symbol is None:
            available = ", ".join(map(signature.user_name, signature.symbols())) or "none at all"
            raise UsageError(f"no input has a dim {name!r}; there are: {available}")
        names = map(signature.user_name, signature.symbols_in(signature.group_of(symbol)))
        own_sizes |= dict.fromkeys(names, size)
    return own_sizes

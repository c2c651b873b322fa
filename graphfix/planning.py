"""What DirectML will do with a model, and what it did: the steps of :mod:`graphfix.directml`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix import pipeline
from graphfix.directml import agreement
from graphfix.directml import plan as planner
from graphfix.errors import UsageError
from graphfix.measure.runtime import optimized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from graphfix.core import Check
    from graphfix.directml.agreement import Agreement
    from graphfix.directml.plan import Plan


def plan(model: ir.Model, *, sizes: Mapping[str, int] | None = None) -> Plan:
    """Foresee where each node of a model runs on DirectML, what is fused and what is copied.

    Args:
        model: The model; it is not changed.
        sizes: Sizes for symbolic dims, as ONNX Runtime's free-dimension overrides.

    Raises:
        ModelError: ONNX Runtime rejects the model.
        UsageError: The model has no such dim.
    """
    _require_known(model, sizes or {})
    basic = optimized(model, "basic", sizes=sizes)
    extended = optimized(model, "extended", sizes=sizes, without=planner.CPU_ONLY)
    return planner.plan(model, basic, extended, sizes=sizes)


def before_after(
    model: ir.Model,
    passes: str | Check | Sequence[Check] = pipeline.DEFAULT,
    *,
    sizes: Mapping[str, int] | None = None,
) -> tuple[Plan, Plan]:
    """The plans of a model as it is and after passes, which are run on a copy.

    Raises:
        ModelError: ONNX Runtime rejects the model, before or after.
        UsageError: The model has no such dim, or a pass is unknown.
    """
    chosen = pipeline.resolve(passes)
    before = plan(model, sizes=sizes)
    repaired = model.clone()
    pipeline.run(repaired, chosen)
    left = {name: size for name, size in (sizes or {}).items() if name in _dims(repaired)}
    return before, plan(repaired, sizes=left)


def against(plan: Plan, model: ir.Model) -> Agreement:
    """Hold a plan against the real DirectML.

    Raises:
        ModelError: ONNX Runtime rejects the model.
        UsageError: DirectML is not to be had here.
    """
    from graphfix.measure.placement import placement

    return agreement.compare(plan, model, placement(model, sizes=plan.sizes))


def _require_known(model: ir.Model, sizes: Mapping[str, int]) -> None:
    known = _dims(model)
    for name in sizes:
        if name not in known:
            there = ", ".join(known) if known else "none at all"
            raise UsageError(f"no input has a dim {name!r}; there are: {there}")


def _dims(model: ir.Model) -> list[str]:
    """The names of the symbolic dims of the inputs, each once."""
    dims = (dim for x in model.graph.inputs for dim in x.shape or () if not isinstance(dim, int))
    return list(dict.fromkeys(dim.value for dim in dims if dim.value))

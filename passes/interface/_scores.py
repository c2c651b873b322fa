"""Outputs whose elements are scores, of which a user reads the largest alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.errors import UsageError
from graphfix.facts.view import View
from graphfix.graph.names import count_names
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean

from ._former_names import former_names, record_former

INDEX_TYPES = {"int64": ir.DataType.INT64, "int32": ir.DataType.INT32}


@dataclass(frozen=True)
class ScoresSite(Match):
    """An output that is ranked instead of given.

    Attributes:
        value: The output.
        axis: The axis along which it is ranked, not negative.
        dims: Its dims.
    """

    value: ir.Value
    axis: int
    dims: tuple[int | ir.SymbolicDim, ...]


def find_scores(
    by: str, model: ir.Model, output: str, axis: int, new_names: Sequence[str]
) -> ScoresSite | Skip | None:
    """Return the output to rank; None if it was ranked already.

    Args:
        by: The name of the pass.
        model: The model.
        output: The name of the output.
        axis: The axis along which it is ranked; it may be negative.
        new_names: The names of the outputs that stand for it.

    Raises:
        UsageError: There is no such output or axis, or it cannot be ranked.
    """
    outputs = {x.name or "": x for x in model.graph.outputs}
    if not output:
        names = [name for name, x in outputs.items() if x.producer() is not None]
        node = next(iter(model.graph), None)
        if node is None or not names:
            return None
        return Skip(node, f"no output is given; {by}:output={quote_name(names[0])} would name one")
    if output not in outputs and output in former_names(model):
        return None
    value = outputs.get(output)
    if value is None:
        hint = did_you_mean(output, outputs)
        names_text = ", ".join(outputs)
        raise UsageError(f"{by}: there is no output {output!r}{hint} There are: {names_text}")
    maker = value.producer()
    if maker is None:
        raise UsageError(f"{by}: the output {output!r} is an input or a constant, not computed")
    taken = count_names(model)
    if (name := next((x for x in new_names if taken[x]), None)) is not None:
        raise UsageError(
            f"{by}: a tensor is called {name!r} already, as an output would be now; rename the "
            f"output first: rename:{quote_name(output)}=NAME"
        )
    shapes = View(model).shapes
    dtype, dims = shapes.dtype(value), value.shape or shapes.dims(value)
    if dtype is None or not (dtype.is_floating_point() or dtype.is_integer()):
        kind = "of unknown type" if dtype is None else dtype.name.lower()
        raise UsageError(f"{by}: the output {output!r} is {kind}, and only numbers are ranked")
    if dims is None:
        raise UsageError(f"{by}: the number of dims of the output {output!r} is unknown")
    if not -len(dims) <= axis < len(dims):
        raise UsageError(
            f"{by}: the output {output!r} has {len(dims)} dims, and no axis {axis} among them"
        )
    return ScoresSite(maker, value, axis % len(dims), tuple(dims))


def size_along(site: ScoresSite, model: ir.Model) -> int | None:
    """Return how many scores there are to rank; None if that is no fixed number."""
    inferred = View(model).shapes.dims(site.value)
    sizes = [site.dims[site.axis], *([] if inferred is None else [inferred[site.axis]])]
    return next((x for x in sizes if isinstance(x, int)), None)


def replace_output(model: ir.Model, old: ir.Value, *new: ir.Value) -> None:
    """Let outputs stand where an output of the main graph stood."""
    outputs = [y for x in model.graph.outputs for y in (new if x is old else (x,))]
    model.graph.outputs.clear()
    model.graph.outputs.extend(outputs)
    record_former(model, [old.name or ""])


def name_output(
    value: ir.Value, name: str, dtype: ir.DataType | None, dims: Sequence[int | ir.SymbolicDim]
) -> None:
    """Give an output that a pass made its name, type and shape."""
    value.name = name
    value.type = None if dtype is None else ir.TensorType(dtype)
    value.shape = ir.Shape(dims)


def fits_type(indices: np.ndarray, name: str) -> bool:
    """Return whether indices have the type that an option names."""
    return indices.dtype == INDEX_TYPES[name].numpy()

"""Inputs that may be empty of nodes whose results are not: DirectML then writes none, WebGPU fails.

A kernel with an input of no elements is not dispatched by DirectML, whatever its result is: run on
onnxruntime-directml 1.24.4 with every kind of operator that makes something of nothing. What
joins several inputs (Concat, Scatter) is right. On onnxruntime-webgpu 1.27.0 a run fails.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.facts.shapes import input_dim_symbols
from graphfix.facts.symbolic.expressions import Dim, compile_dim, symbols_of
from graphfix.facts.view import View
from graphfix.ops import OpSet
from graphfix.providers.directml.empty_outputs import APART, LARGE_SIZES, mark_counted
from graphfix.providers.directml.operator_facts import WRONG_WHEN_EMPTY
from graphfix.providers.directml.placement import PlacementRules as DirectMLRules
from graphfix.providers.placement import PlacementRules
from graphfix.providers.table import DeviceEp
from graphfix.providers.webgpu.operator_facts import FAILS_WHEN_EMPTY
from graphfix.providers.webgpu.placement import PlacementRules as WebGPURules

_FACTS: dict[DeviceEp, tuple[type[PlacementRules[Any]], OpSet]] = {
    "dml": (DirectMLRules, WRONG_WHEN_EMPTY),
    "webgpu": (WebGPURules, FAILS_WHEN_EMPTY),
}
"""Which nodes each takes, and the operators that go wrong."""


@dataclass(frozen=True)
class EmptyInput:
    """A node whose first input may be empty where its result is not.

    Attributes:
        node: The node.
        axes: The axes of the input that may have size 0.
        always: Whether they have, in each run.
    """

    node: ir.Node
    axes: tuple[int, ...]
    always: bool


def find_empty_inputs(
    view: View, nodes: Iterable[ir.Node] | None = None, ep: DeviceEp = "dml"
) -> Iterator[EmptyInput]:
    """Find the nodes on a provider whose first input may be empty where their result is not.

    A size may be 0 that is 0 now, that counts what is found in data, or that is 0 at some large
    sizes of the inputs, as a remainder is.

    Args:
        view: The model.
        nodes: The nodes to look at; by default those of all operators that this goes wrong for.
        ep: The provider.
    """
    placement, operators = _FACTS[ep]
    rules = placement(view.model.graph.opset_imports, view.shapes)
    counted: set[ir.Value] = set()
    mark_counted(view.model.graph, {*view.model.graph.inputs}, counted)
    input_names = frozenset(input_dim_symbols(view.model))
    for node in view.nodes(*operators) if nodes is None else nodes:
        data = node.inputs[0] if node.inputs else None
        dims, new_dims = view.shapes.dims(data), view.shapes.dims(node.outputs[0])
        if data is None or dims is None or new_dims is None or data in view.constant_values:
            continue
        names = {name for dim in (*dims, *new_dims) for name in _names_in(dim)}
        if (data not in counted and not names <= input_names) or rules.kernel_of(node) is None:
            continue
        axes = _empty_axes(dims, new_dims, names, input_names)
        if axes:
            yield EmptyInput(node, axes, any(dims[axis] == 0 for axis in axes))


def _empty_axes(
    dims: Sequence[Dim], new_dims: Sequence[Dim], names: set[str], input_names: frozenset[str]
) -> tuple[int, ...]:
    """Return the axes of size 0 at some sizes at which the result is not empty.

    Args:
        dims: The input's dims.
        new_dims: The result's.
        names: The names in both.
        input_names: Those that are sizes of the model's inputs: large ones. The others count what
            is found in data: nothing.
    """
    at = {
        name: LARGE_SIZES + APART * i if name in input_names else np.zeros_like(LARGE_SIZES)
        for i, name in enumerate(sorted(names))
    }
    is_full = ~_is_zero(new_dims, at).any(axis=0)
    is_empty = _is_zero(dims, at) & is_full
    return tuple(int(x) for x in np.flatnonzero(is_empty.any(axis=1)))


def _names_in(dim: Dim) -> frozenset[str]:
    if isinstance(dim, int):
        return frozenset()
    return frozenset(symbols_of(dim)) if dim.value is not None else frozenset({""})


def _is_zero(dims: Sequence[Dim], at: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
    """Return which dims are 0 at which sizes, ``[dims, sizes]``; what is not known is not."""
    rows = [
        np.full(LARGE_SIZES.shape, dim == 0)
        if isinstance(dim, int)
        else np.zeros(LARGE_SIZES.shape, np.bool_)
        if dim.value is None
        else np.broadcast_to(compile_dim(dim)(at) == 0, LARGE_SIZES.shape)
        for dim in dims
    ]
    return np.array(rows, np.bool_).reshape(len(dims), len(LARGE_SIZES))

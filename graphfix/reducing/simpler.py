"""Simpler models of the same nodes: fixed and smaller sizes, plain numbers, fewer attributes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.graph.constants import const_tensor
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import graphs_of, nodes_of, values_of
from graphfix.reducing.candidate import Candidate
from graphfix.runtime.port import Array

Simplify = Callable[[Array], Array]
# Integers of so few elements may be sizes, and change with them.
_MOST_SIZES = 8
# To which sizes a size is reduced, the smallest first.
_SMALLER = (1, 2, 3)


def simpler_candidates(candidate: Candidate) -> Iterator[Candidate]:
    """Yield models that are simpler in one point each, the greatest simplification first."""
    yield from _without_declared_shapes(candidate)
    yield from _with_fixed_sizes(candidate)
    lists = _sizes_of_lists(candidate)
    for size in sorted(_sizes_of(candidate), reverse=True):
        for smaller in (*_SMALLER, size // 2):
            if smaller < size:
                yield _with_size(candidate, size, smaller)
                if size in lists:
                    yield _with_size(candidate, size, smaller, cuts_lists=True)
    yield from _without_attributes(candidate)
    yield from _with_plain_numbers(candidate)


def _without_declared_shapes(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the model without the declared shapes of all that nodes make."""
    if any(x.shape is not None for x in _made_values(candidate.model)):
        part = candidate.copy()
        for value in _made_values(part.model):
            value.shape = None
        yield part


def _with_fixed_sizes(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the model with the sizes of its feeds in place of symbolic dims."""
    shapes = {name: ir.Shape(array.shape) for name, array in candidate.feeds.items()}
    if any(x.shape != shapes.get(x.name or "") for x in candidate.model.graph.inputs):
        part = candidate.copy()
        for value in part.model.graph.inputs:
            value.shape = shapes.get(value.name or "", value.shape)
        yield part


def _sizes_of(candidate: Candidate) -> set[int]:
    """Return the sizes over 1 of inputs and constants."""
    arrays = [*candidate.feeds.values(), *(x.array for x in _constants_of(candidate.model))]
    return {size for array in arrays for size in array.shape if size > 1}


def _sizes_of_lists(candidate: Candidate) -> set[int]:
    """Return the sizes of what may be a list of sizes."""
    arrays = [*candidate.feeds.values(), *(x.array for x in _constants_of(candidate.model))]
    return {size for array in arrays if _is_list(array) for size in array.shape}


def _is_list(array: Array) -> bool:
    """Return whether an array may be a shape, or the ends of slices."""
    return array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _MOST_SIZES


def _with_size(
    candidate: Candidate, size: int, smaller: int, *, cuts_lists: bool = False
) -> Candidate:
    """Return the model with a smaller size in place of a size, wherever that stands.

    Along axes of that size the first elements stay. A few integers may be a shape or the ends of
    slices: of these, numbers of that value become the smaller one instead, unless ``cuts_lists``.
    """
    part = candidate.copy()

    def cut(array: Array) -> Array:
        if _is_list(array) and not cuts_lists:
            return np.where(array == size, array.dtype.type(smaller), array)
        ends = (slice(smaller if d == size else d) for d in array.shape)
        return np.ascontiguousarray(array[tuple(ends)]).reshape(
            [smaller if d == size else d for d in array.shape]
        )

    for constant in _constants_of(part.model):
        constant.replace(cut(constant.array))
    for value in values_of(graphs_of(part.model.graph)):
        if value.shape is not None:
            dims = [smaller if d == size else d for d in value.shape]
            value.shape = ir.Shape(dims)
    feeds = {name: cut(array) for name, array in part.feeds.items()}
    return Candidate(part.model, feeds)


def _without_attributes(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the model without one attribute of one node each."""
    for i, node in enumerate(candidate.model.graph):
        for name, attribute in node.attributes.items():
            if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                part = candidate.copy()
                del part.model.graph.node(i).attributes[name]
                yield part


def simpler_feeds(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the model with one input of floats each that is all 1, or of whole numbers."""
    for plain in _PLAIN:
        yield from _with_plain_feeds(candidate, plain)


def _with_plain_numbers(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the model with one array of floats each that is all 1, or rounded to whole numbers."""
    for plain in _PLAIN:
        yield from _with_plain_feeds(candidate, plain)
        for i, constant in enumerate(_constants_of(candidate.model)):
            if _is_simplified(constant.array, plain):
                part = candidate.copy()
                _constants_of(part.model)[i].replace(plain(constant.array))
                yield part


def _with_plain_feeds(candidate: Candidate, plain: Simplify) -> Iterator[Candidate]:
    for name, array in candidate.feeds.items():
        if _is_simplified(array, plain):
            yield Candidate(candidate.model, {**candidate.feeds, name: plain(array)})


def _rounded(array: Array) -> Array:
    return np.rint(array).astype(array.dtype)


_PLAIN: tuple[Simplify, ...] = (np.ones_like, _rounded)


def _is_simplified(array: Array, plain: Simplify) -> bool:
    """Return whether an array of floats is another one when it is made plain."""
    if array.dtype.kind != "f" or not array.size:
        return False
    return not np.array_equal(array, plain(array)) and not np.array_equal(
        array, np.ones_like(array)
    )


@dataclass(frozen=True)
class _Constant:
    """An initializer, or the value of a Constant node.

    Attributes:
        value: What holds it.
        array: Its numbers.
    """

    value: ir.Value
    array: Array

    def replace(self, array: Array) -> None:
        """Write other numbers in its place."""
        tensor = ir.tensor(array, name=self.value.name)
        node = self.value.producer()
        if node is None:
            self.value.const_value = tensor
            self.value.shape = ir.Shape(array.shape)
        else:
            node.attributes["value"] = ir.AttrTensor("value", tensor)


def _constants_of(model: ir.Model) -> list[_Constant]:
    """Return the constants of the main graph that numpy can hold."""
    values = [*model.graph.initializers.values()]
    values += [
        x.outputs[0] for x in model.graph if is_op(x, "Constant") and "value" in x.attributes
    ]
    tensors = ((value, const_tensor(value)) for value in values)
    return [
        _Constant(value, tensor.numpy())
        for value, tensor in tensors
        if tensor is not None and tensor.dtype != ir.DataType.STRING
    ]


def _made_values(model: ir.Model) -> list[ir.Value]:
    """Return what nodes make, in bodies too."""
    return [value for node in nodes_of(model.graph) for value in node.outputs]

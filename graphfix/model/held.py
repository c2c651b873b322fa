"""Small constants of a file, each looked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.values import SMALL, graphs_of, is_op

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt


class Held(ir.TensorProtoTensor):
    """A small tensor of a file that keeps what onnx-ir makes anew each time it is asked.

    Every pass asks each constant for its size and numbers: on a graph of 100,000 nodes, a quarter
    of which are constants, that was a twelfth of all the work. The numbers of a tensor of a file do
    not change, and nobody can write into the array.
    """

    __slots__ = ("_array", "_dtype", "_shape", "_size")

    def __init__(self, tensor: ir.TensorProtoTensor) -> None:
        super().__init__(tensor.raw)
        self._shape = ir.Shape(tensor.raw.dims, frozen=True)
        self._dtype, self._size = tensor.dtype, tensor.size
        self._array: npt.NDArray[np.generic] | None = None

    # To its protocol these are variables, which they are not in onnx-ir's own tensor of a file.
    @property
    def shape(self) -> ir.Shape:  # type: ignore[override]
        """The shape, which is frozen."""
        return self._shape

    @property
    def dtype(self) -> ir.DataType:  # type: ignore[override]
        """The type of an element."""
        return self._dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._size

    def numpy(self) -> npt.NDArray[Any]:
        """The elements, read when they are asked for the first time."""
        if self._array is None:
            self._array = super().numpy()
            self._array.flags.writeable = False
        return self._array


def hold(model: ir.Model) -> None:
    """Make every small initializer, and what every small Constant holds, a :class:`Held`."""
    for top in (model.graph, *(function.graph for function in model.functions.values())):
        for graph in graphs_of(top):
            for value in graph.initializers.values():
                if (held := _held(value.const_value)) is not None:
                    value.const_value = held
            for node in graph:
                if is_op(node, "Constant"):
                    _hold_in(node)


def _hold_in(node: ir.Node) -> None:
    for name, attribute in [*node.attributes.data.items()]:
        if attribute.type != ir.AttributeType.TENSOR or attribute.is_ref():
            continue
        if (held := _held(attribute.value)) is not None:
            node.attributes[name] = ir.AttrTensor(name, held, doc_string=attribute.doc_string)


def _held(tensor: object) -> Held | None:
    if type(tensor) is not ir.TensorProtoTensor or tensor.size > SMALL:
        return None
    return Held(tensor)

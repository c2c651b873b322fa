"""Readers of constants: tensors, numbers, lists of integers."""

from __future__ import annotations

import contextlib

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.graph.nodes import attribute_dict, is_op, tensor_of_attr

Array = npt.NDArray[np.generic]


# Weights are never read: no pass needs the values of a constant with more elements than this.
MAX_CONSTANT_ELEMENTS = 1024


def const_of(value: ir.Value | None, limit: int = MAX_CONSTANT_ELEMENTS) -> Array | None:
    """Return the contents of ``value`` if the file fixes them, of at most ``limit`` elements.

    An initializer that is also a graph input is no constant: a caller may override it.
    Identity is looked through. Quantized and string types are skipped.
    """
    tensor = const_tensor(value, limit)
    if tensor is None:
        return None
    array = tensor.numpy()
    if isinstance(tensor, ir.ExternalTensor) and not _caches_contents(tensor):
        # It keeps the whole file mapped, once for each tensor: 60 MB for a thousand biases.
        array = array.copy()
        with contextlib.suppress(BufferError):  # somebody else is looking at it
            tensor.release()
    return array


def const_tensor(
    value: ir.Value | None, limit: int = MAX_CONSTANT_ELEMENTS
) -> ir.TensorProtocol | None:
    """Return the tensor whose contents :func:`const_of` reads, without reading it."""
    while value is not None and (node := value.producer()) is not None:
        if node.op_type != "Identity" or not is_op(node, "Identity"):
            if not is_op(node, "Constant"):
                return None
            break
        value = node.inputs[0]
    if value is None or value.is_graph_input():
        return None
    tensor = _tensor_of(value)
    if tensor is None or tensor.size > limit or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor


def _caches_contents(tensor: ir.ExternalTensor) -> bool:
    """Return whether ``tensor`` reads only its part of the file, and keeps what it read."""
    # onnx-ir's own class maps the file; graphfix.files.external_files.Weight reads its part.
    return type(tensor) is not ir.ExternalTensor and tensor.size <= MAX_CONSTANT_ELEMENTS


def _tensor_of(value: ir.Value) -> ir.TensorProtocol | None:
    if value.is_initializer():
        return value.const_value
    node = value.producer()
    if node is None or not is_op(node, "Constant"):
        return None
    attributes = attribute_dict(node)
    if len(attributes) != 1:
        return None
    attribute = next(iter(attributes.values()))
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        # Not through onnx-ir's get_const_tensor: it writes the value's name into the tensor.
        return tensor_of_attr(attribute)
    return ir.convenience.get_const_tensor(value)


def fill_value_of(node: ir.Node) -> Array | None:
    """Return the element that a ConstantOfShape repeats; None if it is a function's parameter."""
    attribute = node.attributes.get("value")
    if attribute is None:
        return np.zeros(1, np.float32)
    return None if attribute.is_ref() else tensor_of_attr(attribute).numpy()


def scalar_of(value: ir.Value | None) -> float | int | bool | None:
    """Return the number that ``value`` is filled with, if it is a constant of one value."""
    array = const_of(value)
    return None if array is None else uniform_number(array)


def uniform_number(array: Array) -> float | int | bool | None:
    """Return the one number that all elements of ``array`` equal, or None."""
    if array.size == 0 or (array.dtype.kind not in "biuf" and not is_float(array)):
        return None
    first = array.reshape(-1)[0]
    if not bool(np.all(array == first)):
        return None
    item: float | int | bool = first.item()
    return item


def is_float(array: Array) -> bool:
    """Return whether ``array`` is of floats; bfloat16 and float8 of ml_dtypes have kind "V"."""
    return "float" in array.dtype.name


def ints_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the integers of a constant of rank 0 or 1, such as axes, a shape, starts or ends."""
    # Asked of every value of a model: weights in another file are not even opened for it.
    if value is not None and value.is_initializer() and not _may_be_ints(value.const_value):
        return None
    array = const_of(value)
    if array is None or array.ndim > 1 or array.dtype.kind not in "iu":
        return None
    return tuple(int(x) for x in array.reshape(-1))


def _may_be_ints(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype.is_integer() and len(tensor.shape) <= 1

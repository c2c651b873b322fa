"""Integers that an operator takes as an attribute at one opset and as an input at another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import SupportsIndex, TypeAlias, TypeVar

import onnx_ir as ir

from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_ints, input_at

T = TypeVar("T")
Read: TypeAlias = Callable[[ir.Value], Sequence[T] | None]
"""How the contents of an input are read: ``ints_of`` for constants, or what is known of sizes."""


def is_given(node: ir.Node, index: int, attribute: str) -> bool:
    """Return whether an operand is given at all, as an input or as an attribute."""
    return input_at(node, index) is not None or attribute in node.attributes


def read_operand(
    node: ir.Node, index: int, attribute: str, read: Read[T]
) -> tuple[T | int, ...] | None:
    """Return what an operand holds, from the input if there is one, else from the attribute.

    Args:
        node: The node.
        index: The input that it is in later opsets.
        attribute: The attribute that it was before.
        read: Reads an input; ``ints_of`` knows constants.

    Returns:
        None if it is not given, or not known: :func:`is_given` tells which.
    """
    value = input_at(node, index)
    if value is None:
        return attr_ints(node, attribute)
    contents = read(value)
    return None if contents is None else tuple(contents)


def read_ints(node: ir.Node, index: int, attribute: str) -> tuple[int, ...] | None:
    """Return what :func:`read_operand` does where only constants count."""
    return read_operand(node, index, attribute, ints_of)


def read_axes(
    node: ir.Node, index: int, attribute: str, read: Read[object]
) -> tuple[int, ...] | None:
    """Return what an operand holds if that is integers, also where ``read`` knows symbolic sizes.

    Axes as they are written, negative ones too; None if they are not given or not known.
    """
    contents = read_operand(node, index, attribute, read)
    # An expression of sympy says that it can be an int, but only an Integer has an index.
    axes = tuple(operator.index(x) for x in contents or () if isinstance(x, SupportsIndex))
    return None if contents is None or len(axes) < len(contents) else axes


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...] | None:
    """Return axes counted from the front; None if one lies outside of the rank."""
    if not all(-rank <= axis < rank for axis in axes):
        return None
    return tuple(axis % rank for axis in axes)

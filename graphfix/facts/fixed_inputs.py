"""Inputs that have become constants, as a model's metadata names them, each with its value.

Whoever runs the model beside the one that it was made from feeds that one these values.
"""

import json
import math
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix import json_types
from graphfix.errors import ModelError
from graphfix.spec.quoting import quoted

Array = npt.NDArray[np.generic]

KEY = "graphfix.inputs"
"""The entry of ``metadata_props`` with the values, as text, by the names of the inputs."""

# Not the plus of 1e+5.
_BETWEEN = re.compile(r"(?<![eE])\+")
_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0}


def texts_of(model: ir.Model) -> dict[str, str]:
    """The inputs that are constants now, each with its value as it was given.

    Raises:
        ModelError: The entry is malformed.
    """
    text = model.metadata_props.get(KEY)
    if text is None:
        return {}
    try:
        found = json_types.read(text)
    except ValueError as error:
        raise ModelError(f"the model's {KEY}={text[:80]!r} is malformed: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(x, str) for x in found.values()):
        raise ModelError(f"the model's {KEY}={text[:80]!r} names no values")
    return found


def note(model: ir.Model, values: Mapping[str, str]) -> None:
    """Write them into the metadata of ``model``, beside those that are there."""
    model.metadata_props[KEY] = json.dumps(dict(sorted({**texts_of(model), **values}.items())))


def arrays_since(before: ir.Model, after: ir.Model) -> dict[str, Array]:
    """What ``before`` has to be fed where ``after`` says that it has a constant.

    Raises:
        ModelError: The metadata of ``after`` has a value that does not fit.
    """
    mine, found = {x.name: x for x in after.graph.inputs}, {}
    inputs = {x.name: x for x in before.graph.inputs}
    for name, text in texts_of(after).items():
        if name in inputs and name not in mine:
            try:
                found[name] = array_of(inputs[name], text, strict=False)
            except ValueError as error:
                raise ModelError(f"the model's {KEY}: {error}") from error
    return found


def array_of(value: ir.Value, text: str, *, strict: bool = True) -> Array:
    """The value of an input that ``text`` stands for.

    One number fills the whole input; several, with a plus between them, are its elements in order.

    Args:
        value: The input.
        text: ``16000``, ``true``, ``0.5+0.25``.
        strict: Whether dims without a size are refused; else they are 1, or as many as there are
            elements.

    Raises:
        ValueError: It does not fit the type, the shape or the range of the input; the message says
            what would.
    """
    called = f"the input {value.name!r}"
    if not isinstance(value.type, ir.TensorType) or value.dtype is None:
        raise ValueError(f"{called} is no tensor ({value.type}) and cannot become a constant")
    if value.dtype == ir.DataType.STRING:
        raise ValueError(f"{called} holds text, and only numbers can be given")
    numbers = [_number(x.strip(), value, called) for x in _BETWEEN.split(text)]
    shape = _shape(value, len(numbers), called, text, strict=strict)
    size = int(np.prod(shape))
    if len(numbers) not in (1, size):
        raise ValueError(
            f"{called} has shape {list(shape)}, {size} elements, and {len(numbers)} are given; "
            "give one for all, or each"
        )
    array = np.array(numbers).astype(value.dtype.numpy())
    return array.reshape(shape) if len(numbers) == size else np.full(shape, array[0])


def _shape(value: ir.Value, count: int, called: str, text: str, *, strict: bool) -> tuple[int, ...]:
    if value.shape is None:
        return () if count == 1 else (count,)
    free = [axis for axis, x in enumerate(value.shape) if not isinstance(x, int) or x < 0]
    if free and strict:
        places = (quoted(f"{value.name}.{axis}") for axis in free)
        sizes = ",".join(f"fix-dims:{place}=SIZE" for place in places)
        raise ValueError(
            f"axis {free[0]} of {called} has no size, and a constant has one: "
            f"{sizes},fix-input:{quoted(value.name or '')}={text}"
        )
    shape = [x if isinstance(x, int) and x >= 0 else 1 for x in value.shape]
    if free:
        shape[free[0]] = max(1, count // max(math.prod(shape), 1))
    return tuple(shape)


def _number(text: str, value: ir.Value, called: str) -> int | float | bool:
    dtype = value.dtype
    assert dtype is not None
    kind = dtype.name.lower()
    number: int | float | None = _WORDS.get(text.lower())
    if number is None:
        try:
            number = int(text, 0)
        except ValueError:
            try:
                number = float(text)
            except ValueError:
                raise ValueError(f"{called} is {kind}, and {text!r} is no number") from None
    if dtype == ir.DataType.BOOL:
        if number not in (0, 1):
            raise ValueError(f"{called} is bool, and {text} is neither true nor false")
        return bool(number)
    if dtype.is_floating_point():
        with np.errstate(over="ignore"):
            kept = float(np.array(number, np.float64).astype(dtype.numpy()))
        if np.isinf(kept) and not np.isinf(number):
            raise ValueError(f"{called} is {kind}, and {text} is beyond its range")
        return number
    if not dtype.is_integer():
        raise ValueError(f"{called} is {kind}, of which no number can be given")
    if not isinstance(number, int) and not number.is_integer():
        raise ValueError(f"{called} is {kind}, and {text} is not a whole number")
    if not dtype.min <= number <= dtype.max:
        range_ = f"from {dtype.min} to {dtype.max}"
        raise ValueError(f"{called} is {kind}, {range_}, and {text} is not among them")
    return int(number)

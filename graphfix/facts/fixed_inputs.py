"""Inputs that became constants, with their values, as recorded in a model's metadata.

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
from graphfix.spec.quoting import quote_name

Array = npt.NDArray[np.generic]

METADATA_KEY = "graphfix.inputs"
"""The entry of ``metadata_props`` with the values, as text, by the names of the inputs."""

# Not the plus of 1e+5.
_SEPARATOR = re.compile(r"(?<![eE])\+")
_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0}


def fixed_input_texts(model: ir.Model) -> dict[str, str]:
    """Return the text of the value of each input that is a constant now, by input name.

    Raises:
        ModelError: The entry is malformed.
    """
    text = model.metadata_props.get(METADATA_KEY)
    if text is None:
        return {}
    try:
        texts = json_types.parse_json(text)
    except ValueError as error:
        raise ModelError(
            f"the model's {METADATA_KEY}={text[:80]!r} is malformed: {error}"
        ) from error
    if not isinstance(texts, dict) or not all(isinstance(x, str) for x in texts.values()):
        raise ModelError(f"the model's {METADATA_KEY}={text[:80]!r} names no values")
    return texts


def record_fixed_inputs(model: ir.Model, values: Mapping[str, str]) -> None:
    """Add the values of fixed inputs to the metadata of ``model``."""
    model.metadata_props[METADATA_KEY] = json.dumps(
        dict(sorted({**fixed_input_texts(model), **values}.items()))
    )


def fixed_input_arrays(before: ir.Model, after: ir.Model) -> dict[str, Array]:
    """Return arrays to feed ``before`` for the inputs that ``after`` has as constants.

    Raises:
        ModelError: The metadata of ``after`` has a value that does not fit.
    """
    after_inputs, arrays = {x.name: x for x in after.graph.inputs}, {}
    inputs = {x.name: x for x in before.graph.inputs}
    for name, text in fixed_input_texts(after).items():
        if name in inputs and name not in after_inputs:
            try:
                arrays[name] = parse_input_value(inputs[name], text, strict=False)
            except ValueError as error:
                raise ModelError(f"the model's {METADATA_KEY}: {error}") from error
    return arrays


def parse_input_value(value: ir.Value, text: str, *, strict: bool = True) -> Array:
    """Return the array that ``text`` stands for as the value of an input.

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
    label = f"the input {value.name!r}"
    if not isinstance(value.type, ir.TensorType) or value.dtype is None:
        raise ValueError(f"{label} is no tensor ({value.type}) and cannot become a constant")
    if value.dtype == ir.DataType.STRING:
        raise ValueError(f"{label} holds text, and only numbers can be given")
    numbers = [_parse_number(x.strip(), value, label) for x in _SEPARATOR.split(text)]
    shape = _constant_shape(value, len(numbers), label, text, strict=strict)
    size = int(np.prod(shape))
    if len(numbers) not in (1, size):
        raise ValueError(
            f"{label} has shape {list(shape)}, {size} elements, and {len(numbers)} are given; "
            "give one for all, or each"
        )
    array = np.array(numbers).astype(value.dtype.numpy())
    return array.reshape(shape) if len(numbers) == size else np.full(shape, array[0])


def _constant_shape(
    value: ir.Value, count: int, label: str, text: str, *, strict: bool
) -> tuple[int, ...]:
    if value.shape is None:
        return () if count == 1 else (count,)
    free = [axis for axis, x in enumerate(value.shape) if not isinstance(x, int) or x < 0]
    if free and strict:
        places = (quote_name(f"{value.name}.{axis}") for axis in free)
        sizes = ",".join(f"fix-dims:{place}=SIZE" for place in places)
        raise ValueError(
            f"axis {free[0]} of {label} has no size, and a constant has one: "
            f"{sizes},fix-input:{quote_name(value.name or '')}={text}"
        )
    shape = [x if isinstance(x, int) and x >= 0 else 1 for x in value.shape]
    if free:
        shape[free[0]] = max(1, count // max(math.prod(shape), 1))
    return tuple(shape)


def _parse_number(text: str, value: ir.Value, label: str) -> int | float | bool:
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
                raise ValueError(f"{label} is {kind}, and {text!r} is no number") from None
    if dtype == ir.DataType.BOOL:
        if number not in (0, 1):
            raise ValueError(f"{label} is bool, and {text} is neither true nor false")
        return bool(number)
    if dtype.is_floating_point():
        with np.errstate(over="ignore"):
            rounded = float(np.array(number, np.float64).astype(dtype.numpy()))
        if np.isinf(rounded) and not np.isinf(number):
            raise ValueError(f"{label} is {kind}, and {text} is beyond its range")
        return number
    if not dtype.is_integer():
        raise ValueError(f"{label} is {kind}, of which no number can be given")
    if not isinstance(number, int) and not number.is_integer():
        raise ValueError(f"{label} is {kind}, and {text} is not a whole number")
    if not dtype.min <= number <= dtype.max:
        range_ = f"from {dtype.min} to {dtype.max}"
        raise ValueError(f"{label} is {kind}, {range_}, and {text} is not among them")
    return int(number)

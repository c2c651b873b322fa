"""Checks that tensors and types have possible sizes, and as many bytes as those need."""

import functools
import re
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from graphfix.ops.attribute_values import MAX_DIMS

_MAX_DIM = 1 << 40  # a dim; ONNX Runtime multiplies dims in 64 bits
_MAX_ELEMENTS = 1 << 48
_MAX_TEXT = 2000  # of a dim that is an expression
_MAX_DEPTH = 120

_P = onnx.TensorProto
_EXTERNAL = _P.EXTERNAL  # looked up by its name: once, not for each tensor
# Where the values are that are not in raw_data, and how many of them make an element:
# the comments in onnx.proto.
_FIELDS: dict[int, tuple[str, int]] = {
    **dict.fromkeys((_P.FLOAT,), ("float_data", 1)),
    **dict.fromkeys((_P.COMPLEX64,), ("float_data", 2)),
    **dict.fromkeys((_P.DOUBLE,), ("double_data", 1)),
    **dict.fromkeys((_P.COMPLEX128,), ("double_data", 2)),
    **dict.fromkeys((_P.INT64,), ("int64_data", 1)),
    **dict.fromkeys((_P.UINT32, _P.UINT64), ("uint64_data", 1)),
    **dict.fromkeys((_P.STRING,), ("string_data", 1)),
}
_POWER = re.compile(r"\*\*\s*(?!\d{1,2}\b(?!\s*\*\*))")
_LONG = re.compile(r"\d{19}")
_NAMED = re.compile(r"[\w.]*")


def tensor_refusal(tensor: onnx.TensorProto) -> str | None:
    """Return why a tensor is malformed, as the end of a sentence, or None."""
    kind = tensor.data_type
    bits = _bits_per_element(kind)
    if bits is None:
        return f"has no type that there is: {kind}"
    dims = tensor.dims
    if len(dims) > MAX_DIMS:
        return f"has {len(dims):,} dims; {MAX_DIMS} are the most"
    count = 1
    for dim in dims:
        if not 0 <= dim <= _MAX_DIM:
            return f"has a dim of {dim:,}"
        count *= dim
    if tensor.data_location == _EXTERNAL:
        return None if bits else "has text that lies in another file, which ONNX does not know"
    if tensor.HasField("raw_data"):
        if not bits:
            return "has text as raw bytes, which ONNX does not know"
        # Values beside it, in a field of their own, are not looked at, as in ONNX Runtime.
        return _count_refusal(len(tensor.raw_data), -(-count * bits // 8), "bytes", dims)
    name, per_element = _FIELDS.get(kind, ("int32_data", 1))
    # What is less than a byte is packed, a byte in each number.
    expected = -(-count * bits // 8) if 0 < bits < 8 else count * per_element
    return _count_refusal(len(getattr(tensor, name)), expected, "values", dims)


def _count_refusal(count: int, expected: int, unit: str, dims: Sequence[int]) -> str | None:
    if count == expected:
        return None
    shape = ", ".join(map(str, dims))
    unit = unit.removesuffix("s") if count == 1 else unit
    return f"has {count:,} {unit} for the shape [{shape}], which takes {expected:,}"


def type_refusal(kind: onnx.TypeProto, *, thorough: bool) -> str | None:
    """Return why a type is malformed, as the end of a sentence, or None.

    Args:
        kind: The type.
        thorough: Whether dims that are expressions are also worked out once.
    """
    depth = 0
    while (variant := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, str(variant)).elem_type
        depth += 1
        if depth > _MAX_DEPTH:
            return "is a sequence of sequences without end"
    if variant == "map_type":
        return "is a map, which graphfix does not know"
    if variant not in ("tensor_type", "sparse_tensor_type"):
        return None
    tensor = getattr(kind, variant)
    if tensor.elem_type and _bits_per_element(tensor.elem_type) is None:
        return f"has no type that there is: {tensor.elem_type}"
    dims = tensor.shape.dim
    if len(dims) > MAX_DIMS:
        return f"has {len(dims):,} dims; {MAX_DIMS} are the most"
    count = 1
    for dim in dims:
        if dim.dim_param:
            if reason := _dim_text_refusal(dim.dim_param, thorough=thorough):
                return f"has a dim {_shorten_text(dim.dim_param)!r}, which {reason}"
        elif dim.dim_value > _MAX_DIM:
            return f"has a dim of {dim.dim_value:,}"
        elif dim.dim_value > 0:
            count *= dim.dim_value
    if count > _MAX_ELEMENTS:
        return f"has {count:,} elements, more than there is memory for"
    return None


@functools.lru_cache(maxsize=4096)
def _dim_text_refusal(text: str, *, thorough: bool) -> str | None:
    if _NAMED.fullmatch(text) and len(text) <= _MAX_TEXT:
        # int() and str() of Python stop at 4,300 digits, with an error.
        return "is too long a number" if _LONG.match(text) and text.isdigit() else None
    if len(text) > _MAX_TEXT:
        return f"is {len(text):,} characters long"
    depth = deepest = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH or text.count("-") > _MAX_TEXT // 10:
        return "has too many parentheses or signs"
    if _POWER.search(text) or text.count("**") > 3 or _LONG.search(text):
        return "is a number that no memory may hold"
    if not thorough:
        return None
    try:
        dim = ir.SymbolicDim(text)
        size = dim.evaluate(dict.fromkeys(dim.free_symbols(), 97))
    except ValueError:
        return None  # no expression, but a name such as "batch size"
    except (ArithmeticError, TypeError, AttributeError, RecursionError):
        return "is no size"
    return "is no size" if re.search("zoo|nan", str(size)) else None


def _shorten_text(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


@functools.cache
def _bits_per_element(kind: int) -> int | None:
    """Return the bits of an element of a type; 0 for text, None if there is no such type."""
    if kind == _P.STRING:
        return 0
    try:
        return ir.DataType(kind).bitwidth
    except (ValueError, TypeError):
        return None

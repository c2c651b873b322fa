"""Checks of attribute values that are wrong whatever the shapes of the inputs are.

A schema has the type of an attribute; which numbers are allowed is described in prose, on the pages
of the operators at https://onnx.ai/onnx/operators. These checks hold at any shape of the inputs.
"""

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from graphfix.ops.einsums import parse_equation
from graphfix.ops.traits import QUANTIZES, named

Rule = Callable[[str, Sequence[int]], str | None]

MAX_DIMS = 64
"""The most dims of a tensor: numpy has no more, and no operator needs them."""
_MAX_SIZE = 1 << 40  # a size; ONNX Runtime multiplies sizes in 64 bits

_INT, _INTS = onnx.AttributeProto.INT, onnx.AttributeProto.INTS


def attribute_refusal(op_type: str, attribute: onnx.AttributeProto) -> str | None:
    """Return why the value of an attribute is impossible, as the end of a sentence, or None.

    Args:
        op_type: An operator of ONNX's own set.
        attribute: One that is no parameter of a function.
    """
    name = attribute.name
    if op_type == "Einsum" and name == "equation":
        return _equation_refusal(attribute.s)
    rule, kind = RULES.get(name), attribute.type
    if rule is None or kind not in (_INT, _INTS):
        return None
    return rule(op_type, (attribute.i,) if kind == _INT else attribute.ints)


def constant_count_refusal(count: int) -> str | None:
    """Return why a Constant with so many values is wrong, as the end of a sentence, or None."""
    return None if count == 1 else f"has {count or 'no'} value{'s' * (count != 1)}; it takes one"


def _equation_refusal(equation: bytes) -> str | None:
    """Return why an Einsum equation is wrong, or None.

    ONNX's own inference of shapes has no end for a term of two ellipses (seen in 1.23).
    """
    text = equation.decode("utf-8", "replace")
    return None if parse_equation(text) else f"is {text[:80]!r}, which is no equation"


def _data_type_refusal(op_type: str, values: Sequence[int]) -> str | None:
    kind = values[0]
    if kind in _TYPES and (kind or op_type in _ALLOWS_UNDEFINED_TYPE):
        return None
    return f"is {kind}, which is no type of a tensor"


_TYPES = frozenset(int(x) for x in ir.DataType)
# Type 0 is their default: the type of an input, or float32.
_ALLOWS_UNDEFINED_TYPE = QUANTIZES | named("Attention Range")


def _axes_refusal(_op_type: str, values: Sequence[int]) -> str | None:
    for value in values:
        if not -MAX_DIMS <= value <= MAX_DIMS:
            return f"names the axis {value}; no tensor has so many"
    return None


def _permutation_refusal(_op_type: str, values: Sequence[int]) -> str | None:
    if sorted(values) == [*range(len(values))]:
        return None
    text = ", ".join(map(str, values[:8]))
    return f"is no permutation: [{text}{', ...' if len(values) > 8 else ''}]"


def _require_at_least(least: int) -> Rule:
    def rule(_op_type: str, values: Sequence[int]) -> str | None:
        for value in values:
            if not least <= value <= _MAX_SIZE:
                expected = f"at least {least}" if value < least else "a size that there can be"
                return f"is {value}, not {expected}"
        return None

    return rule


_POSITIVE, _COUNT, _NUMBER = (
    _require_at_least(1),
    _require_at_least(0),
    _require_at_least(-_MAX_SIZE),
)

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("to", "dtype", "output_dtype", "output_datatype"), _data_type_refusal),
    **dict.fromkeys(("precision", "softmax_precision", "stash_type"), _data_type_refusal),
    **dict.fromkeys(("axes", "axis", "batch_axis", "time_axis"), _axes_refusal),
    **dict.fromkeys(("scan_input_axes", "scan_output_axes"), _axes_refusal),
    "perm": _permutation_refusal,
    **dict.fromkeys(("blocksize", "dilations", "group", "kernel_shape", "strides"), _POSITIVE),
    **dict.fromkeys(("hidden_size", "num_groups", "num_outputs", "offset_group"), _POSITIVE),
    **dict.fromkeys(("num_scan_inputs", "pooled_shape", "size"), _POSITIVE),
    **dict.fromkeys(("batch_dims", "block_size", "num_heads", "rotary_embedding_dim"), _COUNT),
    **dict.fromkeys(("kv_num_heads", "q_num_heads", "sample_size", "split"), _COUNT),
    **dict.fromkeys(("output_height", "output_padding", "output_shape", "output_width"), _COUNT),
    **dict.fromkeys(("pads", "paddings"), _NUMBER),
}
"""What is asked of each attribute, by its name: it means the same wherever ONNX has it."""

"""Attribute values that are wrong whatever the inputs are."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from graphfix.ops.attribute_values import (
    MAX_DIMS,
    RULES,
    attribute_refusal,
    constant_count_refusal,
)

LARGEST = 1 << 40


def refusal(op_type: str, name: str, value: object) -> str | None:
    return attribute_refusal(op_type, helper.make_attribute(name, value))


@pytest.mark.parametrize(
    ("op_type", "name", "value", "reason"),
    [
        ("Cast", "to", 1, None),
        ("Cast", "to", 0, "is 0, which is no type of a tensor"),
        ("Cast", "to", 999, "is 999, which is no type of a tensor"),
        # Where 0 is the default it stands for the type of an input.
        ("QuantizeLinear", "output_dtype", 0, None),
        ("Attention", "softmax_precision", 0, None),
        ("Range", "stash_type", 0, None),
        ("LayerNormalization", "stash_type", 0, "is 0, which is no type of a tensor"),
        ("Concat", "axis", MAX_DIMS, None),
        ("Concat", "axis", -MAX_DIMS, None),
        ("Concat", "axis", MAX_DIMS + 1, f"names the axis {MAX_DIMS + 1}; no tensor has so many"),
        ("Squeeze", "axes", [0, -MAX_DIMS - 1],
         f"names the axis {-MAX_DIMS - 1}; no tensor has so many"),
        ("Transpose", "perm", [1, 0, 2], None),
        ("Transpose", "perm", [], None),
        ("Transpose", "perm", [1, 1], "is no permutation: [1, 1]"),
        ("Transpose", "perm", [1, 2], "is no permutation: [1, 2]"),
        ("Transpose", "perm", [0] * 8, "is no permutation: [0, 0, 0, 0, 0, 0, 0, 0]"),
        ("Transpose", "perm", [0] * 9, "is no permutation: [0, 0, 0, 0, 0, 0, 0, 0, ...]"),
        ("Conv", "strides", [1, 1], None),
        ("Conv", "strides", [1, 0], "is 0, not at least 1"),
        ("Conv", "group", LARGEST, None),
        ("Conv", "group", LARGEST + 1, f"is {LARGEST + 1}, not a size that there can be"),
        ("Split", "split", [0, 1], None),
        ("Split", "split", [0, -1], "is -1, not at least 0"),
        ("Pad", "pads", [-LARGEST, LARGEST], None),
        ("Pad", "pads", [-LARGEST - 1], f"is {-LARGEST - 1}, not at least {-LARGEST}"),
        ("Pad", "pads", [LARGEST + 1], f"is {LARGEST + 1}, not a size that there can be"),
        # Of another type, or of another name, nothing is asked.
        ("Pad", "pads", 1.5, None),
        ("Elu", "alpha", 0, None),
        ("Einsum", "equation", "ab,bc->ac", None),
        ("Einsum", "equation", "...a...->a", "is '...a...->a', which is no equation"),
        ("Einsum", "equation", "a" * 90 + "?", f"is {'a' * 80!r}, which is no equation"),
        ("Other", "equation", "?", None),
        ("Einsum", "axis", MAX_DIMS + 1, f"names the axis {MAX_DIMS + 1}; no tensor has so many"),
    ],
)  # fmt: skip
def test_what_no_attribute_may_be(
    op_type: str, name: str, value: object, reason: str | None
) -> None:
    if value == []:
        attribute = onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
        assert attribute_refusal(op_type, attribute) == reason
    else:
        assert refusal(op_type, name, value) == reason


def test_a_constant_has_one_value() -> None:
    assert constant_count_refusal(1) is None
    assert constant_count_refusal(0) == "has no values; it takes one"
    assert constant_count_refusal(2) == "has 2 values; it takes one"


def test_defaults_of_onnx_are_allowed() -> None:
    """Each default of each operator that a rule is about, at each version."""
    seen = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            default = attribute.default_value
            if schema.domain or name not in RULES or not default.name:
                continue
            seen.add(name)
            assert attribute_refusal(schema.name, default) is None, (schema.name, name)
    assert len(seen) > 12

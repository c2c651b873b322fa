"""What operators do to a padded tensor: one module for each family, one function for each rule.

A rule takes a :class:`graphfix.lengths.rule_site.Site` and gives back the state of each output,
asking for repairs on the way. An operator without a rule is a refusal, never a guess.
"""

from __future__ import annotations

import onnx_ir as ir

from graphfix.lengths.rule_site import Rule
from graphfix.lengths.rules import (
    attention,
    concat_pad,
    convolve,
    elementwise,
    gather,
    matmul,
    normalize,
    quantize,
    recurrent,
    reduce,
    reshape,
    shape_ops,
    slice,
    softmax,
    standard_attention,
    transpose,
)

MICROSOFT = "com.microsoft"
RULES: dict[str, Rule] = {
    name: rule
    for family in (
        transpose,
        softmax,
        convolve,
        slice,
        elementwise,
        attention,
        gather,
        concat_pad,
        matmul,
        normalize,
        quantize,
        recurrent,
        reduce,
        reshape,
        shape_ops,
        standard_attention,
    )
    for name, rule in family.RULES.items()
}
"""The rule of each operator; those of com.microsoft that have no namesake are among them.

Those that have one, or might, stand under their full name.
"""


def rule_of(node: ir.Node) -> Rule | None:
    """The rule of a node, if there is one."""
    if node.domain not in ("", "ai.onnx", MICROSOFT):
        return None
    own = RULES.get(f"{node.domain}.{node.op_type}") if node.domain == MICROSOFT else None
    return own or RULES.get(node.op_type)

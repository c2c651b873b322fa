"""Rules for what operators do to a padded tensor: one module per family, one function per rule.

A rule takes a :class:`graphfix.lengths.rule_site.RuleSite`, returns the state of each output, and
asks for repairs. An operator without a rule is a refusal, never a guess. A rule is found in the
``RULES`` of its module.
"""

import importlib
import pkgutil

import onnx_ir as ir

from graphfix import ops
from graphfix.lengths.rule_site import PaddingRule

RULES: dict[str, PaddingRule] = {}
"""The rule of each operator, under its qualified name."""

for _module in pkgutil.iter_modules(__path__):
    RULES |= getattr(importlib.import_module(f"{__name__}.{_module.name}"), "RULES", {})

# com.microsoft has operators of the same name and inputs as ONNX's, which exporters use.
_NAMESAKES = ("DequantizeLinear", "GatherND", "Pad", "QuantizeLinear", "Range", "Trilu")
RULES |= {f"com.microsoft.{name}": RULES[name] for name in _NAMESAKES}


def rule_of(node: ir.Node) -> PaddingRule | None:
    """Return the rule of a node, or None."""
    return RULES.get(ops.qualified_name(node))

"""Rules for what operators do to a padded tensor: one module per family, one function per rule.

A rule takes a :class:`graphfix.lengths.rule_site.RuleSite`, returns the state of each output, and
asks for repairs. An operator without a rule is a refusal, never a guess. A rule is found in the
``RULES`` of its module.
"""

import importlib
import pkgutil

import onnx_ir as ir

from graphfix.lengths.rule_site import PaddingRule

MICROSOFT = "com.microsoft"
RULES: dict[str, PaddingRule] = {}
"""The rule of each operator; those of com.microsoft that have no namesake are among them.

Those that have one, or might, stand under their full name.
"""

for _info in pkgutil.iter_modules(__path__):
    RULES |= getattr(importlib.import_module(f"{__name__}.{_info.name}"), "RULES", {})


def rule_of(node: ir.Node) -> PaddingRule | None:
    """Return the rule of a node, or None."""
    if node.domain not in ("", "ai.onnx", MICROSOFT):
        return None
    own = RULES.get(f"{node.domain}.{node.op_type}") if node.domain == MICROSOFT else None
    return own or RULES.get(node.op_type)

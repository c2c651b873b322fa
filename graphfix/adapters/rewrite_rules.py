"""The only import of onnxscript.rewriter: rewrite rules of that library as a pass.

Its rules work on the same onnx-ir objects, so a rule that somebody has written already is a pass
in four lines::

    class Relus(graphfix.adapters.rewrite_rules.RulesPass):
        \"\"\"Two Relus in a row become one.\"\"\"
        name = "relus"
        rules = (relu_relu_rule,)
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import onnx_ir as ir
from onnxscript.rewriter.pattern import RewriteRule, RewriteRuleSet

from graphfix.core import Change, Match, Pass, Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.graph.text import node_label, node_text


class RulesPass(Pass):
    """A pass made of onnxscript's rewrite rules. Subclass it with a ``name`` and ``rules``.

    All that the rules change is reported as one repair: the engine does not say which nodes a
    match took. It neither keeps the names of inner tensors nor says why it left something alone;
    where that matters, write a :class:`graphfix.NodePass`.
    """

    rules: ClassVar[Sequence[RewriteRule]]

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield the first node that would go, found on a copy: the engine edits while it looks."""
        copy = model.clone()
        nodes = dict(zip(copy.graph, model.graph, strict=True))
        RewriteRuleSet(self.rules).apply_to_model(copy)
        removed_nodes = [theirs for mine, theirs in nodes.items() if mine.graph is None]
        yield from (Match(node) for node in removed_nodes[:1])

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Apply the rules until none matches any more."""
        before = {node: node_text(node) for node in model.graph.all_nodes()}
        if not RewriteRuleSet(self.rules).apply_to_model(model):
            return
        after = list(model.graph.all_nodes())
        new_nodes = [node for node in after if node not in before]
        for node in new_nodes:
            node.metadata_props[PASS_KEY] = self.name
        removed_nodes = before.keys() - set(after)
        removed = tuple(line for node, line in before.items() if node in removed_nodes)
        at = node_label(new_nodes[0]) if new_nodes else self.name
        tensor = new_nodes[0].outputs[0].name or "" if new_nodes else ""
        yield Change(self.name, at, tensor, removed, tuple(map(node_text, new_nodes)))

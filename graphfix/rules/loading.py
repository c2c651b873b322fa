"""Models of which ONNX Runtime makes no session."""

import re
from collections.abc import Iterator

import onnx_ir as ir

from graphfix.editing.loadable import loadable_copy, without_inner_shapes
from graphfix.facts.view import View
from graphfix.graph.walks import all_nodes
from graphfix.providers.table import EVERYWHERE
from graphfix.rules.rule import Hazard, Rule
from graphfix.runtime.load_check import load_refusal, runtime_version

_NAMED = re.compile(r"[Nn]ode(?: with name)? ?[(']([^)']+)[)']")


class DoesNotLoad(Rule):
    """Flags a model that ONNX Runtime refuses to load, with its reason.

    The graph is loaded on the CPU without its large weights, and is not run. A model that uses a
    library of custom operators is loaded up to the first of them.

    Why:
        No provider runs such a model: ONNX Runtime checks a graph before it gives nodes to
        providers. It refuses sizes that contradict each other, an operator set that is too new,
        types that an operator does not take, and attributes that a kernel does not take.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        product (float[N, 3] x, float[4, 5] w) => (float[N, 5] y)
        {
            y = MatMul (x, w)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        product (float[N, 4] x, float[4, 5] w) => (float[N, 5] y)
        {
            y = MatMul (x, w)
        }
    """

    providers = EVERYWHERE

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag the model, at the node that ONNX Runtime names."""
        nodes = list(all_nodes(view.model))
        # What the pass loadable repairs is a finding of its own.
        model = loadable_copy(view.model) or view.model
        if nodes and (reason := load_refusal(model)):
            named = _named_node(nodes, reason)
            message = f"ONNX Runtime {runtime_version()} does not load the model: {reason}"
            at = "" if named is not None else "the model"
            with without_inner_shapes(model):
                fix = "fresh-shapes" if load_refusal(model) is None else None
            yield Hazard(named or nodes[0], message, "error", fix, at)


def _named_node(nodes: list[ir.Node], reason: str) -> ir.Node | None:
    """Return the node that a reason names."""
    names = {x for x in _NAMED.findall(reason) if x}
    return next((x for x in nodes if x.name in names), None)

"""loadable: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, ValueMatch
from graphfix.editing import loadable
from graphfix.graph.text import node_label, node_text


@dataclass(frozen=True)
class TakenName(Match):
    """A node whose name an earlier node of the graph has."""


@dataclass(frozen=True)
class Loadable(Pass):
    """Renames nodes that share a name, and takes sizes out of external data.

    Why:
        ONNX Runtime loads neither, whatever the provider. Run on 1.32.0: "This is an invalid
        model. Error: two nodes with same node name"; and for a Reshape whose shape lies in another
        file "Cannot parse data from external tensors", as for axes, pads, and the scales of a
        Resize. Tools that give all nodes one name write the former, those that move every
        initializer out of the file write the latter.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twice (float[N] x) => (float[N] y)
        {
            [same] h = Relu (x)
            [same] y = Neg (h)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twice (float[N] x) => (float[N] y)
        {
            [same] h = Relu (x)
            [same_1] y = Neg (h)
        }

    Left alone:
        Nodes without a name:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        nameless (float[N] x) => (float[N] y)
        {
            h = Relu (x)
            y = Neg (h)
        }

        A body that repeats a name of the graph around it:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        bodies (bool c, float[N] x) => (float[N] y)
        {
            [same] y = If (c) <
                then_branch = yes () => (float[N] p) { [same] p = Relu (x) },
                else_branch = no () => (float[N] q) { [same] q = Neg (x) }
            >
        }

    Safety:
        Exact: no node reads a name of a node, and a constant keeps its numbers. Verification
        repairs both in a copy of the original, since that cannot be run as it is. Bodies of an If
        or a Loop may repeat names of the graph around them. What else ONNX Runtime refuses, the
        rule does-not-load reports.
    """

    keeps_shapes = True

    def sites(self, model: ir.Model) -> Iterator[Match]:
        """Yield every node of a taken name, and every constant of sizes in another file."""
        yield from map(TakenName, loadable.nodes_of_taken_names(model))
        for node, value in loadable.external_sizes(model):
            yield ValueMatch(node, value)

    def repair(self, model: ir.Model) -> Iterator[Change]:
        """Rename the nodes and read the constants."""
        for site in list(self.sites(model)):
            at, before = node_label(site.node), f"[{site.node.name}] {node_text(site.node)}"
            if isinstance(site, ValueMatch):
                loadable.move_inside(site.value)
                tensor = site.value.name or ""
                yield Change(self.name, at, tensor, (f"{tensor} in external data",), (tensor,))
            else:
                loadable.rename_apart([site.node])
                after = f"[{site.node.name}] {node_text(site.node)}"
                yield Change(self.name, at, site.node.outputs[0].name or "", (before,), (after,))

    def message(self, site: Match) -> str:
        """Say what ONNX Runtime refuses."""
        if isinstance(site, ValueMatch):
            return f"{site.value.name!r} lies in external data, where ONNX Runtime reads no sizes"
        return f"two nodes are called {site.node.name!r}: ONNX Runtime does not load the model"

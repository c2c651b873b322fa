"""The only import of onnx_graphsurgeon: a user's surgeon script as a pass.

graphsurgeon stands at the edge: its round trip drops the metadata of nodes, graph, model and
values, ``model_version`` and quantization annotations (measured with 0.6.1). What it drops of the
nodes and of the model is rolled back here.
"""

import abc
from collections.abc import Iterator

import onnx
import onnx_graphsurgeon
import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.errors import GraphfixError
from graphfix.graph.text import node_label, node_text


class SurgeonPass(Pass):
    """A pass that edits an ``onnx_graphsurgeon.Graph``. Subclass it with ``name`` and ``edit``.

    Weights are read into memory on the way, as graphsurgeon does.
    """

    @abc.abstractmethod
    def edit(self, graph: onnx_graphsurgeon.Graph) -> None:
        """Edit ``graph`` in place; it is cleaned up and sorted afterwards."""

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield the first node that the script would change, found on a copy."""
        lines = set(_lines_by_node(self._run_script(model)).values())
        for node in model.graph:
            if node_text(node) not in lines:
                yield Match(node)
                return

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Run the script; a graph that it leaves unchanged is not touched."""
        edited = self._run_script(model)
        before, after = _lines_by_node(model), _lines_by_node(edited)
        old, new = set(before.values()), set(after.values())
        if old == new:
            return
        metadata = {line: node.metadata_props for node, line in before.items()}
        for node, line in after.items():
            node.metadata_props.update(metadata.get(line, {PASS_KEY: self.name}))
        edited.graph.metadata_props.update(model.graph.metadata_props)
        model.graph = edited.graph
        new_nodes = [node for node, line in after.items() if line not in old]
        at = node_label(new_nodes[0]) if new_nodes else self.name
        tensor = new_nodes[0].outputs[0].name or "" if new_nodes else ""
        removed = tuple(line for line in before.values() if line not in new)
        yield Change(self.name, at, tensor, removed, tuple(map(node_text, new_nodes)))

    def _run_script(self, model: ir.Model) -> ir.Model:
        with_weights = ir.external_data.load_to_model(model.clone())
        graph = onnx_graphsurgeon.import_onnx(ir.to_proto(with_weights))
        try:
            self.edit(graph)
            graph.cleanup().toposort()
            proto: onnx.ModelProto = onnx_graphsurgeon.export_onnx(graph)
            return ir.from_proto(proto)
        except Exception as error:  # whatever the user's script raises
            raise GraphfixError(
                f"{self.name}: the surgeon script failed: {type(error).__name__}: {error}"
            ) from error


def _lines_by_node(model: ir.Model) -> dict[ir.Node, str]:
    return {node: node_text(node) for node in model.graph}

"""opset-ceiling: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Skip
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import nodes_of
from graphfix.ops.schemas import schema_of

from ._older_meaning import OlderMeaning


@dataclass(frozen=True)
class ImportSite(Match):
    """A graph or function whose opset can be lowered; ``node`` is its first revised node.

    Attributes:
        graph: The main graph or the body of a local function.
        graph_name: Its name.
        key: How it spells the standard domain.
        opset: The opset that it imports.
        revised: How many of its nodes have a newer version than the lower opset has.
    """

    graph: ir.Graph
    graph_name: str
    key: str
    opset: int
    revised: int


@dataclass(frozen=True)
class OpsetCeiling(Pass):
    """Converts a newer opset to 21 where the operators differ in version only.

    Each node of the graph, of the graphs inside it and of its local functions is compared with the
    schemas of both versions: its attributes, their defaults, how many inputs and outputs it has,
    and their types. All nodes can go down, and the import is lowered, or none is.

    Why:
        ONNX Runtime's DirectML registers its kernels open-ended, and such a kernel matches only
        the very version that it was registered for (kernel_registry.cc, VerifyVersion). The newest
        are those of opset 21. So opset 22 silently moves Conv, ConvTranspose, the pools, LSTM, GRU,
        Sin, Cos and 28 others to the CPU, opset 23 Cast, Reshape, Transpose, Shape, Identity, Pad,
        Squeeze and Unsqueeze, with a copy between devices around each. For almost all of them the
        newer version only adds bfloat16, float8 or 4-bit types. Run on the real EP
        (onnxruntime-directml 1.24.4), six encoders at opset 23: BERT, Llama and wav2vec2 end in
        80070057 (see slice-start); SANM, SenseVoice and Whisper run with 49, 74 and 19 nodes on the
        CPU and 50, 77 and 21 copies between devices. At opset 21 all six run, and those three with
        4, 8 and 0 nodes on the CPU and at most one copy.

    Before:
        <
            ir_version: 10,
            opset_import: ["" : 23]
        >
        stem (float[B, 4, T] x) => (float[B, T, 8] y)
        <float[8, 4, 1] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1,
                             1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1}>
        {
            c = Conv <kernel_shape = [1]> (x, w)
            y = Transpose <perm = [0, 2, 1]> (c)
        }

    After:
        <
            ir_version: 10,
            opset_import: ["" : 21]
        >
        stem (float[B, 4, T] x) => (float[B, T, 8] y)
        <float[8, 4, 1] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1,
                             1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1}>
        {
            c = Conv <kernel_shape = [1]> (x, w)
            y = Transpose <perm = [0, 2, 1]> (c)
        }

    Left alone:
        An operator that means something else below, "windows that start in the padding are no
        longer counted":
        <
            ir_version: 8,
            opset_import: ["" : 23]
        >
        pool (float[B, 4, T] x) => (float[B, 4, U] y)
        {
            y = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1> (x)
        }

    Safety:
        Exact: no node, name or weight is touched, only the number of the opset; the IR version
        stays. A model is skipped, with a reason for each node that is in the way, if it has an
        operator that the older opset lacks (Attention, RMSNormalization, RotaryEmbedding of 23,
        Swish of 24: they would have to be written out), an attribute or an input that is newer, a
        type that is newer, or a meaning that changed under the same schema: pools with ceil_mode=1
        (22), casts of float8 (24), Mod of floats without fmod (28), BitShift (28). The revisions up
        to opset 28 were read one by one; a newer one is refused.

    Options:
        to: The opset to go down to, at least 21: below, revisions changed what operators mean.
    """

    keeps_shapes = True

    to: int = 21

    def __post_init__(self) -> None:
        if self.to < 21:
            raise ValueError(f"to={self.to} must be at least 21: older revisions changed meanings")

    def sites(self, model: ir.Model) -> Iterator[ImportSite | Skip]:
        """Yield each import that can be lowered, or each node that prevents it."""
        imports = list(self._newer_imports(model))
        if not imports:
            return
        meanings = OlderMeaning(View(model), self.to)
        blocked = [
            Skip(node, f"the model stays at opset {site.opset}: {reason}")
            for site in imports
            for node in _standard_nodes(site.graph)
            if (reason := meanings.why_changed(node, site.opset)) is not None
        ]
        yield from blocked or imports

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Lower every import, if no node is in the way."""
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            site.graph.opset_imports[site.key] = self.to
            before, after = (f'opset_import "" : {x}' for x in (site.opset, self.to))
            yield Change(self.name, site.graph_name, "", (before,), (after,))

    def message(self, site: Match) -> str:
        """Describe how many nodes have a version without a DirectML kernel."""
        assert isinstance(site, ImportSite)
        return (
            f"{site.graph_name} is of opset {site.opset}, in which {site.revised} of its nodes are "
            f"newer than opset {self.to}; it can be of opset {self.to}"
        )

    def _newer_imports(self, model: ir.Model) -> Iterator[ImportSite]:
        """Yield the imports of an opset above the ceiling."""
        graphs = [(model.graph.name or "the graph", model.graph)]
        graphs += [(f"function {f.name}", f.graph) for f in model.functions.values()]
        for graph_name, graph in graphs:
            for key in ("", "ai.onnx"):
                opset = graph.opset_imports.get(key, 0)
                if opset > self.to and (nodes := list(_standard_nodes(graph))):
                    revised = [x for x in nodes if self._is_revised(x, opset)]
                    yield ImportSite(
                        (revised or nodes)[0], graph, graph_name, key, opset, len(revised)
                    )

    def _is_revised(self, node: ir.Node, opset: int) -> bool:
        """Return whether an operator has a newer version than at the ceiling."""
        schema = schema_of(node.op_type, opset)
        return schema is None or schema.since_version > self.to


def _standard_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Return the nodes of the standard domain in a graph and its subgraphs."""
    return (node for node in nodes_of(graph) if is_op(node, node.op_type))

"""keep-output: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Pass, ValueMatch
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.text import node_label
from graphfix.providers.directml import fusing


@dataclass(frozen=True)
class KeepOutput(Pass):
    """Adds an Identity to an output that DirectML would fuse away with its activation.

    Why:
        Where an output of the model feeds nothing but a Relu, a Sigmoid or the like, DirectML makes
        one of that and of the operator before it, and the output is gone. Run on
        onnxruntime-directml 1.24.4: no session can be made ("Failed to find node output or a
        constant initializer producing output: hidden"), and Python falls back to the CPU. With an
        Identity the operator has two users, and nothing is fused into it: each of the pairs then
        runs on DirectML, static ones still as one graph.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        tapped (float[N, 4] x, float[4, 4] w) => (float[N, 4] hidden, float[N, 4] y)
        {
            hidden = MatMul (x, w)
            y = Relu (hidden)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        tapped (float[N, 4] x, float[4, 4] w) => (float[N, 4] hidden, float[N, 4] y)
        {
            inner = MatMul (x, w)
            y = Relu (inner)
            hidden = Identity (inner)
        }

    Left alone:
        A reader that DirectML fuses with nothing:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        tapped (float[N, 4] x, float[4, 4] w) => (float[N, 4] hidden, float[N, 4] y)
        {
            hidden = MatMul (x, w)
            y = Neg (hidden)
        }

    Safety:
        Exact. Outputs of the branches of an If are not lost, and skipped; so is what runs on the
        CPU for want of a kernel, which is why opset-ceiling comes before.
    """

    sentence = "an activation is fused into it, and its output is lost: DirectML makes no session"

    def sites(self, model: ir.Model) -> Iterator[ValueMatch]:
        """Yield every output that DirectML loses."""
        for lost in fusing.find_lost_outputs(View(model)):
            yield ValueMatch(lost.home, lost.value)

    def repair(self, model: ir.Model) -> Iterator[Change]:
        """Put an Identity before each, at the end of the graph."""
        builder = Builder(self.name, View(model))
        for site in list(self.sites(model)):
            at, tensor = node_label(site.node), site.value.name or ""
            builder.start_site(site.node)
            builder.wrap_output(site.value, builder.Identity)
            yield Change(self.name, at, tensor, (), builder.finish_site())

"""gemm-bias: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Change, Match, Pass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.text import node_label, node_text
from graphfix.providers.directml import fusing


@dataclass(frozen=True)
class BareSite(Match):
    """A Gemm without a C.

    Attributes:
        activation: The activation behind it.
    """

    activation: ir.Node


@dataclass(frozen=True)
class GemmBias(Pass):
    """Adds a zero bias to a Gemm that has none and is followed by an activation.

    Why:
        DirectML makes one operator of a Gemm and of the Relu, Sigmoid, Tanh or the like after it,
        and that operator must have a C. Run on onnxruntime-directml 1.24.4: no session can be made
        ("DmlFusedGemm ... has input size 2 not in range [min=3, max=3]"), at every opset. With a
        zero for a C it runs. torch's dynamo exporter writes such a Gemm for a Linear without a
        bias, or with one that it adds later: OPT is one.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        linear (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        {
            h = Gemm <transB = 1> (x, w)
            y = Relu (h)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        linear (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        <float zero = {-0.0}>
        {
            h = Gemm <transB = 1> (x, w, zero)
            y = Relu (h)
        }

    Left alone:
        A Gemm that DirectML does not fuse with what follows:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        dense (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        {
            h = Gemm (x, w)
            y = Neg (h)
        }

    Safety:
        Exact, to the sign of a zero: what is added is -0.0. Gemms in the branches of an If, and
        those that run on the CPU for want of a kernel, are skipped.
    """

    keeps_shapes = True  # no tensor that was there gets another one

    def sites(self, model: ir.Model) -> Iterator[BareSite]:
        """Yield every Gemm without a bias that DirectML fuses with an activation."""
        for gemm, activation in fusing.gemms_without_bias(View(model)):
            yield BareSite(gemm, activation)

    def message(self, site: Match) -> str:
        """Describe what goes wrong."""
        activation = site.activation.op_type if isinstance(site, BareSite) else "activation"
        return f"the Gemm has no C, and a {activation} is fused into it: DirectML makes no session"

    def repair(self, model: ir.Model) -> Iterator[Change]:
        """Add a zero bias to each Gemm."""
        view = View(model)
        builder = Builder(self.name, view)
        for site in list(self.sites(model)):
            node = site.node
            dtype = view.shapes.dtype(node.inputs[0])
            if dtype is None:
                raise RuntimeError(f"{node.name} runs on DirectML, and its type is not known")
            before = node_text(node)
            builder.start_site(node)
            builder.set_input(2, builder.constant(np.array(-0.0, dtype.numpy())))
            added = (*builder.finish_site(), node_text(node))
            yield Change(self.name, node_label(node), node.outputs[0].name or "", (before,), added)

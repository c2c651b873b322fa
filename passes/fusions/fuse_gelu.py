"""fuse-gelu: the manual is the docstring of the class."""

import math
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op

from ..common.fusible import MICROSOFT
from ..common.gelu import ABOUT, Gelu, bias_of, gelu_of

# (1 + tanh(z)) / 2 is sigmoid(2 * z), and 2 * z is x * (_LINE + _CUBE * x ** 2).
_LINE = 2 * math.sqrt(2 / math.pi)
_CUBE = 0.044715 * _LINE
# That factor by this is at most 1 as far as the Sigmoid is neither 0 nor 1, |x| < 14.
_SHARE = 16.0


@dataclass(frozen=True)
class GeluSite(Match):
    """Nodes that compute a Gelu.

    Attributes:
        gelu: The kind of Gelu and its input.
        bias: The tensor and the bias of the sum before it, if the sum is fused as well.
    """

    gelu: Gelu
    bias: tuple[ir.Value, ir.Value] | None


@dataclass(frozen=True)
class FuseGelu(NodePass[GeluSite]):
    """Fuses Gelu and SiLU, with the bias before them, into one operator of com.microsoft.

    An Erf, Tanh or Sigmoid and the products and sums around it are read as a polynomial, so that
    neither their order nor the place of a constant matters: ``x / sqrt(2)`` or a product with
    0.7071, 0.5 before, between or after, ``Pow(x, 3)`` or ``x * x * x``, a difference for a sum.
    An Erf makes Gelu, or BiasGelu with the bias of the sum before it; a Sigmoid of ``a * x``, or
    the Tanh that says the same, makes QuickGelu, which is SiLU where ``a`` is 1. ONNX's own Gelu,
    of opset 20, becomes com.microsoft's.

    Why:
        torch writes a Gelu as five nodes, each a kernel of its own on DirectML, where ONNX
        Runtime's optimizer finds only some orders of them: it leaves a third of the Erfs in exports
        of speech and language models. ONNX's Gelu-20 has no DirectML kernel at all. All of these
        operators are on CPU, CUDA and DirectML. Run on onnxruntime-directml 1.24.4: Gelu, BiasGelu
        and QuickGelu are within 1e-6 of the CPU, at ranks 1 to 6, and with numbers of 1e30.
        FastGelu is not what it is on the CPU: DirectML computes the form with Erf, 4.7e-4 away
        from that with Tanh, and ONNX Runtime makes it of that form when it opens the model: a T5
        as exported is 3e-4 off there for that alone. So the form with Tanh is written with a
        HardSigmoid, which is a + b * x ** 2 cut where the Gelu is x or 0, and a QuickGelu: the
        same in five kernels (run, within 1.5e-6 in ALBERT and SigLIP).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        mlp (float[B, T, 8] x, float[8, 8] w, float[8] b) => (float[B, T, 8] y)
        <float root = {1.4142135}, float one = {1.0}, float half = {0.5}>
        {
            product = MatMul (x, w)
            h = Add (b, product)
            part = Div (h, root)
            erf = Erf (part)
            more = Add (erf, one)
            twice = Mul (h, more)
            y = Mul (twice, half)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        mlp (float[B, T, 8] x, float[8, 8] w, float[8] b) => (float[B, T, 8] y)
        {
            product = MatMul (x, w)
            y = com.microsoft.BiasGelu (product, b)
        }

    Left alone:
        A number that is nearly the right one, "its constants are near those of a Gelu and not the
        same":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        act (float[B, T, 8] h) => (float[B, T, 8] y)
        <float root = {1.4142135}, float one = {1.0}, float half = {0.505}>
        {
            p = Div (h, root)
            e = Erf (p)
            m = Add (e, one)
            t = Mul (h, m)
            y = Mul (t, half)
        }

    Safety:
        Exact, except rounding: constants may be off by as much as their type makes them (1e-5 in
        float, 0.002 in float16). Refused, with the reason: a part that is used elsewhere or is an
        output, which would have to stay; constants that are only nearly those of a Gelu; types
        other than float and float16, and those of a local function, which are not known. A bias
        goes along if it has one dim, that of the last axis, and its sum is used for nothing else.
        A constant with more dims than the tensor, which would give it another shape, is none.

    Options:
        approximate: Whether the form with Tanh becomes FastGelu: one kernel for eight, on the CPU
            the same, on DirectML up to 4.7e-4 away. Without it, the form with Tanh becomes one
            with QuickGelu.
    """

    anchors = ("Mul", "Add", "Div", "Sub", "Gelu")

    approximate: bool = False

    def match(self, node: ir.Node, view: View) -> GeluSite | Skip | None:
        """Return the site if the node is the last one of a Gelu or SiLU."""
        gelu = gelu_of(node, view)
        if not isinstance(gelu, Gelu):
            return gelu
        is_tanh_form = gelu.kind == "FastGelu" and not self.approximate
        if is_tanh_form and not any(is_op(x, "Tanh", "Gelu") for x in (*gelu.nodes, node)):
            return None
        bias = None if is_tanh_form or gelu.kind == "QuickGelu" else bias_of(gelu, view)
        return GeluSite(node, gelu, bias)

    def message(self, site: Match) -> str:
        """Describe the Gelu at a site."""
        kind = site.gelu.kind if isinstance(site, GeluSite) else "Gelu"
        if kind == "FastGelu" and not self.approximate:
            return "a Gelu with Tanh, which ONNX Runtime fuses and DirectML then computes with Erf"
        return f"{ABOUT[kind]} in pieces, each a kernel of its own"

    def rewrite(self, match: GeluSite, op: Builder) -> ir.Value:
        """Build one operator; for the Tanh form ``x * Sigmoid(a * x + b * x ** 3)``.

        With f = min(1, (a + b * x ** 2) / 16) that is QuickGelu(x * f, alpha=16) / f.
        """
        gelu, inputs = match.gelu, match.bias or (match.gelu.data,)
        if gelu.kind == "FastGelu" and not self.approximate:
            x = gelu.data
            factor = op.HardSigmoid(op.Mul(x, x), alpha=_CUBE / _SHARE, beta=_LINE / _SHARE)
            curved = op.make(f"{MICROSOFT}.QuickGelu", op.Mul(x, factor), alpha=_SHARE)
            return op.Div(curved, factor)
        if gelu.kind == "QuickGelu":
            return op.make(f"{MICROSOFT}.QuickGelu", *inputs, alpha=gelu.alpha)
        with_bias = gelu.kind == "Gelu" and match.bias is not None
        return op.make(f"{MICROSOFT}.{'BiasGelu' if with_bias else gelu.kind}", *inputs)

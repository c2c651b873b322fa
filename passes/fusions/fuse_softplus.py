"""fuse-softplus: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import NodePass, ValueMatch
from graphfix.editing.builder import Builder
from graphfix.facts.view import View

from ..common.fusible import FLOATS
from ..common.pattern import Bindings, own, shared
from ..common.polynomial import PolynomialReader, number_of

# log(1 + exp(x))
_LOG_FORM = shared.Log(own.Add(own.Exp("x", name="exponential"), "one", name="sum"))
# max(0, x) + softplus(-|x|), once the logarithm in it is fused
_STABLE_FORM = shared.Add(
    own.Relu("x") | own.Max("x", "zero"), own.Softplus(own.Neg(own.Abs("signed")))
)


@dataclass(frozen=True)
class FuseSoftplus(NodePass[ValueMatch]):
    """Fuses the logarithm of one plus an exponential into one Softplus.

    The Swoosh of a Zipformer has one in each activation: as torch's ``logaddexp`` of 0, as
    ``log(1 + exp(x))``, or as icefall exports it, which does not overflow:
    ``max(0, x) + log(1 + exp(-|0 - x|))``.

    Why:
        One kernel on DirectML for three, or for eight: three feed-forwards and convolutions of a
        Zipformer have 96 kernels on the device for 108, and for 138 as icefall exports them. Run
        on onnxruntime-directml 1.24.4: its Softplus is within 3.8e-6 of the true value from -1e4 to
        1e4, where the logarithm in pieces is infinite from 88.8 on; these models agree (6.6e-7).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        swoosh (float[B, T, 8] x) => (float[B, T, 8] y)
        <float one = {1}, float zero = {0}>
        {
            mirrored = Sub (zero, x)
            size = Abs (mirrored)
            below = Neg (size)
            small = Exp (below)
            more = Add (small, one)
            rest = Log (more)
            top = Max (zero, x)
            y = Add (top, rest)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        swoosh (float[B, T, 8] x) => (float[B, T, 8] y)
        {
            y = Softplus (x)
        }

    Left alone:
        The logarithm of another sum:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        log (float[B, T, 8] x) => (float[B, T, 8] y)
        <float two = {2}>
        {
            e = Exp (x)
            m = Add (e, two)
            y = Log (m)
        }

    Safety:
        Exact, except rounding, and where the exponential overflows: there is a number then, and
        no infinity. Where the large values of verification do that, as in the first layer of a
        model, the pieces stay. So they do where something else reads a part, or it is an output.
    """

    sentence = "a Softplus in pieces, each a kernel of its own"
    anchors = ("Log", "Add")

    def match(self, node: ir.Node, view: View) -> ValueMatch | None:
        """Return the site if the node is the last one of a Softplus."""
        forms = ((_LOG_FORM, _adds_one), (_STABLE_FORM, _mirrors_positive_part))
        for pattern, is_softplus in forms:
            for parts in pattern.matches(node):
                data = parts["x"]
                if view.shapes.dtype(data) in FLOATS and is_softplus(parts, view):
                    return ValueMatch(node, data)
        return None

    def rewrite(self, match: ValueMatch, op: Builder) -> ir.Value:
        """Build one Softplus."""
        return op.Softplus(match.value)


def _adds_one(parts: Bindings, view: View) -> bool:
    """Return whether 1 is added to the exponential, in however many sums."""
    polynomial = PolynomialReader(view, parts["exponential"]).read(parts["sum"])
    return polynomial == {(1,): 1.0, (0,): 1.0}


def _mirrors_positive_part(parts: Bindings, view: View) -> bool:
    """Return whether ``max(0, x)`` is added to a Softplus of ``-|x|`` or ``-|-x|``."""
    data = parts["x"]
    if "zero" in parts and number_of(parts["zero"], view.shapes.rank(data)) != 0:
        return False
    return PolynomialReader(view, data).read(parts["signed"]) in ({(1,): 1}, {(1,): -1})

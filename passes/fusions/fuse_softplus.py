"""fuse-softplus: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import NodePass, ValueMatch
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op

from ..common.fold_view import exclusive_producer
from ..common.fusible import FLOATS
from ..common.polynomial import PolynomialReader, number_of

_ONE_MORE = {(1,): 1.0, (0,): 1.0}


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

    Safety:
        Exact, except rounding, and where the exponential overflows: there is a number then, and
        no infinity. Where the large values of verification do that, as in the first layer of a
        model, the pieces stay. So they do where something else reads a part, or it is an output.
    """

    sentence = "a Softplus in pieces, each a kernel of its own"
    anchors = ("Log", "Add")

    def match(self, node: ir.Node, view: View) -> ValueMatch | None:
        """Return the site if the node is the last one of a Softplus."""
        read_form = _input_of_log_form if is_op(node, "Log") else _input_of_stable_form
        data = read_form(node, view)
        is_float = data is not None and view.shapes.dtype(data) in FLOATS
        return ValueMatch(node, data) if data is not None and is_float else None

    def rewrite(self, match: ValueMatch, op: Builder) -> ir.Value:
        """Build one Softplus."""
        return op.Softplus(match.value)


def _input_of_log_form(log: ir.Node, view: View) -> ir.Value | None:
    """Return the x of ``log(1 + exp(x))``, or None."""
    total = exclusive_producer(log.inputs[0], "Add")
    for value in total.inputs if total is not None else ():
        exponential = exclusive_producer(value, "Exp")
        if value is not None and exponential is not None:
            polynomial = PolynomialReader(view, value).read(log.inputs[0])
            return exponential.inputs[0] if polynomial == _ONE_MORE else None
    return None


def _input_of_stable_form(node: ir.Node, view: View) -> ir.Value | None:
    """Return the x of ``max(0, x) + softplus(-|x|)``, once its logarithm is fused."""
    for larger_term, softplus_term in (node.inputs, reversed(node.inputs)):
        larger = exclusive_producer(larger_term, "Max", "Relu")
        softplus = exclusive_producer(softplus_term, "Softplus")
        negative = None if softplus is None else exclusive_producer(softplus.inputs[0], "Neg")
        magnitude = None if negative is None else exclusive_producer(negative.inputs[0], "Abs")
        if larger is None or magnitude is None:
            continue
        rank = view.shapes.rank(node.outputs[0])
        data = _positive_part_of(larger, rank)
        if data is None or view.shapes.rank(data) != rank:
            return None
        polynomial = PolynomialReader(view, data).read(magnitude.inputs[0])
        return data if polynomial in ({(1,): 1}, {(1,): -1}) else None
    return None


def _positive_part_of(node: ir.Node, rank: int | None) -> ir.Value | None:
    """Return the x of ``Relu(x)`` or ``Max(0, x)``, or None."""
    varying_inputs = [x for x in node.inputs if number_of(x, rank) != 0]
    has_zero = len(node.inputs) - len(varying_inputs) == is_op(node, "Max")
    return varying_inputs[0] if len(varying_inputs) == 1 and has_zero else None

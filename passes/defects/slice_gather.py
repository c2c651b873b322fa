"""slice-gather: the manual is the docstring of the class."""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import is_op, use_count

from ..common.cuts import cuts_of

# What a Gather is given stands in the file: 32 kB are not much beside any model.
_MAX_INDICES = 4096
_VIEWS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
# Each but Or and Xor was run there. Others that go by elements are loaded: Cast, Equal, Less and
# IsNaN, which make another type, Where, Gelu and Mish.
_ELEMENTWISE = frozenset(
    {"Abs", "Add", "And", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor"}
    | {"HardSigmoid", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or"}
    | {"PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"}
    | {"Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu", "Xor"}
)


@dataclass(frozen=True)
class PartSite(Match):
    """A Slice that takes adjacent elements.

    Attributes:
        data: The tensor that is sliced.
        axis: The axis.
        start: The first entry that is taken.
        end: The entry behind the last one.
    """

    data: ir.Value
    axis: int
    start: int
    end: int


@dataclass(frozen=True)
class SliceGather(NodePass[PartSite]):
    """Replaces a Slice of adjacent rows that DirectML would overwrite with a Gather.

    Looked at are Slices of fixed sizes along the first axis that is not 1, with a step of 1.

    Why:
        Run on onnxruntime-directml 1.24.4: where all sizes are fixed, so that DirectML compiles
        the graph, what is sliced is computed in it and read by nothing else, and the part is read
        by one operator only, which goes by elements and makes as many of the same type, no session
        can be made: 80070057 out of DmlGraphFusionHelper.cpp. So it is of float32, float16, int64
        and bool, at any start and length, with Reshapes between, behind Add, Mul, MatMul, Conv,
        Softmax and Transpose, and before 38 operators (Relu, Tanh, Erf, Clip, Pow, Add and so on).
        It is loaded with rows of two batches, a second reader of either tensor, another axis or
        step, a size that is open, and before MatMul, Softmax, LayerNormalization, Transpose,
        Concat, Where and Cast. That the part is computed on in place is suspected. A Gather of the
        same rows is loaded, and is one kernel, as the Slice is.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        trimmed (float[1, 6, 2] x) => (float[1, 4, 2] y)
        <int64[1] start = {0}, int64[1] end = {4}, int64[1] axis = {1}>
        {
            twice = Add (x, x)
            part = Slice (twice, start, end, axis)
            y = Tanh (part)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        trimmed (float[1, 6, 2] x) => (float[1, 4, 2] y)
        <int64[4] rows = {0, 1, 2, 3}>
        {
            twice = Add (x, x)
            part = Gather <axis = 1> (twice, rows)
            y = Tanh (part)
        }

    Safety:
        Exact: the same elements. Nothing is done with more than 4096 of them along the axis, since
        the file then holds as many numbers; that is said.
    """

    anchors = ("Slice",)

    def match(self, node: ir.Node, view: View) -> PartSite | Skip | None:
        """Return the site if a Slice takes part of a buffer between two operators."""
        in_dims = view.shapes.dims(node.inputs[0])
        out_dims = view.shapes.dims(node.outputs[0])
        if node.graph is not view.model.graph or not in_dims or not out_dims:
            return None
        cut_axes = [i for i, (a, b) in enumerate(zip(in_dims, out_dims, strict=True)) if a != b]
        if len(cut_axes) != 1 or any(dim != 1 for dim in in_dims[: cut_axes[0]]):
            return None
        sizes = [x for x in (*in_dims, *out_dims) if isinstance(x, int)]
        if len(sizes) < len(in_dims) * 2 or 0 in sizes:
            return None
        cuts = cuts_of(
            node, len(in_dims), lambda x: ints_of(x) or static_dims(view.shapes.known_elements(x))
        )
        start, end, step = (cuts or {}).get(cut_axes[0], (0, 0, 0))
        if (
            step != 1
            or not _is_computed_for_one_reader(node.inputs[0])
            or not _has_elementwise_reader(node, view)
        ):
            return None
        start, end, _ = slice(start, end).indices(sizes[cut_axes[0]])
        if end - start > _MAX_INDICES:
            return Skip(
                node,
                f"DirectML makes no session of it; a Gather would need {end - start:,} indices: "
                "let something else read the Slice as well, as an output of the model does",
            )
        data = node.inputs[0]
        return None if data is None else PartSite(node, data, cut_axes[0], start, end)

    def message(self, site: Match) -> str:
        """Describe what DirectML does with the Slice."""
        return (
            "a part of a tensor that nothing else reads is computed on element by element: "
            "DirectML makes no session of that"
        )

    def rewrite(self, match: PartSite, op: Builder) -> ir.Value:
        """Build a Gather of the same rows."""
        rows = np.arange(match.start, match.end, dtype=np.int64)
        return op.Gather(match.data, rows, axis=match.axis)


def _is_computed_for_one_reader(value: ir.Value | None) -> bool:
    """Return whether a node computes ``value`` for this reader alone, except views between."""
    while value is not None and use_count(value) == 1 and not value.is_graph_output():
        node = value.producer()
        if node is None or is_op(node, "Constant"):
            return False
        if not is_op(node, *_VIEWS):
            return True
        value = node.inputs[0]
    return False


def _has_elementwise_reader(node: ir.Node, view: View) -> bool:
    """Return whether the only reader, behind views, is elementwise and keeps the size."""
    value = node.outputs[0]
    size = _count_elements(value, view)
    while len(uses := tuple(value.uses())) == 1 and not value.is_graph_output():
        user = uses[0].node
        if user.graph is not node.graph:
            return False
        if is_op(user, *_ELEMENTWISE):
            return size is not None and _count_elements(user.outputs[0], view) == size
        if not is_op(user, *_VIEWS) or uses[0].idx != 0:
            return False
        value = user.outputs[0]
    return False


def _count_elements(value: ir.Value, view: View) -> int | None:
    """Return the number of elements, or None if a dim is unknown."""
    sizes = static_dims(view.shapes.dims(value))
    return None if sizes is None else math.prod(sizes)

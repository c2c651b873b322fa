"""log-buckets: the manual is the docstring of the class."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reachable_from
from graphfix.ops.axes import axis_of, permutation_of

from ..common.fusible import only_user
from ..common.reshape_targets import with_axes

Ints = npt.NDArray[np.int64]

# Every distance up to this is tried, and powers of two beyond.
_MAX_TRIED = 1 << 17
_LARGE_DISTANCES = 2 ** np.arange(18, 41, dtype=np.int64)
_DISTANCES = np.concatenate(
    [-_LARGE_DISTANCES[::-1], np.arange(-_MAX_TRIED, _MAX_TRIED + 1), _LARGE_DISTANCES]
)
_MIDDLE = len(_DISTANCES) // 2
_MAX_ROWS = 4096
_MAX_TABLE_SIZE = 1 << 20
_MAX_NODES = 48
# Element by element, each result the same on every runtime (but for the Log); and what makes a
# constant as large as its neighbour, in branches.
_STEPS = (
    (ops.ELEMENTWISE & ops.CORRECTLY_ROUNDED)
    | ops.named("Cast Where Log")
    | ops.named("Shape ConstantOfShape Expand Unsqueeze")
)


@dataclass(frozen=True)
class BucketSite(Match):
    """Rows of a table, or their numbers, chosen by a function of distances.

    Attributes:
        distances: The distances, of int64.
        least: The least distance that has a row of its own; those below have the same.
        rows: The row of each distance from there on; those beyond have the last. Or its number.
        leading_ones: How many axes of 1 come before those of the distances.
        features_first: Whether the features come first.
    """

    distances: ir.Value
    least: int
    rows: Array
    leading_ones: int
    features_first: bool = False


@dataclass(frozen=True)
class LogBuckets(NodePass[BucketSite]):
    """Looks up a bias by distance in a table of all distances, instead of computing buckets by Log.

    T5, MPNet, WavLM and DeBERTa sort the distances of tokens into buckets: near ones have one each,
    far ones share one by their logarithm, and all beyond a longest distance are in the last. What a
    distance comes to is computed here, for each of them, and written into a table: its row, or the
    number of the bucket where that is clipped and used otherwise.

    Why:
        Ten to twenty kernels, each as large as the scores of a head, become three or four: of a T5
        with a cache 74 of 198 are left on the device where 86 were. And nothing hangs on rounding:
        at a distance of 16, 32 or 64 the logarithm is a whole number of buckets, which the Cast to
        integers would cut to the bucket before if it came out a little less. DirectML's was seen to
        be 9.5e-7 off (onnxruntime-directml 1.24.4, a software device), and no bucket changed there.
        With the table T5's encoder, MPNet, WavLM and DeBERTa 2 agree with the CPU there (1.7e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        bias (int64[S, T] n) => (float[2, S, T] y)
        <float[4, 2] table = {0, 1, 2, 3, 4, 5, 6, 7}, int64 exact = {2}, float two = {2.0},
         float far = {1.3862944}, int64 last = {3}, int64 zero = {0}>
        {
            distance = Max (n, zero)
            near = Less (distance, exact)
            d = Cast <to = 1> (distance)
            share = Div (d, two)
            log = Log (share)
            part = Div (log, far)
            more = Mul (part, two)
            whole = Cast <to = 7> (more)
            late = Add (whole, exact)
            capped = Min (late, last)
            bucket = Where (near, distance, capped)
            row = Gather (table, bucket)
            y = Transpose <perm = [2, 0, 1]> (row)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        bias (int64[S, T] n) => (float[2, S, T] y)
        <float[2, 5] rows = {0, 2, 4, 4, 6, 1, 3, 5, 5, 7}, int64 zero = {0}, int64 four = {4}>
        {
            above = Max (n, zero)
            below = Min (above, four)
            y = Gather <axis = 1> (rows, below)
        }

    Safety:
        Exact: each distance of up to 131,072 is tried, and powers of two beyond; all behind the
        longest distance have to give the same. Left alone: a function without a Log or of several
        tensors, a table that is computed, and one that would get more than 4,096 rows.
    """

    sentence = "distances are sorted into buckets by a Log, where a table of them would do"
    anchors = ("Gather", "Clip")

    def match(self, node: ir.Node, view: View) -> BucketSite | None:
        """Return the site at a Clip, or a Gather, of a function of one tensor with a Log."""
        site = self._match_indices(node, view)
        if site is None or not is_op(node, "Gather"):
            return site
        table = const_of(node.inputs[0], _MAX_TABLE_SIZE)
        if table is None or table.ndim != 2:
            return None
        if axis_of(node, table.ndim, view.opset_of_node(node)) != 0:
            return None
        if not -len(table) <= min(site.rows) <= max(site.rows) < len(table):
            return None
        site = replace(site, rows=table[site.rows])
        user = only_user(node)
        if is_op(user, "Transpose") and permutation_of(user, 3) == (2, 0, 1):
            return site if site.leading_ones else replace(site, node=user, features_first=True)
        return site

    def _match_indices(self, node: ir.Node, view: View) -> BucketSite | None:
        """Return the site of the indices alone, with the number of a row for each distance."""
        buckets = node.inputs[1] if is_op(node, "Gather") else node.outputs[0]
        if buckets is None or not any(is_op(x, "Log") for x in _nodes_before(buckets)):
            return None
        source = _find_distances(buckets, view)
        if source is None:
            return None
        distances, leading_ones = source
        numbers = _evaluate(distances, buckets, view.opset_of_node(node))
        if numbers is None:
            return None
        first, last = _varying_range(numbers)
        if last - first >= _MAX_ROWS or max(_MIDDLE - first, last - _MIDDLE) > _MAX_TRIED:
            return None
        return BucketSite(node, distances, first - _MIDDLE, numbers[first : last + 1], leading_ones)

    def rewrite(self, match: BucketSite, op: Builder) -> ir.Value:
        """Build ``Gather(rows, Min(Max(distances, least), most) - least)``."""
        least, count = match.least, len(match.rows)
        index = op.Max(match.distances, np.array(least, np.int64))
        index = op.Min(index, np.array(least + count - 1, np.int64))
        if least:
            index = op.Add(index, np.array(-least, np.int64))
        index = with_axes("Unsqueeze", index, range(match.leading_ones), op)
        if match.features_first:
            return op.Gather(np.ascontiguousarray(match.rows.T), index, axis=1)
        return op.Gather(match.rows, index, axis=0)


def _nodes_before(value: ir.Value, start: ir.Value | None = None) -> list[ir.Node]:
    """Return the nodes that compute a value from ``start``, nearest first; a few of them."""

    def makers(node: ir.Node) -> list[ir.Node | None]:
        return [x.producer() for x in _computed_inputs(node) if x is not start]

    return list(itertools.islice(reachable_from([value.producer()], makers), _MAX_NODES))


def _computed_inputs(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a node that are no constants."""
    return [x for x in node.inputs if x is not None and const_of(x) is None]


def _find_distances(result: ir.Value, view: View) -> tuple[ir.Value, int] | None:
    """Return the farthest int64 tensor that alone decides each element of a value, or None.

    With how many axes of 1 the value has before those of that tensor.
    """
    dims = view.shapes.dims(result)
    inputs = dict.fromkeys(x for node in _nodes_before(result) for x in _computed_inputs(node))
    for source in reversed(inputs):
        own_dims = view.shapes.dims(source)
        if dims is None or own_dims is None or view.shapes.dtype(source) != ir.DataType.INT64:
            continue
        leading_ones = len(dims) - len(own_dims)
        if leading_ones < 0 or set(dims[:leading_ones]) - {1}:
            continue
        if same_dims(dims[leading_ones:], own_dims) and _decides_alone(source, result):
            return source, leading_ones
    return None


def _decides_alone(source: ir.Value, result: ir.Value) -> bool:
    """Return whether a value is computed of another alone, element by element, in one graph."""
    nodes = set(_nodes_before(result, source))
    if not all(x in _STEPS for x in nodes) or len({x.graph for x in nodes}) != 1:
        return False
    inputs = {x for node in nodes for x in _computed_inputs(node)}
    return {x for x in inputs if x.producer() not in nodes} == {source}


def _evaluate(source: ir.Value, result: ir.Value, opset: int) -> Ints | None:
    """Return what ``result`` is at each of :data:`_DISTANCES`, or None if it is not computed."""
    from onnx.reference import ReferenceEvaluator  # few models need it

    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(_graph_between(source, result), opset_imports=opsets)
    try:
        with np.errstate(all="ignore"):
            (buckets,) = ReferenceEvaluator(model).run(None, {source.name or "": _DISTANCES})
    except Exception:  # whatever it has against one of these operators
        return None
    numbers: Ints = np.asarray(buckets).reshape(-1)
    return numbers if numbers.dtype == np.int64 and numbers.shape == _DISTANCES.shape else None


def _graph_between(source: ir.Value, result: ir.Value) -> onnx.GraphProto:
    """Return a graph of the nodes that compute an int64 tensor from another."""
    nodes, last = set(_nodes_before(result, source)), result.producer()
    inputs = {x for node in nodes for x in node.inputs if x is not None}
    constants = {x.name or "": y for x in inputs if (y := const_of(x)) is not None}
    all_nodes = last.graph if last is not None else None
    graph_input, graph_output = (
        onnx.helper.make_tensor_value_info(x.name or "", onnx.TensorProto.INT64, None)
        for x in (source, result)
    )
    return onnx.helper.make_graph(
        [ir.to_proto(x) for x in all_nodes or () if x in nodes],
        "buckets",
        [graph_input],
        [graph_output],
        [onnx.numpy_helper.from_array(x, name) for name, x in constants.items()],
    )


def _varying_range(numbers: Ints) -> tuple[int, int]:
    """Return the places of the first and the last number unlike all before, or all behind, it."""
    before = int(np.argmax(numbers != numbers[0])) - 1
    behind = len(numbers) - int(np.argmax(numbers[::-1] != numbers[-1]))
    return max(before, 0), min(behind, len(numbers) - 1)

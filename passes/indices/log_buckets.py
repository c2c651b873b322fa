"""log-buckets: the manual is the docstring of the class."""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import attr_int, attr_ints, is_op
from graphfix.graph.walks import reachable_from

from ..common.fusible import only_user
from ..common.reshape_targets import with_axes

Ints = npt.NDArray[np.int64]

# Every distance so far is tried, and powers of two beyond.
_TRIED = 1 << 17
_BEYOND = 2 ** np.arange(18, 41, dtype=np.int64)
_LONGEST = 4096
_TABLE = 1 << 20
_NODES = 48
# What works element by element; and what makes a constant as large as its neighbour, in branches.
_STEPS = frozenset(
    {"Abs", "Neg", "Sign", "Min", "Max", "Clip", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
    | {"Equal", "Not", "And", "Or", "Where", "Cast", "Add", "Sub", "Mul", "Div", "Log", "Ceil"}
    | {"Floor", "Identity", "Unsqueeze", "Shape", "ConstantOfShape", "Expand"}
)


@dataclass(frozen=True)
class BucketSite(Match):
    """Rows of a table, or their numbers, chosen by a function of distances.

    Attributes:
        distances: The distances, of int64.
        least: The least distance that has a row of its own; those below have the same.
        rows: The row of each distance from there on; those beyond have the last. Or its number.
        ones: How many axes of 1 come before those of the distances.
        turned: Whether the features come first.
    """

    distances: ir.Value
    least: int
    rows: Array
    ones: int
    turned: bool = False


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
        """A function of one tensor that has a Log in it: a Clip, or the indices of a Gather."""
        looks_up = is_op(node, "Gather")
        buckets = node.inputs[1] if looks_up else node.outputs[0]
        if buckets is None or not any(is_op(x, "Log") for x in _above(buckets)):
            return None
        table = const_of(node.inputs[0], _TABLE) if looks_up else None
        if looks_up and (table is None or table.ndim != 2 or attr_int(node, "axis", 0) != 0):
            return None
        found = _distances(buckets, view)
        values = None if found is None else _function(found[0], buckets, view.opset_of_node(node))
        if found is None or values is None:
            return None
        first, last = _bounds(values)
        if last - first >= _LONGEST or max(_MIDDLE - first, last - _MIDDLE) > _TRIED:
            return None
        rows, least = values[first : last + 1], first - _MIDDLE
        if table is None:
            return BucketSite(node, found[0], least, rows, found[1])
        if not -len(table) <= min(rows) <= max(rows) < len(table):
            return None
        user = only_user(node)
        if is_op(user, "Transpose") and attr_ints(user, "perm") == (2, 0, 1) and not found[1]:
            return BucketSite(user, found[0], least, table[rows], 0, turned=True)
        return BucketSite(node, found[0], least, table[rows], found[1])

    def rewrite(self, match: BucketSite, op: Builder) -> ir.Value:
        """``Gather(rows, Min(Max(distances, least), most) - least)``."""
        least, count = match.least, len(match.rows)
        index = op.Max(match.distances, np.array(least, np.int64))
        index = op.Min(index, np.array(least + count - 1, np.int64))
        if least:
            index = op.Add(index, np.array(-least, np.int64))
        index = with_axes("Unsqueeze", index, range(match.ones), op)
        if match.turned:
            return op.Gather(np.ascontiguousarray(match.rows.T), index, axis=1)
        return op.Gather(match.rows, index, axis=0)


_DISTANCES = np.concatenate([-_BEYOND[::-1], np.arange(-_TRIED, _TRIED + 1), _BEYOND])
_MIDDLE = len(_DISTANCES) // 2


def _above(value: ir.Value, end: ir.Value | None = None) -> list[ir.Node]:
    """The nodes that compute a value, from ``end`` on, nearest first; a few of them."""
    found = reachable_from(
        [value.producer()], lambda x: [y.producer() for y in _varying(x) if y is not end]
    )
    return list(itertools.islice(found, _NODES))


def _varying(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node that are no constants."""
    return [x for x in node.inputs if x is not None and const_of(x) is None]


def _distances(result: ir.Value, view: View) -> tuple[ir.Value, int] | None:
    """The farthest tensor that a value is a function of, element by element, and nothing else is.

    With how many axes of 1 the value has before those of that tensor.
    """
    dims = view.shapes.dims(result)
    for source in reversed(dict.fromkeys(x for node in _above(result) for x in _varying(node))):
        nodes = set(_above(result, source))
        own = view.shapes.dims(source)
        if dims is None or own is None or view.shapes.dtype(source) != ir.DataType.INT64:
            continue
        ones = len(dims) - len(own)
        if ones < 0 or set(dims[:ones]) - {1} or not same_dims(dims[ones:], own):
            continue
        leaves = {y for x in nodes for y in _varying(x) if y.producer() not in nodes}
        alone = leaves == {source} and len({x.graph for x in nodes}) == 1
        if alone and all(is_op(x, *_STEPS) for x in nodes):
            return source, ones
    return None


def _function(source: ir.Value, result: ir.Value, opset: int) -> Ints | None:
    """What ``result`` is at each of :data:`_DISTANCES`; None if that cannot be computed."""
    from onnx.reference import ReferenceEvaluator  # few models need it

    nodes, last = set(_above(result, source)), result.producer()
    given = {x for node in nodes for x in node.inputs if x is not None}
    constants = {x.name or "": y for x in given if (y := const_of(x)) is not None}
    graph = onnx.helper.make_graph(
        [ir.to_proto(x) for x in (() if last is None else last.graph or ()) if x in nodes],
        "buckets",
        [onnx.helper.make_tensor_value_info(source.name or "", onnx.TensorProto.INT64, None)],
        [onnx.helper.make_tensor_value_info(result.name or "", onnx.TensorProto.INT64, None)],
        [onnx.numpy_helper.from_array(x, name) for name, x in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    try:
        evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets))
        with np.errstate(all="ignore"):
            (found,) = evaluator.run(None, {source.name or "": _DISTANCES})
    except Exception:  # whatever it has against one of these operators
        return None
    values: Ints = np.asarray(found).reshape(-1)
    return values if values.dtype == np.int64 and values.shape == _DISTANCES.shape else None


def _bounds(values: Ints) -> tuple[int, int]:
    """The places of the first and the last that is not as all before, or all behind, is."""
    before = int(np.argmax(values != values[0])) - 1
    behind = len(values) - int(np.argmax(values[::-1] != values[-1]))
    return max(before, 0), min(behind, len(values) - 1)

"""log-buckets: the manual is the docstring of the class."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.model.values import Array, attr_int, attr_ints, const_of, is_op
from graphfix.model.view import View
from graphfix.model.walks import reached

from ._shared.fusible import only_user

Ints = npt.NDArray[np.int64]

# Every distance so far is tried, and powers of two beyond.
_TRIED = 1 << 17
_BEYOND = 2 ** np.arange(18, 41, dtype=np.int64)
_LONGEST = 4096
_TABLE = 1 << 20
_NODES = 24
# What is as large as its neighbour, and a constant: of a limit, in the branches of an If.
_FILLS = ("ConstantOfShape", "Expand")


@dataclass(frozen=True)
class BucketSite(Match):
    """Rows of a table, chosen by a function of distances.

    Attributes:
        distances: The distances, of int64.
        least: The least distance that has a row of its own; those below have the same.
        rows: The row of each distance from there on; those beyond have the last.
        turned: Whether the features come first.
    """

    distances: ir.Value
    least: int
    rows: Array
    turned: bool


@dataclass(frozen=True)
class LogBuckets(NodePass[BucketSite]):
    """Looks up a bias by distance in a table of all distances, instead of computing buckets by Log.

    T5, MPNet and WavLM sort the distances of tokens into buckets: near ones have one each, far ones
    share one by their logarithm, and all beyond a longest distance are in the last. What a distance
    comes to is computed here, for each of them, and written into a table.

    Why:
        Ten to sixteen kernels become three or four. And they come out wrong on DirectML: at a
        distance of 16, 32 or 64 the logarithm is a whole number of buckets, DirectML's is a little
        less (9.5e-7), and the Cast to integers cuts it to the bucket before. Run on
        onnxruntime-directml 1.24.4: a T5 with a cache is off by 8.5 where it is -3.1.

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

    name: ClassVar[str] = "log-buckets"
    anchors: ClassVar[tuple[str, ...]] = ("Gather",)

    def match(self, node: ir.Node, view: View) -> BucketSite | None:
        """A Gather of rows of a constant at a function of one tensor that has a Log in it."""
        buckets, table = node.inputs[1], const_of(node.inputs[0], _TABLE)
        if buckets is None or attr_int(node, "axis", 0) != 0:
            return None
        log = next((x for x in _above(buckets) if is_op(x, "Log")), None)
        if log is None or table is None or table.ndim != 2:
            return None
        found = [x for x in _chain(log) if view.shapes.dtype(x) == ir.DataType.INT64]
        for distances in reversed(found):
            values = _function(distances, buckets, view.opset(node))
            if values is None or not (-len(table) <= min(values) <= max(values) < len(table)):
                continue
            first, last = _bounds(values)
            if last - first >= _LONGEST:
                return None
            rows = table[values[first : last + 1]]
            turned = only_user(node)
            if is_op(turned, "Transpose") and attr_ints(turned, "perm") == (2, 0, 1):
                return BucketSite(turned, distances, first - _MIDDLE, rows, turned=True)
            return BucketSite(node, distances, first - _MIDDLE, rows, turned=False)
        return None

    def message(self, site: Match) -> str:
        """What goes wrong."""
        return "distances are sorted into buckets by Log, whose rounding on DirectML is another"

    def rewrite(self, match: BucketSite, op: Builder) -> ir.Value:
        """``Gather(rows, Min(Max(distances, least), most) - least)``."""
        least, count = match.least, len(match.rows)
        index = op.Max(match.distances, np.array(least, np.int64))
        index = op.Min(index, np.array(least + count - 1, np.int64))
        if least:
            index = op.Add(index, np.array(-least, np.int64))
        if match.turned:
            return op.Gather(np.ascontiguousarray(match.rows.T), index, axis=1)
        return op.Gather(match.rows, index, axis=0)


_DISTANCES = np.concatenate([-_BEYOND[::-1], np.arange(-_TRIED, _TRIED + 1), _BEYOND])
_MIDDLE = len(_DISTANCES) // 2


def _varying(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node that are no constants."""
    return [x for x in node.inputs if x is not None and const_of(x) is None]


def _above(value: ir.Value, end: ir.Value | None = None) -> list[ir.Node]:
    """The nodes that compute a value, from ``end`` on, nearest first; a few of them."""
    found = reached(
        [value.producer()], lambda x: [y.producer() for y in _varying(x) if y is not end]
    )
    return list(itertools.islice(found, _NODES))


def _chain(node: ir.Node) -> Iterator[ir.Value]:
    """What a node is a function of, as long as that is one tensor beside constants."""
    while True:
        given = [x for x in _varying(node) if not is_op(x.producer(), *_FILLS)]
        if len(given) != 1:
            return
        yield given[0]
        maker = given[0].producer()
        if maker is None:
            return
        node = maker


def _function(source: ir.Value, result: ir.Value, opset: int) -> Ints | None:
    """What ``result`` is at each of :data:`_DISTANCES`; None if ``source`` is not all it is of."""
    from onnx.reference import ReferenceEvaluator  # few models need it

    nodes, last = set(_above(result, source)), result.producer()
    given = {
        x for node in nodes for x in node.inputs if x is not None and x.producer() not in nodes
    }
    constants = {x.name or "": const_of(x) for x in given if x is not source}
    if last is None or any(x is None for x in constants.values()):
        return None
    if last.graph is None or any(x.graph is not last.graph for x in nodes):
        return None
    graph = onnx.helper.make_graph(
        [ir.to_proto(x) for x in last.graph if x in nodes],
        "buckets",
        [onnx.helper.make_tensor_value_info(source.name or "", onnx.TensorProto.INT64, None)],
        [onnx.helper.make_tensor_value_info(result.name or "", onnx.TensorProto.INT64, None)],
        [onnx.numpy_helper.from_array(x, name) for name, x in constants.items() if x is not None],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets))
    with np.errstate(all="ignore"):
        (found,) = evaluator.run(None, {source.name or "": _DISTANCES})
    values: Ints = np.asarray(found).reshape(-1)
    return values if values.dtype == np.int64 and values.shape == _DISTANCES.shape else None


def _bounds(values: Ints) -> tuple[int, int]:
    """The places of the first and the last that is not as all before, or all behind, is."""
    before = int(np.argmax(values != values[0])) - 1
    behind = len(values) - int(np.argmax(values[::-1] != values[-1]))
    return max(before, 0), min(behind, len(values) - 1)

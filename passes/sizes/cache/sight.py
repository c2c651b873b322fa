"""What has to change in each node where a cache gets a size: read off the graph, nothing edited.

The nodes are looked at in order. Most need nothing: an elementwise operator takes aligned axes, and
a Reshape takes sizes. What counts the length takes the number of valid entries instead; what finds
an entry by its number takes its place; what sums over entries takes those that are valid.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.facts.symbolic.expressions import Dim, equal, expr_of, product
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.symbolic.sums import minus
from graphfix.graph.constants import axes_of, const_of, ints_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.walks import bodies_of, captured
from graphfix.ops.broadcast import BROADCAST

from ...masks.sites.where_masks import LAYOUT
from .makers import Makers
from .slots import Lengths, UnclearError

Make = Callable[[Makers, ir.Value], ir.Value]


@dataclass(frozen=True)
class Recount(Match):
    """A node whose inputs, or whose output, become others.

    Attributes:
        what: What is done, as a sentence.
        inputs: What each input becomes.
        output: What the output becomes; None if it stays.
    """

    what: str
    inputs: dict[int, Make] = field(default_factory=dict)
    output: Make | None = None


# The operands that say a size: they take that of the cache, not what is valid of it.
_SIZES = {
    **dict.fromkeys(("Expand", "Reshape", "Split", "Squeeze", "Tile", "Unsqueeze"), (1,)),
    "ConstantOfShape": (0,),
    **dict.fromkeys(("EyeLike", "RandomNormalLike"), ()),
}
_MOVES = frozenset({*LAYOUT, "Cast", "CastLike", "Dropout", "Split", "Slice", "Gather", "Concat"})
# Of zeros they make zeros.
_ZERO_TO_ZERO = frozenset({"Neg", "Abs", "Relu", "Sqrt", "Sign", "Ceil", "Floor", "Trilu"})
_POINTWISE = frozenset(
    {*BROADCAST, *_ZERO_TO_ZERO, "Sigmoid", "Tanh", "Exp", "Log", "Erf", "Not", "IsNaN", "IsInf"}
    | {"Softplus", "Reciprocal", "Cos", "Sin", "Clip", "Gelu", "Elu", "LeakyRelu", "HardSigmoid"}
    | {"ConstantOfShape", "EyeLike", "QuickGelu", "Round", "Selu", "Range", "Shape", "Size"}
)
# They take rows along the last axis, each by itself.
_ROWWISE = frozenset(
    {"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"}
    | {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "LpNormalization"}
)
_REDUCES = frozenset(
    {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceL1"}
    | {"ReduceSumSquare", "ArgMax", "ArgMin"}
)
_FAR = 2**31 - 1


class Sight:
    """A walk over a model in which one dim is the length of caches.

    Args:
        model: The model; the dim has the same name wherever it stands.
        lengths: What depends on the dim.
        contents: The inputs that are caches.
        zeros: The inputs that are fed zeros where nothing is valid.
    """

    def __init__(
        self,
        model: ir.Model,
        lengths: Lengths,
        contents: Iterable[ir.Value],
        zeros: Iterable[ir.Value],
    ) -> None:
        self._model = model
        self._shapes, self._lengths = lengths.shapes, lengths
        self._contents = set(contents)
        self._zeros = set(zeros)
        # Whole numbers that count valid entries: no sizes any more.
        self._counted: set[ir.Value] = set()
        self._hidden: set[ir.Value] = set()

    def sites(self) -> Iterator[Recount | Skip]:
        """Every node that must change, and every node that cannot be analysed."""
        for node in self._model.graph:
            try:
                yield from self._look(node)
                self._note(node)
            except UnclearError as error:
                yield Skip(node, str(error))

    # What a node needs

    def _look(self, node: ir.Node) -> Iterator[Recount]:
        values = [x for x in (*node.inputs, *node.outputs) if x is not None]
        if bodies_of(node):
            if any(map(self._depends, [*values, *captured(node)])):
                raise UnclearError("a graph inside it reads what depends on the length of a cache")
            return
        if self._is_size(node) or not any(map(self._depends, values)):
            return
        for place in _SIZES.get(node.op_type, ()):
            if place < len(node.inputs) and node.inputs[place] in self._counted:
                raise UnclearError("a size is computed from positions")
        rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rule is not None:
            yield from rule(self, node)
            return
        self._require_apart(node)
        if inputs := dict(self._counts(node, _SIZES.get(node.op_type, ()))):
            yield Recount(node, "counts the valid entries", inputs)

    def _is_size(self, node: ir.Node) -> bool:
        """Whether all that comes out is known as a sum of sizes: whoever uses it decides."""
        if any(x in self._counted for x in node.inputs):
            return False
        if is_op(node, "Shape", "Size"):
            if self._shapes.data(node.outputs[0]) is None:
                raise UnclearError("its input has a shape that is not known")
            return True
        if is_op(node, "Cast") and self._shapes.data(node.outputs[0]) is None:
            counts = self._lengths.counted(node.inputs[0])
            if counts is not None and any(counts):
                self._lengths.casts[node.outputs[0]] = counts
                return True
        made = [x for x in node.outputs if x.name]
        known = all(self._shapes.data(x) is not None for x in made)
        return known and not is_op(node, "Range", "CumSum")

    def _depends(self, value: ir.Value) -> bool:
        """Whether a value is another where caches have another length, other than by contents."""
        if value in self._counted or value in self._lengths.casts:
            return True
        both = (*(self._shapes.dims(value) or ()), *(self._shapes.data(value) or ()))
        return any(map(self._lengths.depends, both))

    def _counts(self, node: ir.Node, sizes: Sequence[int] = ()) -> Iterator[tuple[int, Make]]:
        """Inputs that are numbers counted from the length, and are to count what is valid."""
        for i, value in enumerate(node.inputs):
            counts = None if i in sizes else self._lengths.counted(value)
            if counts is not None and any(counts):
                yield i, _moved([-a for a in counts])

    def _require_apart(self, node: ir.Node) -> None:
        """Raise UnclearError where an operator may mix the entries of a cache."""
        kinds = {x: self._lengths.slots(x) for x in (*node.inputs, *node.outputs) if x is not None}
        if not any(kinds.values()):
            return
        if node.op_type in _POINTWISE or node.op_type in _MOVES:
            if is_op(node, "Reshape", "Flatten"):
                self._require_kept(node)
            return
        last = {(self._shapes.rank(x) or 0) - 1 for x in node.inputs[:1]}
        if node.op_type in _ROWWISE and not any(last & x.keys() for x in kinds.values()):
            return
        raise UnclearError(f"{node.op_type} may mix the entries of a cache")

    def _require_kept(self, node: ir.Node) -> None:
        """Raise UnclearError where a Reshape does not keep an axis of entries as it is."""
        before, after = (self._shapes.dims(x) for x in (node.inputs[0], node.outputs[0]))
        if before is None or after is None:
            raise UnclearError("its shape is not known")
        for axis in self._lengths.slots(node.inputs[0]):
            behind = product(before[axis + 1 :])
            if not any(
                equal(before[axis], after[i]) and equal(behind, product(after[i + 1 :]))
                for i in self._lengths.slots(node.outputs[0])
            ):
                raise UnclearError(
                    f"{[*before]} becomes {[*after]}, which mixes the entries of a cache"
                )

    # The rules

    def _range(self, node: ir.Node) -> Iterator[Recount]:
        start, limit = (self._lengths.counted(x) for x in node.inputs[:2])
        if start is None or limit is None or any(x in self._counted for x in node.inputs):
            raise UnclearError("where it ends is not known as a sum of sizes")
        if shift := limit[0]:
            what = "ends at the last valid entry"
            yield Recount(node, what, output=lambda op, _: op.moved(op.again(node), [-shift]))
        self._counted.add(node.outputs[0])

    def _cumsum(self, node: ir.Node) -> Iterator[Recount]:
        for found in self._cleaned(node, [self._axis_in(node.inputs[1], node.inputs[0])]):
            value = node.inputs[0]
            yield _counts_on(node, value, found) if value is not None else found
        self._counted.add(node.outputs[0])

    def _reduce(self, node: ir.Node) -> Iterator[Recount]:
        rank = self._shapes.rank(node.inputs[0]) or 0
        given = axes_of(node)
        if is_op(node, "ArgMax", "ArgMin"):
            given = (attr_int(node, "axis", 0),)
        axes = [a % rank for a in given] if given else [*range(rank)]
        if not any(a in self._lengths.slots(node.inputs[0]) for a in axes):
            return
        if not is_op(node, "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"):
            raise UnclearError(f"{node.op_type} goes over the entries of a cache")
        yield from self._cleaned(node, axes)

    def _matmul(self, node: ir.Node) -> Iterator[Recount]:
        a, b = node.inputs[:2]
        ranks = [self._shapes.rank(x) or 0 for x in (a, b)]
        inner = (ranks[0] - 1, max(ranks[1] - 2, 0))
        if inner[0] in self._lengths.slots(a) and not (self._is_zero(a) or self._is_zero(b)):
            yield from self._cleaned(node, [inner[0]])

    def _cleaned(self, node: ir.Node, axes: Sequence[int]) -> Iterator[Recount]:
        """The sum with zeros in the place of what is not valid along these axes."""
        value = node.inputs[0]
        slots = [(a, x) for a, x in self._lengths.slots(value).items() if a in axes]
        if len(slots) > 1:
            raise UnclearError("it sums over the entries of a cache twice")
        if slots and not self._is_zero(value):
            ((axis, one),) = slots
            dims = self._shapes.dims(value) or ()
            behind = len(dims) - axis - 1
            what = "sums valid entries"
            yield Recount(node, what, {0: lambda op, x: op.cleaned(x, one, dims[axis], behind)})

    def _softmax(self, node: ir.Node) -> Iterator[Recount]:
        value = node.inputs[0]
        rank = self._shapes.rank(value) or 0
        axis = attr_int(node, "axis", -1) % max(rank, 1)
        slots = self._lengths.slots(value).get(axis)
        if slots is None:
            return
        size = (self._shapes.dims(value) or ())[axis]
        dtype = self._shapes.dtype(value)

        def hide(op: Makers, x: ir.Value) -> ir.Value:
            return op.hidden(x, slots, size, rank - axis - 1, dtype or ir.DataType.FLOAT)

        self._zeros.add(node.outputs[0])
        site = None if value is None else self._addend(value, axis - rank)
        if site is None:
            yield Recount(node, "gives no weight to what is not valid", {0: hide})
            return
        adds, place = site
        if adds.outputs[0] not in self._hidden:
            self._hidden.add(adds.outputs[0])
            yield Recount(adds, "adds what hides entries that are not valid", {place: hide})

    def _addend(self, value: ir.Value, axis: int) -> tuple[ir.Node, int] | None:
        """The sum behind scores whose mask is the same for all layers, and which input that is."""
        node = value.producer()
        while is_op(node, "Identity", "Cast", "Reshape"):
            before = node.inputs[0]
            dims, old = self._shapes.dims(node.outputs[0]), self._shapes.dims(before)
            if before is None or not dims or not old or axis != -1 or dims[-1] != old[-1]:
                return None
            node = before.producer()
        if not is_op(node, "Add"):
            return None
        for i, mask in enumerate(node.inputs):
            dims = self._shapes.dims(mask)
            if mask is None or mask in self._contents or not dims or len(dims) < -axis:
                continue
            if axis % len(dims) in self._lengths.slots(mask):
                return node, i
        return None

    def _concat(self, node: ir.Node) -> Iterator[Recount]:
        axis = attr_int(node, "axis", 0) % (self._shapes.rank(node.outputs[0]) or 1)
        if any(axis in self._lengths.slots(x) for x in node.inputs[1:]):
            raise UnclearError("it joins something in front of the entries of a cache")
        if inputs := dict(self._counts(node)):
            yield Recount(node, "counts the valid entries", inputs)

    def _gather(self, node: ir.Node) -> Iterator[Recount]:
        data, index = node.inputs[:2]
        axis = attr_int(node, "axis", 0) % (self._shapes.rank(data) or 1)
        counts = self._lengths.counted(index)
        slots = self._lengths.slots(data).get(axis)
        if slots is None:
            inputs = dict(self._counts(node))
            if index in self._counted or 1 in inputs:
                move = inputs.get(1)
                inputs[1] = lambda op, x: op.at_least_0(x if move is None else move(op, x))
            if inputs:
                yield Recount(node, "takes rows by the number of valid entries", inputs)
            return
        fixed = const_of(index)
        if counts is not None and index not in self._counted:
            pairs = zip(counts, self._shapes.data(index) or (), strict=True)
            from_end = all(n == 1 or (isinstance(x, int) and x < 0) for n, x in pairs)
        elif fixed is not None:
            from_end = all(x < 0 for x in fixed.reshape(-1).tolist())
        else:
            what = "takes entries by their place"
            yield Recount(node, what, {1: lambda op, x: op.placed(x, slots)})
            return
        if not from_end:
            raise UnclearError("it takes an entry by its number from the first on")

    def _gather_nd(self, node: ir.Node) -> Iterator[Recount]:
        data, index = node.inputs[:2]
        first = attr_int(node, "batch_dims", 0)
        dims = self._shapes.dims(index)
        if not dims or not isinstance(dims[-1], int):
            raise UnclearError("how many axes it looks up is not known")
        slots = self._lengths.slots(data)
        kinds = [slots.get(first + i) for i in range(dims[-1])]
        found = [x for x in kinds if x is not None]
        if len(found) > 1:
            raise UnclearError("it looks up entries of a cache along two axes")
        if found:
            which = [0 if x is None else 1 for x in kinds]
            what = "takes entries by their place"
            yield Recount(node, what, {1: lambda op, x: op.placed(x, found[0], which)})

    def _slice(self, node: ir.Node) -> Iterator[Recount]:
        data = node.inputs[0]
        cuts = self._cuts(node)
        slots = self._lengths.slots(data)
        dims = self._shapes.dims(data) or ()
        tables = []
        for axis, start, end in cuts:
            if axis in slots:
                self._require_last(start, end, dims[axis])
            elif self._lengths.times(start) == -1 and _is_last(end, dims[axis]):
                continue  # as many of its last rows as there are entries: aligned as these are
            elif self._lengths.depends(start) or self._lengths.depends(end):
                tables.append((axis, start, end))
        if not tables:
            return
        ((axis, start, end), *more) = tables
        if more or self._lengths.times(end) != 1 or self._lengths.times(start) not in (0, 1):
            raise UnclearError("it cuts a table where that depends on the length of a cache")
        rest = tuple(x for x in cuts if x[0] != axis)
        first = self._lengths.rest(start)
        moves = self._lengths.times(start)
        yield Recount(
            node,
            "takes rows by the number of valid entries",
            output=lambda op, _: op.rows(node, rest, axis, first, minus(end, start), moves),
        )

    def _cuts(self, node: ir.Node) -> tuple[tuple[int, Dim, Dim], ...]:
        data = [self._shapes.data(x) for x in node.inputs[1:]]
        rank = self._shapes.rank(node.inputs[0]) or 0
        if len(data) < 2 or data[0] is None or data[1] is None:
            raise UnclearError("where it cuts is not known")
        steps = data[3] if len(data) > 3 and node.inputs[4] is not None else (1,)
        if set(steps or (0,)) != {1} and self._lengths.slots(node.inputs[0]):
            raise UnclearError("it takes every other entry of a cache")
        starts, ends = data[0], data[1]
        axes = data[2] if len(data) > 2 and node.inputs[3] is not None else range(len(starts))
        if axes is None:
            raise UnclearError("which axis it cuts is not known")
        return tuple((int(str(a)) % rank, s, e) for a, s, e in zip(axes, starts, ends, strict=True))

    def _require_last(self, start: Dim, end: Dim, size: Dim) -> None:
        """Raise UnclearError where a cut does not count from the last entry."""
        whole = _is_last(end, size)
        from_back = not self._lengths.depends(start) and never_negative(-expr_of(start))
        if whole and (from_back or self._lengths.depends(start)):
            return
        near_end = (isinstance(end, int) and end < 0) or self._lengths.times(end) == 1
        if not near_end or not (from_back or self._lengths.times(start) == 1):
            raise UnclearError("it takes entries by their number from the first on")

    def _pad(self, node: ir.Node) -> Iterator[Recount]:
        pads = self._shapes.data(node.inputs[1]) if len(node.inputs) > 1 else None
        rank = self._shapes.rank(node.inputs[0]) or 0
        if pads is None or len(pads) != 2 * rank:
            raise UnclearError("which axes it pads is not known")
        slots = self._lengths.slots(node.inputs[0])
        if any(pads[axis + side] != 0 for axis in slots for side in (0, rank)):
            raise UnclearError("it pads the entries of a cache")
        yield from ()

    def _trilu(self, node: ir.Node) -> Iterator[Recount]:
        rank = self._shapes.rank(node.inputs[0]) or 2
        slots = self._lengths.slots(node.inputs[0])
        wanted = (rank - 1 in slots) - (rank - 2 in slots)
        given = node.inputs[1] if len(node.inputs) > 1 else None
        counts = (0,) if given is None else self._lengths.counted(given)
        if counts is None:
            raise UnclearError("which diagonal it takes is not known")
        if counts[0] != wanted:
            if given is None:
                raise UnclearError("it counts diagonals from the first entry")
            move, dims = [wanted - counts[0]], self._shapes.dims(node.inputs[0])
            fixed = ints_of(given) if attr_int(node, "upper", 1) and move == [1] else None
            what = "counts from the last"
            if fixed is None or dims is None:
                yield Recount(node, what, {1: lambda op, x: op.moved(x, move)})
                return
            first, (rows, columns) = fixed[0], dims[-2:]  # which keeps it part of a fused graph
            yield Recount(
                node, what, output=lambda op, _: op.above(op.again(node), first, rows, columns)
            )

    def _axis_in(self, axis: ir.Value | None, value: ir.Value | None) -> int:
        found = const_of(axis)
        if found is None:
            raise UnclearError("its axis is not known")
        return int(found.reshape(-1)[0]) % max(self._shapes.rank(value) or 1, 1)

    # What is known of what comes out

    def _note(self, node: ir.Node) -> None:
        given = [x for x in node.inputs if x is not None]
        if is_op(node, "Shape", "Size"):
            return
        if any(x in self._contents for x in given):
            self._contents.update(node.outputs)
        if not self._is_known(node):
            sizes, known = _SIZES.get(node.op_type, ()), map(self._lengths.counted, given)
            counts = {i for i, x in enumerate(known) if x is not None and any(x)}
            if not counts <= {*sizes} or any(x in self._counted for x in given):
                self._counted.update(x for x in node.outputs if self._is_whole(x))
        if self._makes_zero(node):
            self._zeros.update(x for x in node.outputs if len(self._lengths.slots(x)) == 1)

    def _is_known(self, node: ir.Node) -> bool:
        return all(
            self._shapes.data(x) is not None or x in self._lengths.casts for x in node.outputs
        ) and not any(x in self._counted for x in node.inputs)

    def _is_whole(self, value: ir.Value) -> bool:
        dtype = self._shapes.dtype(value)
        return dtype is None or dtype.is_integer()

    def _is_zero(self, value: ir.Value | None) -> bool:
        if value in self._zeros:
            return True
        fixed = const_of(value)
        return fixed is not None and fixed.size == 1 and not fixed.any()

    def _makes_zero(self, node: ir.Node) -> bool:
        """Whether what comes out is 0 where nothing is valid."""
        given = list(node.inputs)
        if is_op(node, "Mul", "And", "MatMul"):
            return any(x in self._zeros for x in given)
        if is_op(node, "Where"):
            if given[0] in self._zeros and self._is_zero(given[2]):
                return True
            return any(x in self._zeros for x in given[1:]) and all(map(self._is_zero, given[1:]))
        if is_op(node, "Add", "Sub", "Or", "Max", "Min"):
            return any(x in self._zeros for x in given) and all(map(self._is_zero, given))
        same = is_op(node, "CumSum", "Div") or node.op_type in _MOVES | _ZERO_TO_ZERO
        return same and given[0] in self._zeros


def _counts_on(node: ir.Node, summed: ir.Value, found: Recount) -> Recount:
    """A CumSum over entries: of ones it makes positions, which go on where caches have rolled."""
    if not _is_one(summed):
        return found
    clean = found.inputs[0]
    return Recount(node, found.what, output=lambda op, _: op.rolled(node, clean(op, summed)))


def _is_one(value: ir.Value) -> bool:
    """Whether all elements are 1, so that their sums are positions."""
    node = value.producer()
    given = node.attributes.get("value") if node is not None else None
    return is_op(node, "ConstantOfShape") and given is not None and given.as_tensor().numpy() == 1


def _is_last(end: Dim, size: Dim) -> bool:
    """Whether a cut that ends there takes the last row."""
    return equal(end, size) or (isinstance(end, int) and end >= _FAR)


def _moved(counts: Sequence[int]) -> Make:
    return lambda op, x: op.moved(x, counts)


_RULES: dict[str, Callable[[Sight, ir.Node], Iterator[Recount]]] = {
    "Range": Sight._range,
    "CumSum": Sight._cumsum,
    "MatMul": Sight._matmul,
    "Softmax": Sight._softmax,
    "Concat": Sight._concat,
    **dict.fromkeys(("Gather", "GatherElements"), Sight._gather),
    "GatherND": Sight._gather_nd,
    "Slice": Sight._slice,
    "Trilu": Sight._trilu,
    "Pad": Sight._pad,
    **dict.fromkeys(_REDUCES, Sight._reduce),
}

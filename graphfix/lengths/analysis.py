"""The walk: every tensor of a padded model, every leak, every node that is not analysed."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir
import sympy

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.text import kind_of
from graphfix.graph.walks import captured, opset_of, reached
from graphfix.lengths import tail_state as facts
from graphfix.lengths.cell_moves import begin, follow, is_both_ways
from graphfix.lengths.joint_axes import RefusedError, check_maskable
from graphfix.lengths.length_source import Source
from graphfix.lengths.repairs.fill_tail import PoisonedInput
from graphfix.lengths.repairs.repair import Repair
from graphfix.lengths.rule_site import GROWS, Rule, Site, Takes
from graphfix.lengths.rules import MICROSOFT, rule_of
from graphfix.lengths.rules.gather import written
from graphfix.lengths.rules.shape_ops import of_sizes

_KEEPS_PLACES = ("Transpose", "Cast", "Identity")


@dataclass(frozen=True)
class Refusal:
    """A node that padding reaches and that cannot be analysed.

    Attributes:
        node: The node.
        reason: Why, for a user.
    """

    node: ir.Node
    reason: str


@dataclass
class Analysis:
    """What padding does to a model.

    Attributes:
        source: The padded dim.
        repairs: What closes the leaks, in the order of the graph.
        refusals: The nodes that cannot be analysed; with any of these nothing is repaired.
        states: What is known of each tensor.
    """

    source: Source
    repairs: list[Repair] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    states: dict[ir.Value, facts.State | None] = field(default_factory=dict)


def analyse(model: ir.Model, source: Source) -> Analysis:
    """Follow padding through ``model``, which is only read.

    First with anything at all in the padding of the inputs; if that leaks, with zeros there, which
    is then the first repair.
    """
    found = _Walk(model, source, facts.ANY).run()
    if not found.repairs and not found.refusals:
        return found
    cleaned = _Walk(model, source, facts.ZERO).run()
    inputs = [x for x in model.graph.inputs if not x.is_initializer() and x is not source.given]
    places = {node: i for i, node in enumerate(model.graph)}
    poisoned: list[Repair] = []
    for value in inputs:
        state = cleaned.states.get(value)
        readers = [x.node for x in value.uses() if x.node.op_type not in ("Shape", "Size")]
        if state is None or not state.timed or not readers:
            continue
        try:
            for axis in state.timed:
                check_maskable(state.axes or (), axis, source)
        except RefusedError as error:
            cleaned.refusals.append(Refusal(readers[0], f"input {value.name!r}: {error}"))
        first = min(readers, key=lambda x: places.get(x, -1))
        poisoned.append(PoisonedInput(first, "poisoned input", value, state))
    # Without further repairs, what leaks is closed by the zeros at the inputs alone.
    cleaned.repairs = sorted([*poisoned, *cleaned.repairs], key=lambda x: places.get(x.node, -1))
    return cleaned


class _Walk:
    """One pass over the main graph, in order."""

    def __init__(self, model: ir.Model, source: Source, tail: facts.Tail) -> None:
        self._model = model
        self._source = source
        self._tail = tail
        self._view = View(model)
        self._view.shapes = source.shapes
        self._opset = opset_of(model)
        self._found = Analysis(source)
        self._constant = functools.cache(self._of_constant)

    def run(self) -> Analysis:
        """Every node that an output depends on."""
        for value in self._model.graph.inputs:
            if not value.is_initializer():
                self._found.states[value] = self._input(value)
        needed = _needed_by(self._model)
        for node in self._model.graph:
            if node in needed:
                self._visit(node)
        for value in self._model.graph.outputs:
            state = self._found.states.get(value)
            reason = None if state is None else _unfit(state)
            if reason is not None:
                node = value.producer() or self._model.graph[0]
                self._found.refusals.append(Refusal(node, f"output {value.name!r} {reason}"))
        return self._found

    def _input(self, value: ir.Value) -> facts.State:
        axes = self._axes(value)
        if axes is None:
            return facts.plain(None)
        own = value is self._source.given
        state = facts.with_tails(axes, facts.ZERO if own else self._tail)
        if not own:
            return state
        inside = 1.0 if self._source.kind == "mask" else None
        return replace(state, sign=1, inside=inside, length=self._symbol())

    def _axes(self, value: ir.Value) -> tuple[facts.Axis, ...] | None:
        """The axes of what is made to its size."""
        dims = self._source.shapes.dims(value)
        site = Site(next(iter(self._model.graph)), [], self._source, self._opset)
        return None if dims is None else tuple(site.axis_of(facts.size_expr(str(x))) for x in dims)

    def _symbol(self) -> sympy.Expr:
        dims = self._source.shapes.dims(self._source.value) or ()
        return facts.size_expr(str(dims[self._source.axis]))

    def _state(self, value: ir.Value | None) -> facts.State | None:
        if value is None:
            return None
        return self._found.states[value] if value in self._found.states else self._constant(value)

    def _of_constant(self, value: ir.Value) -> facts.State:
        state = facts.plain(self._axes(value), fixed=True)
        array = const_of(value)
        if array is None or array.size == 0 or array.dtype.kind not in "biuf":
            return state
        least, same = float(array.min()), bool((array == array.reshape(-1)[0]).all())
        fill = float(array.reshape(-1)[0]) if same else None
        return replace(state, sign=facts.sign_in(least), fill=fill)

    def _visit(self, node: ir.Node) -> None:
        inputs = node.inputs[:2] if written(node) is not None else node.inputs
        states = [self._state(x) for x in inputs]
        unknown = any(x is not None and s is None for x, s in zip(inputs, states, strict=True))
        inner = [x for x in captured(node) if x in self._found.states]
        if unknown or any(self._found.states[x] is None for x in inner):
            results: Sequence[facts.State | None] = [None] * len(node.outputs)
        else:
            site = Site(node, states, self._source, self._opset, known=self._state)
            try:
                results = self._apply(site, inner)
                self._found.repairs += site.repairs
            except RefusedError as error:
                results = [None] * len(node.outputs)
                self._found.refusals.append(Refusal(node, str(error)))
        refused = any(x.node is node for x in self._found.refusals)
        for i, (value, state) in enumerate(zip(node.outputs, results, strict=False)):
            self._found.states[value] = state
            used = bool(value.uses()) or value.is_graph_output()
            if state is None and used and not (refused or unknown or inner):
                reason = f"there is no rule that says what padding does to output {i} of it"
                self._found.refusals.append(Refusal(node, reason))

    def _apply(self, site: Site, inner: Sequence[ir.Value]) -> Sequence[facts.State | None]:
        node = site.node
        around = [*(x for x in site.states if x is not None)]
        around += [y for x in inner if (y := self._found.states[x]) is not None]
        moves = any(x.moving or x.shifted for x in around)
        touched = moves or any(x.timed or x.physical or x.places is not None for x in around)
        if is_op(node, "Constant"):
            return [self._constant(node.outputs[0])]
        rule = rule_of(node)
        makes = node.op_type in ("Shape", "Range", "ConstantOfShape", "Expand")
        if not touched and not makes and (rule is None or not _tells(around)):
            fixed = all(x.fixed for x in around) and not inner
            return [site.without_time(i, fixed=fixed) for i in range(len(node.outputs))]
        if not inner and len(node.outputs) == 1 and _moves_sizes(site, around):
            return [of_sizes(site)]
        if rule is None or inner:
            if moves:
                raise RefusedError("it computes with positions that move when the clip is padded")
            if inner:
                raise RefusedError(f"the bodies of {kind_of(node)} use what carries time")
            fused = "; run ilens-mask before what fuses (-p ilens-mask,fast)"
            raise RefusedError(
                f"there is no rule that says what padding does to {kind_of(node)}"
                + (fused if node.domain == MICROSOFT else "")
            )
        _check_sizes(site, rule)
        if Takes.SHRINKING not in rule.takes:
            _check_room(around)
        if any(x.places is not None for x in around) and Takes.PLACES not in rule.takes:
            if node.op_type in _KEEPS_PLACES:
                return [next(x for x in around if x.places is not None)]
            raise RefusedError("it computes with the places of a mask, as many as there are")
        if moves and node.op_type not in ("Shape", "Size"):
            return [follow(site, rule, self._view)]
        if self._source.batch is None and node.op_type in ("Add", "Sub"):
            found = begin(site)
            if found is not None and is_both_ways(found, site):
                return [found]
        before = list(site.states)
        try:
            result = rule.apply(site)
        except RefusedError:
            site.states, site.repairs = before, []
            found = begin(site)
            if found is None:
                raise
            return [found]
        states = [result] if isinstance(result, facts.State) else list(result)
        _check_ranks(site, states)
        _check_known(site, states)
        _check_grown(site, states)
        return [*states, *[None] * (len(node.outputs) - len(states))]


def _unfit(state: facts.State) -> str | None:
    """Why the valid part of an output is not what the clip alone gives, if it is not."""
    if state.physical:
        return "is a size that counts the padding in; drop it (-p keep-output keeps the others)"
    if state.places is not None:
        return "holds indices that depend on the padded length"
    if state.moving or state.shifted:
        return "holds positions that move when the clip is padded"
    if (size := _shrinking(state)) is not None:
        return f"is {size} long, which is less for some longer clip"
    if any(isinstance(x, facts.Time) and x.turned for axis in state.axes or () for x in axis):
        return "runs backwards, its padding in front"
    for axis in state.axes or ():
        if len(axis) > 1 and facts.holds_rows(axis) and state.timed:
            return "holds batch and time in one axis; fix the batch at 1 (-p fix-dims:B=1)"
        if len(axis) > 1 and facts.carries_time(axis):
            return "holds time several times over in one axis, each with its own padding"
    return None


def _check_sizes(site: Site, rule: Rule) -> None:
    """Refuse a size where the operator wants a tensor: its rule would take it for data."""
    for i, state in enumerate(site.states):
        known = Takes.SIZES in rule.takes or (i and Takes.SIZES_BEHIND in rule.takes)
        if state is not None and state.physical and not known:
            raise RefusedError("it computes with the padded length")


def _check_ranks(site: Site, results: Sequence[facts.State | None]) -> None:
    """Refuse a result of another rank than its shape: a mask over it would make it of that rank."""
    for value, result in zip(site.node.outputs, results, strict=False):
        rank = site.source.shapes.rank(value)
        known = result is not None and result.axes is not None and result.places is None
        if known and result is not None and rank is not None and result.rank != rank:
            raise RefusedError(f"its result is of rank {rank}, and its rule makes {result.rank}")


def _check_known(site: Site, results: Sequence[facts.State | None]) -> None:
    """Refuse what is made to a padded size that is not known: it would be taken for no time."""
    if not any(x is not None and x.physical for x in site.states):
        return
    data = [v for v, x in zip(site.node.inputs, site.states, strict=False) if x and not x.physical]
    told = {y.name for v in data for dim in site.dims(v) or () for y in dim.free_symbols}
    for value, result in zip(site.node.outputs, results, strict=False):
        for dim in () if result is None or result.physical else site.dims(value) or ():
            if any(x.name not in site.source.symbols | told for x in dim.free_symbols):
                raise RefusedError(
                    "it is made to a padded size that is not known; sums, products, quotients, "
                    "minima and maxima of the clip's length are"
                )


def _check_grown(site: Site, results: Sequence[facts.State | None]) -> None:
    """Refuse what is as long as something padded, where its rule knows of no time."""
    for value, result in zip(site.node.outputs, results, strict=False):
        if result is None or result.physical or result.axes is None or result.places is not None:
            continue
        for axis, dim in zip(result.axes, site.dims(value) or (), strict=False):
            if site.grows(dim) and not facts.carries_time(axis) and _is_endless(dim, site):
                raise RefusedError(GROWS)


def _is_endless(size: sympy.Expr, site: Site) -> bool:
    """Whether a size is another for a long clip and for a longer one: the last three are three."""
    symbol, lengths = site.source.symbol, (1 << 12, (1 << 13) + 1, 1 << 20)
    at = {size.subs({x: n if x.name == symbol else 1 for x in size.free_symbols}) for n in lengths}
    return len(at) > 1


def _check_room(states: Sequence[facts.State]) -> None:
    """Refuse a size that is less for some longer clip: such a container has no room for it."""
    size = next(filter(None, map(_shrinking, states)), None)
    if size is not None:
        raise RefusedError(
            f"it reads what is {size} long, which is less for some longer clip: what is valid must "
            "have room in any container"
        )


def _shrinking(state: facts.State) -> sympy.Expr | None:
    """How long an axis is that is shorter for some longer clip."""
    times = (x for axis in state.axes or () for x in axis if isinstance(x, facts.Time))
    return next((x.size for x in times if not facts.never_shrinks(x.size)), None)


def _moves_sizes(site: Site, states: Sequence[facts.State]) -> bool:
    """Whether a node hands small vectors of sizes on, or computes with them."""
    sizes = all(x.fixed or x.physical for x in states) and any(x.physical for x in states)
    known = site.held(site.node.outputs[0]) is not None
    return sizes and known and not any(x.timed for x in states)


def _tells(states: Sequence[facts.State]) -> bool:
    """Whether a rule may learn something of tensors without time: a sign, a number, a length."""
    return all(x.axes is not None for x in states) and any(
        x.sign or x.fill is not None or x.length is not None for x in states
    )


def _needed_by(model: ir.Model) -> set[ir.Node]:
    """The nodes that an output depends on."""

    def makers(node: ir.Node) -> Iterator[ir.Node]:
        inputs = node.inputs[:2] if written(node) is not None else node.inputs
        made = (x.producer() for x in (*inputs, *captured(node)) if x is not None)
        return (x for x in made if x is not None and x.graph is model.graph)

    return set(reached([x.producer() for x in model.graph.outputs], makers))

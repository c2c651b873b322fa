"""The walk over a padded model: states of tensors, leaks, and nodes that are not analysed."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir
import sympy

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.text import qualified_op_type
from graphfix.graph.walks import opset_of, reachable_from, values_read_in_bodies
from graphfix.lengths import tail_state as facts
from graphfix.lengths.cell_moves import follow_shift, infer_shift_start, is_two_sided
from graphfix.lengths.joint_axes import RefusedError, check_maskable
from graphfix.lengths.length_source import LengthSource
from graphfix.lengths.repairs.fill_tail import PoisonedInput
from graphfix.lengths.repairs.repair import Repair
from graphfix.lengths.rule_site import GROWS, AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules import MICROSOFT, rule_of
from graphfix.lengths.rules.gather import scattered_number
from graphfix.lengths.rules.shape_ops import infer_sizes

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
    """Effects of padding on a model.

    Attributes:
        source: The padded dim.
        repairs: What closes the leaks, in the order of the graph.
        refusals: The nodes that cannot be analysed; with any of these nothing is repaired.
        states: What is known of each tensor.
    """

    source: LengthSource
    repairs: list[Repair] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    states: dict[ir.Value, facts.TensorState | None] = field(default_factory=dict)


def analyse(model: ir.Model, source: LengthSource) -> Analysis:
    """Follow padding through ``model``, which is only read.

    First with anything at all in the padding of the inputs; if that leaks, with zeros there, which
    is then the first repair.
    """
    with_garbage = _PaddingWalk(model, source, facts.ANY).run()
    if not with_garbage.repairs and not with_garbage.refusals:
        return with_garbage
    with_zeros = _PaddingWalk(model, source, facts.ZERO).run()
    inputs = [
        x for x in model.graph.inputs if not x.is_initializer() and x is not source.length_input
    ]
    places = {node: i for i, node in enumerate(model.graph)}
    poisoned: list[Repair] = []
    for value in inputs:
        state = with_zeros.states.get(value)
        readers = [x.node for x in value.uses() if x.node.op_type not in ("Shape", "Size")]
        if state is None or not state.time_axes or not readers:
            continue
        try:
            for axis in state.time_axes:
                check_maskable(state.axes or (), axis, source)
        except RefusedError as error:
            with_zeros.refusals.append(Refusal(readers[0], f"input {value.name!r}: {error}"))
        first = min(readers, key=lambda x: places.get(x, -1))
        poisoned.append(PoisonedInput(first, "poisoned input", value, state))
    # Without further repairs, what leaks is closed by the zeros at the inputs alone.
    with_zeros.repairs = sorted(
        [*poisoned, *with_zeros.repairs], key=lambda x: places.get(x.node, -1)
    )
    return with_zeros


class _PaddingWalk:
    """One pass over the main graph, in order."""

    def __init__(self, model: ir.Model, source: LengthSource, tail: facts.Tail) -> None:
        self._model = model
        self._source = source
        self._tail = tail
        self._view = View(model)
        self._view.shapes = source.shapes
        self._opset = opset_of(model)
        self._analysis = Analysis(source)
        self._constant_state = functools.cache(self._read_constant)

    def run(self) -> Analysis:
        """Visit every node that an output depends on."""
        for value in self._model.graph.inputs:
            if not value.is_initializer():
                self._analysis.states[value] = self._input_state(value)
        needed = _needed_nodes(self._model)
        for node in self._model.graph:
            if node in needed:
                self._visit_node(node)
        for value in self._model.graph.outputs:
            state = self._analysis.states.get(value)
            reason = None if state is None else _output_fault(state)
            if reason is not None:
                node = value.producer() or self._model.graph[0]
                self._analysis.refusals.append(Refusal(node, f"output {value.name!r} {reason}"))
        return self._analysis

    def _input_state(self, value: ir.Value) -> facts.TensorState:
        axes = self._axes_of(value)
        if axes is None:
            return facts.state_without_time(None)
        own = value is self._source.length_input
        state = facts.state_with_tail(axes, facts.ZERO if own else self._tail)
        if not own:
            return state
        inside = 1.0 if self._source.kind == "mask" else None
        return replace(state, sign=1, inside=inside, length=self._padded_symbol())

    def _axes_of(self, value: ir.Value) -> tuple[facts.Axis, ...] | None:
        """Return the axes of what is made to its size."""
        dims = self._source.shapes.dims(value)
        site = RuleSite(next(iter(self._model.graph)), [], self._source, self._opset)
        return (
            None
            if dims is None
            else tuple(site.axis_of_size(facts.size_expr(str(x))) for x in dims)
        )

    def _padded_symbol(self) -> sympy.Expr:
        dims = self._source.shapes.dims(self._source.value) or ()
        return facts.size_expr(str(dims[self._source.axis]))

    def _state_of(self, value: ir.Value | None) -> facts.TensorState | None:
        if value is None:
            return None
        return (
            self._analysis.states[value]
            if value in self._analysis.states
            else self._constant_state(value)
        )

    def _read_constant(self, value: ir.Value) -> facts.TensorState:
        state = facts.state_without_time(self._axes_of(value), fixed=True)
        array = const_of(value)
        if array is None or array.size == 0 or array.dtype.kind not in "biuf":
            return state
        least, same = float(array.min()), bool((array == array.reshape(-1)[0]).all())
        fill = float(array.reshape(-1)[0]) if same else None
        return replace(state, sign=facts.sign_of_number(least), fill=fill)

    def _visit_node(self, node: ir.Node) -> None:
        inputs = node.inputs[:2] if scattered_number(node) is not None else node.inputs
        states = [self._state_of(x) for x in inputs]
        unknown = any(x is not None and s is None for x, s in zip(inputs, states, strict=True))
        inner = [x for x in values_read_in_bodies(node) if x in self._analysis.states]
        if unknown or any(self._analysis.states[x] is None for x in inner):
            results: Sequence[facts.TensorState | None] = [None] * len(node.outputs)
        else:
            site = RuleSite(node, states, self._source, self._opset, state_of=self._state_of)
            try:
                results = self._infer_outputs(site, inner)
                self._analysis.repairs += site.repairs
            except RefusedError as error:
                results = [None] * len(node.outputs)
                self._analysis.refusals.append(Refusal(node, str(error)))
        refused = any(x.node is node for x in self._analysis.refusals)
        for i, (value, state) in enumerate(zip(node.outputs, results, strict=False)):
            self._analysis.states[value] = state
            used = bool(value.uses()) or value.is_graph_output()
            if state is None and used and not (refused or unknown or inner):
                reason = f"there is no rule that says what padding does to output {i} of it"
                self._analysis.refusals.append(Refusal(node, reason))

    def _infer_outputs(
        self, site: RuleSite, inner: Sequence[ir.Value]
    ) -> Sequence[facts.TensorState | None]:
        node = site.node
        read_states = [*(x for x in site.states if x is not None)]
        read_states += [y for x in inner if (y := self._analysis.states[x]) is not None]
        moves = any(x.moving or x.shifted_axes for x in read_states)
        touched = moves or any(
            x.time_axes or x.counts_padding or x.places is not None for x in read_states
        )
        if is_op(node, "Constant"):
            return [self._constant_state(node.outputs[0])]
        rule = rule_of(node)
        makes_sizes = node.op_type in ("Shape", "Range", "ConstantOfShape", "Expand")
        if not touched and not makes_sizes and (rule is None or not _is_informative(read_states)):
            fixed = all(x.fixed for x in read_states) and not inner
            return [site.output_without_time(i, fixed=fixed) for i in range(len(node.outputs))]
        if not inner and len(node.outputs) == 1 and _moves_sizes(site, read_states):
            return [infer_sizes(site)]
        if rule is None or inner:
            if moves:
                raise RefusedError("it computes with positions that move when the clip is padded")
            if inner:
                raise RefusedError(f"the bodies of {qualified_op_type(node)} use what carries time")
            fused = "; run ilens-mask before what fuses (-p ilens-mask,fast)"
            raise RefusedError(
                f"there is no rule that says what padding does to {qualified_op_type(node)}"
                + (fused if node.domain == MICROSOFT else "")
            )
        _check_sizes(site, rule)
        if AcceptedInputs.SHRINKING not in rule.accepts:
            _check_room(read_states)
        if (
            any(x.places is not None for x in read_states)
            and AcceptedInputs.PLACES not in rule.accepts
        ):
            if node.op_type in _KEEPS_PLACES:
                return [next(x for x in read_states if x.places is not None)]
            raise RefusedError("it computes with the places of a mask, as many as there are")
        if moves and node.op_type not in ("Shape", "Size"):
            return [follow_shift(site, rule, self._view)]
        if self._source.batch is None and node.op_type in ("Add", "Sub"):
            shift_start = infer_shift_start(site)
            if shift_start is not None and is_two_sided(shift_start, site):
                return [shift_start]
        before = list(site.states)
        try:
            result = rule.infer_states(site)
        except RefusedError:
            site.states, site.repairs = before, []
            shift_start = infer_shift_start(site)
            if shift_start is None:
                raise
            return [shift_start]
        states = [result] if isinstance(result, facts.TensorState) else list(result)
        _check_ranks(site, states)
        _check_known_sizes(site, states)
        _check_growth(site, states)
        return [*states, *[None] * (len(node.outputs) - len(states))]


def _output_fault(state: facts.TensorState) -> str | None:
    """Say why the valid part of an output is not what the clip alone gives, or None."""
    if state.counts_padding:
        return "is a size that counts the padding in; drop it (-p keep-output keeps the others)"
    if state.places is not None:
        return "holds indices that depend on the padded length"
    if state.moving or state.shifted_axes:
        return "holds positions that move when the clip is padded"
    if (size := _shrinking_size(state)) is not None:
        return f"is {size} long, which is less for some longer clip"
    if any(isinstance(x, facts.TimeFactor) and x.turned for axis in state.axes or () for x in axis):
        return "runs backwards, its padding in front"
    for axis in state.axes or ():
        if len(axis) > 1 and facts.holds_rows(axis) and state.time_axes:
            return "holds batch and time in one axis; fix the batch at 1 (-p fix-dims:B=1)"
        if len(axis) > 1 and facts.carries_time(axis):
            return "holds time several times over in one axis, each with its own padding"
    return None


def _check_sizes(site: RuleSite, rule: PaddingRule) -> None:
    """Refuse a size where the operator wants a tensor: its rule would take it for data."""
    for i, state in enumerate(site.states):
        is_accepted = AcceptedInputs.SIZES in rule.accepts or (
            i and AcceptedInputs.SIZES_BEHIND in rule.accepts
        )
        if state is not None and state.counts_padding and not is_accepted:
            raise RefusedError("it computes with the padded length")


def _check_ranks(site: RuleSite, results: Sequence[facts.TensorState | None]) -> None:
    """Refuse a result whose rank is not that of its shape: a mask over it would be of that rank."""
    for value, result in zip(site.node.outputs, results, strict=False):
        rank = site.source.shapes.rank(value)
        has_rank = result is not None and result.axes is not None and result.places is None
        if has_rank and result is not None and rank is not None and result.rank != rank:
            raise RefusedError(f"its result is of rank {rank}, and its rule makes {result.rank}")


def _check_known_sizes(site: RuleSite, results: Sequence[facts.TensorState | None]) -> None:
    """Refuse what is made to an unknown padded size: it would be taken for no time."""
    if not any(x is not None and x.counts_padding for x in site.states):
        return
    data = [
        v for v, x in zip(site.node.inputs, site.states, strict=False) if x and not x.counts_padding
    ]
    data_symbols = {y.name for v in data for dim in site.dims_of(v) or () for y in dim.free_symbols}
    for value, result in zip(site.node.outputs, results, strict=False):
        for dim in () if result is None or result.counts_padding else site.dims_of(value) or ():
            if any(x.name not in site.source.symbols | data_symbols for x in dim.free_symbols):
                raise RefusedError(
                    "it is made to a padded size that is not known; sums, products, quotients, "
                    "minima and maxima of the clip's length are"
                )


def _check_growth(site: RuleSite, results: Sequence[facts.TensorState | None]) -> None:
    """Refuse what is as long as something padded, where its rule knows of no time."""
    for value, result in zip(site.node.outputs, results, strict=False):
        if (
            result is None
            or result.counts_padding
            or result.axes is None
            or result.places is not None
        ):
            continue
        for axis, dim in zip(result.axes, site.dims_of(value) or (), strict=False):
            if (
                site.grows_with_padding(dim)
                and not facts.carries_time(axis)
                and _is_endless(dim, site)
            ):
                raise RefusedError(GROWS)


def _is_endless(size: sympy.Expr, site: RuleSite) -> bool:
    """Return whether a size differs for a long clip and a longer one: the last three are three."""
    symbol, lengths = site.source.symbol, (1 << 12, (1 << 13) + 1, 1 << 20)
    at = {size.subs({x: n if x.name == symbol else 1 for x in size.free_symbols}) for n in lengths}
    return len(at) > 1


def _check_room(states: Sequence[facts.TensorState]) -> None:
    """Refuse a size that is less for some longer clip: such a container has no room for it."""
    size = next(filter(None, map(_shrinking_size, states)), None)
    if size is not None:
        raise RefusedError(
            f"it reads what is {size} long, which is less for some longer clip: what is valid must "
            "have room in any container"
        )


def _shrinking_size(state: facts.TensorState) -> sympy.Expr | None:
    """Return the length of an axis that is shorter for some longer clip, or None."""
    times = (x for axis in state.axes or () for x in axis if isinstance(x, facts.TimeFactor))
    return next((x.size for x in times if not facts.never_shrinks(x.size)), None)


def _moves_sizes(site: RuleSite, states: Sequence[facts.TensorState]) -> bool:
    """Return whether a node hands small vectors of sizes on, or computes with them."""
    sizes = all(x.fixed or x.counts_padding for x in states) and any(
        x.counts_padding for x in states
    )
    has_contents = site.contents_of(site.node.outputs[0]) is not None
    return sizes and has_contents and not any(x.time_axes for x in states)


def _is_informative(states: Sequence[facts.TensorState]) -> bool:
    """Return whether a rule may learn a sign, number or length from tensors without time."""
    return all(x.axes is not None for x in states) and any(
        x.sign or x.fill is not None or x.length is not None for x in states
    )


def _needed_nodes(model: ir.Model) -> set[ir.Node]:
    """Return the nodes that an output depends on."""

    def producers_of(node: ir.Node) -> Iterator[ir.Node]:
        inputs = node.inputs[:2] if scattered_number(node) is not None else node.inputs
        producers = (x.producer() for x in (*inputs, *values_read_in_bodies(node)) if x is not None)
        return (x for x in producers if x is not None and x.graph is model.graph)

    return set(reachable_from([x.producer() for x in model.graph.outputs], producers_of))

"""Walk over a padded model: states of tensors, leaks, and nodes that cannot be analysed."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import opset_of, reachable_from, values_read_in_bodies
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, check_maskable
from graphfix.lengths.length_source import LengthSource
from graphfix.lengths.relative_positions import follow_shift, infer_shift_start, is_two_sided
from graphfix.lengths.repairs.fill_tail import PoisonedInput
from graphfix.lengths.repairs.repair import Repair
from graphfix.lengths.rule_site import GROWS, AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules import rule_of
from graphfix.lengths.rules.elementwise import capped_refusal, is_integer_cast
from graphfix.lengths.rules.gather import scattered_number
from graphfix.lengths.rules.shape_ops import infer_sizes

_KEEPS_PLACES = ops.CASTS | ops.IDLE | ops.named("Transpose")
_KEEPS_CAP = ops.VIEWS | ops.PERMUTES | ops.named("Expand")


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
    """Find where padding leaks into what is valid, and what repairs it; ``model`` is only read.

    The first walk assumes that the padding of the inputs holds anything at all. If that leaks, a
    second walk assumes zeros there, and the first repair is to put them there.
    """
    with_garbage = _PaddingWalk(model, source, facts.ANY).run()
    if not with_garbage.repairs and not with_garbage.refusals:
        return with_garbage
    with_zeros = _PaddingWalk(model, source, facts.ZERO).run()
    places = {node: i for i, node in enumerate(model.graph)}
    # If there are no other repairs, the zeros in the inputs close all leaks.
    repairs = [*_poisoned_inputs(model, with_zeros, places), *with_zeros.repairs]
    with_zeros.repairs = sorted(repairs, key=lambda x: places.get(x.node, -1))
    return with_zeros


def find_poison_only(model: ir.Model, analysis: Analysis) -> list[Repair | Refusal]:
    """Return the repairs and refusals that finite numbers in the padding do not need.

    Zeros in the inputs close leaks at nodes that have no other repair; where finite numbers leak at
    such a node, the zeros are needed.
    """
    finite = _PaddingWalk(model, analysis.source, facts.FINITE).run()
    leaks = {(x.node, x.leak) for x in finite.repairs}
    refused = {x.node for x in finite.refusals}
    others = [x for x in analysis.repairs if not isinstance(x, PoisonedInput)]
    needs_zeros = not leaks <= {(x.node, x.leak) for x in others}
    needs_zeros = needs_zeros or not refused <= {x.node for x in analysis.refusals}
    repairs = [
        x
        for x in analysis.repairs
        if not (needs_zeros if isinstance(x, PoisonedInput) else (x.node, x.leak) in leaks)
    ]
    return [*repairs, *(x for x in analysis.refusals if x.node not in refused)]


def _poisoned_inputs(
    model: ir.Model, analysis: Analysis, places: Mapping[ir.Node, int]
) -> list[Repair]:
    """Return the repairs that put zeros into the padding of inputs, and add refusals of others.

    Args:
        model: The model.
        analysis: Its analysis with zeros there.
        places: Where each node is in the graph.
    """
    repairs: list[Repair] = []
    for value in model.graph.inputs:
        if value.is_initializer() or value is analysis.source.length_input:
            continue
        state = analysis.states.get(value)
        readers = [x.node for x in value.uses() if x.node not in ops.READS_ONLY_SHAPE]
        if state is None or not state.time_axes or not readers:
            continue
        try:
            for axis in state.time_axes:
                check_maskable(state.axes or (), axis, analysis.source)
        except RefusedError as error:
            analysis.refusals.append(Refusal(readers[0], f"input {value.name!r}: {error}"))
        first = min(readers, key=lambda x: places.get(x, -1))
        repairs.append(PoisonedInput(first, "poisoned input", value, state))
    return repairs


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
        valid_fill = 1.0 if self._source.kind == "mask" else None
        return replace(state, sign=1, valid_fill=valid_fill, length=self._padded_symbol())

    def _axes_of(self, value: ir.Value) -> tuple[facts.Axis, ...] | None:
        """Return the axes of a tensor by its dims alone."""
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
        """Infer the states of a node's outputs, or add a refusal."""
        states = [self._state_of(x) for x in _inputs_read(node)]
        inner = [x for x in values_read_in_bodies(node) if x in self._analysis.states]
        inner_states = [self._analysis.states[x] for x in inner]
        inputs_unknown = any(
            x is not None and state is None
            for x, state in zip(_inputs_read(node), states, strict=True)
        )
        self._analysis.states.update(dict.fromkeys(node.outputs))
        if inputs_unknown or None in inner_states:
            return
        site = RuleSite(node, states, self._source, self._opset, state_of=self._state_of)
        try:
            results = self._infer_outputs(site, [x for x in inner_states if x is not None])
            self._analysis.states.update(zip(node.outputs, results, strict=False))
            self._analysis.repairs += site.repairs
        except RefusedError as error:
            self._refuse(node, str(error))
        if not inner and not any(x.node is node for x in self._analysis.refusals):
            self._refuse_unknown_outputs(node)

    def _refuse(self, node: ir.Node, reason: str) -> None:
        self._analysis.refusals.append(Refusal(node, reason))

    def _refuse_unknown_outputs(self, node: ir.Node) -> None:
        for i, value in enumerate(node.outputs):
            is_used = bool(value.uses()) or value.is_graph_output()
            if is_used and self._analysis.states[value] is None:
                self._refuse(
                    node, f"there is no rule that says what padding does to output {i} of it"
                )

    def _infer_outputs(
        self, site: RuleSite, inner_states: Sequence[facts.TensorState]
    ) -> Sequence[facts.TensorState | None]:
        """Return the state of each output.

        Args:
            site: The node.
            inner_states: States of tensors that its bodies read.

        Raises:
            RefusedError: Padding reaches the node, and no rule says what it does there.
        """
        node = site.node
        if is_op(node, "Constant"):
            return [self._constant_state(node.outputs[0])]
        states = [*site.present_states(), *inner_states]
        rule = rule_of(node)
        if not _needs_rule(node, rule, states):
            return _outputs_without_time(site, fixed=not inner_states)
        if not inner_states and len(node.outputs) == 1 and _moves_sizes(site, states):
            return [infer_sizes(site)]
        if rule is None or inner_states:
            raise RefusedError(_reason_without_rule(node, states, has_bodies=bool(inner_states)))
        _check_sizes(site, rule)
        if AcceptedInputs.SHRINKING not in rule.accepts:
            _check_room(states)
        if AcceptedInputs.PLACES not in rule.accepts and any(x.places for x in states):
            return [_keep_places(site)]
        if node not in ops.MEASURES and any(map(_is_shifted, states)):
            return [follow_shift(site, rule, self._view)]
        if node not in ops.MEASURES | ops.ORDER_COMPARISONS and any(map(_is_capped, states)):
            return [_keep_cap(site, rule)]
        return self._apply_rule(site, rule)

    def _apply_rule(self, site: RuleSite, rule: PaddingRule) -> Sequence[facts.TensorState | None]:
        """Return what the rule infers, or relative positions that begin at the node."""
        if self._source.batch is None and is_op(site.node, "Add", "Sub"):
            shift_start = infer_shift_start(site)
            if shift_start is not None and is_two_sided(shift_start, site):
                return [shift_start]
        states_before = list(site.states)
        try:
            result = rule.infer_states(site)
        except RefusedError:
            site.states, site.repairs = states_before, []
            shift_start = infer_shift_start(site)
            if shift_start is None:
                raise
            return [shift_start]
        results = [result] if isinstance(result, facts.TensorState) else list(result)
        _check_ranks(site, results)
        _check_known_sizes(site, results)
        _check_growth(site, results)
        return results


def _inputs_read(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs whose elements matter to the analysis.

    Not an update that is one number at all places of a mask, nor what a CastLike takes its type of.
    """
    if node in ops.CASTS:
        return node.inputs[:1]
    return node.inputs[:2] if scattered_number(node) is not None else node.inputs


def _outputs_without_time(site: RuleSite, *, fixed: bool) -> list[facts.TensorState]:
    """Return the states of outputs that padding does not reach."""
    fixed = fixed and all(x.fixed for x in site.present_states())
    return [site.output_without_time(i, fixed=fixed) for i in range(len(site.node.outputs))]


def _is_shifted(state: facts.TensorState) -> bool:
    """Return whether a tensor holds positions that move when the clip is padded."""
    return state.moving or bool(state.shifted_axes)


def _needs_rule(
    node: ir.Node, rule: PaddingRule | None, states: Sequence[facts.TensorState]
) -> bool:
    """Return whether padding may reach a node, or its rule may learn something without it."""
    if is_op(node, "Shape", "Range", "ConstantOfShape", "Expand"):
        return True
    if any(_is_shifted(x) or x.time_axes or x.counts_padding or x.places for x in states):
        return True
    return rule is not None and _is_informative(states)


def _reason_without_rule(
    node: ir.Node, states: Sequence[facts.TensorState], *, has_bodies: bool
) -> str:
    """Return why a node without a rule, or whose bodies read what carries time, is refused."""
    if any(map(_is_shifted, states)):
        return "it computes with positions that move when the clip is padded"
    if has_bodies:
        return f"the bodies of {ops.qualified_name(node)} use what carries time"
    reason = f"there is no rule that says what padding does to {ops.qualified_name(node)}"
    if node.domain == "com.microsoft":
        reason += "; run ilens-mask before what fuses (-p ilens-mask,fast)"
    return reason


def _keep_places(site: RuleSite) -> facts.TensorState:
    """Return the places of a mask if the node leaves them unchanged; else refuse."""
    state = site.optional_state(0)
    if state is None or state.places is None or site.node not in _KEEPS_PLACES:
        raise RefusedError("it computes with the places of a mask, as many as there are")
    return state


def _is_capped(state: facts.TensorState) -> bool:
    """Return whether a tensor is cut to a padded size where the clip alone is cut to its own."""
    return state.capped_at is not None


def _keep_cap(site: RuleSite, rule: PaddingRule) -> facts.TensorState:
    """Return numbers that are cut to a padded size if the node moves them; else refuse."""
    state = site.optional_state(0)
    if state is None or not (site.node in _KEEPS_CAP or is_integer_cast(site)):
        raise capped_refusal(site)
    site.states[0] = replace(state, capped_at=None)
    result = rule.infer_states(site)
    if not isinstance(result, facts.TensorState):
        raise capped_refusal(site)
    return replace(result, capped_at=state.capped_at)


def _output_fault(state: facts.TensorState) -> str | None:
    """Return why the valid part of an output is not what the clip alone gives, or None."""
    if state.counts_padding:
        return "is a size that counts the padding in; drop it (-p keep-output keeps the others)"
    if state.places is not None:
        return "holds indices that depend on the padded length"
    if _is_shifted(state):
        return "holds positions that move when the clip is padded"
    if _is_capped(state):
        return "holds numbers that are cut to the padded length"
    if (size := _shrinking_size(state)) is not None:
        return f"is {size} long, which is less for some longer clip"
    axes = state.axes or ()
    if any(isinstance(x, facts.TimeFactor) and x.reversed for axis in axes for x in axis):
        return "runs backwards, its padding in front"
    return next(filter(None, (_fault_of_axis(axis, state) for axis in axes)), None)


def _fault_of_axis(axis: facts.Axis, state: facts.TensorState) -> str | None:
    """Return why the valid part of an output cannot be cut out of this axis, or None."""
    if len(axis) > 1 and facts.holds_rows(axis) and state.time_axes:
        return "holds batch and time in one axis; fix the batch at 1 (-p fix-dims:B=1)"
    if len(axis) > 1 and facts.carries_time(axis):
        return "holds time several times over in one axis, each with its own padding"
    return None


def _check_sizes(site: RuleSite, rule: PaddingRule) -> None:
    """Refuse a padded size in an input whose rule would take it for data."""
    for i, state in enumerate(site.states):
        is_accepted = AcceptedInputs.SIZES in rule.accepts or (
            i and AcceptedInputs.SIZES_BEHIND in rule.accepts
        )
        if state is not None and state.counts_padding and not is_accepted:
            raise RefusedError("it computes with the padded length")


def _check_ranks(site: RuleSite, results: Sequence[facts.TensorState | None]) -> None:
    """Refuse a result whose rank is not that of its shape, as a mask over it would not fit."""
    for value, result in zip(site.node.outputs, results, strict=False):
        rank = site.source.shapes.rank(value)
        has_rank = result is not None and result.axes is not None and result.places is None
        if has_rank and result is not None and rank is not None and result.rank != rank:
            raise RefusedError(f"its result is of rank {rank}, and its rule makes {result.rank}")


def _check_known_sizes(site: RuleSite, results: Sequence[facts.TensorState | None]) -> None:
    """Refuse a result made to an unknown padded size, which would not count as time."""
    if not any(x.counts_padding for x in site.present_states()):
        return
    known = site.source.symbols | _symbols_of_data(site)
    for value, result in zip(site.node.outputs, results, strict=False):
        if result is None or result.counts_padding:
            continue
        if any(x.name not in known for dim in site.dims_of(value) or () for x in dim.free_symbols):
            raise RefusedError(
                "it is made to a padded size that is not known; sums, products, quotients, "
                "minima and maxima of the clip's length are"
            )


def _symbols_of_data(site: RuleSite) -> set[str]:
    """Return the symbols in the dims of all inputs that are not padded sizes."""
    pairs = zip(site.node.inputs, site.states, strict=False)
    data = [value for value, state in pairs if state is not None and not state.counts_padding]
    return {x.name for value in data for dim in site.dims_of(value) or () for x in dim.free_symbols}


def _check_growth(site: RuleSite, results: Sequence[facts.TensorState | None]) -> None:
    """Refuse a result that grows with the padding along an axis that carries no time."""
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
    """Return whether a size still grows for long clips; the last three frames are always three."""
    symbol, lengths = site.source.symbol, (1 << 12, (1 << 13) + 1, 1 << 20)
    at = {size.subs({x: n if x.name == symbol else 1 for x in size.free_symbols}) for n in lengths}
    return len(at) > 1


def _check_room(states: Sequence[facts.TensorState]) -> None:
    """Refuse a size that is less for some longer clip, as that container has no room for it."""
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
    """Return whether a node moves small vectors of sizes, or computes with them."""
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
        values = (*_inputs_read(node), *values_read_in_bodies(node))
        producers = (x.producer() for x in values if x is not None)
        return (x for x in producers if x is not None and x.graph is model.graph)

    return set(reachable_from([x.producer() for x in model.graph.outputs], producers_of))

"""``graphfix ship`` of a model that continues its states: fixed caches, proved step by step.

If the proof fails, less is done to the model: no step is filled up in front, then nothing is fused.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from graphfix.cache_axes.cache_input import CacheInput
from graphfix.cache_axes.growth import unify_dims
from graphfix.core import Check
from graphfix.engine import pipeline, registry
from graphfix.engine.report import Report
from graphfix.errors import PaddingError
from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.states import StatePair, expand_state_globs
from graphfix.files import atomic_file, io
from graphfix.job.remaining_findings import compare_hazards
from graphfix.job.rounding_search import MARGINS, Calibration, rounding_tolerance
from graphfix.proof.by_channel import ChannelRule
from graphfix.proof.compare import Tolerance
from graphfix.proof.own_rounding import OwnRounding
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.port import Feeds
from graphfix.shipped.manifest import NAME, Axis, Cache, Manifest, StateLink, Streaming
from graphfix.shipping.chosen_inputs import fix_and_fold_inputs
from graphfix.shipping.container_repair import require_sizes_applied
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.first_call import FirstCall, branch_input_of
from graphfix.shipping.new_outputs import ShipSource
from graphfix.shipping.result import (
    Shipped,
    containers_with_kernels,
    provenance_of,
    reasons_not_rounded,
    records_of,
    write_folder,
    write_models,
)
from graphfix.shipping.size_table import derive_sizes
from graphfix.shipping.stream_plan import StreamPlan
from graphfix.shipping.stream_proof import (
    Measure,
    measure_own_rounding,
    noise_of_steps,
    prove,
    prove_on_provider,
)
from graphfix.shipping.stream_steps import (
    PlayedSequences,
    StepSequence,
    choose_running_plan,
    run_sequences,
)
from graphfix.spec.quoting import quote_name

_CACHE, _DIMS, _FAST, _ROUND, _BRANCH = "static-cache", "fix-dims", "fast", "float16", "fix-input"
_PARTS = "plain-attention"
_LATE = (_DIMS, _FAST, _ROUND, *(x.partition(":")[0] for x in registry.FUSIONS))


@dataclass(frozen=True)
class StreamUse:
    """How a stream uses the containers, and the steps to prove it by.

    Attributes:
        streaming: How; without caches and states until there are containers.
        steps: The steps, with the original's outputs.
        measure: Returns how far a quantized original differs from itself in these steps.
        rule: What may differ.
    """

    streaming: Streaming
    steps: tuple[StepSequence, ...]
    rule: ChannelRule
    measure: Measure = lambda: None


@dataclass(frozen=True)
class StreamOrder:
    """What to ship: a model, its plan, the passes and the tolerance.

    Attributes:
        source: The model.
        plan: The plan of its states and containers.
        spec: The passes, as text; sizes are filled in.
        tie: How long a mask is that nothing in the graph relates to another input.
        rule: What may differ, noise aside.
        ep: Where the containers are proved besides the CPU.
        tell: Called with a short text at each step.
        constants: What the original is fed in each step besides.
        allows_own_rounding: Whether a quantized model may differ as far as it does from itself.
        given: Where the model comes from; None: it is the user's.
    """

    source: Path
    plan: StreamPlan
    spec: str
    tie: Tie
    rule: ChannelRule
    ep: Ep
    tell: pipeline.Progress
    constants: Feeds
    allows_own_rounding: bool
    given: ShipSource | None = None

    @property
    def origin(self) -> ShipSource:
        """Return where the model comes from."""
        return self.given or ShipSource(self.source, self.source)

    def load_original(self) -> ir.Model:
        """Load the model, with one name for equal dims, and without inputs that are constants."""
        model = fix_and_fold_inputs(io.load(self.source), self.spec)
        if self.plan.first is not None:
            self.plan.first.remove_inputs_from(model)
        unify_dims(model, self.tie)
        return model

    def repair_container(self, container: Mapping[str, int]) -> tuple[ir.Model, Report]:
        """Return a repaired container, and the report of the passes.

        Raises:
            PaddingError: A cache of one size cannot be analysed.
            UsageError: The model cannot have these sizes.
        """
        try:
            model, report = self._repair_with_caches(container, self.plan.fixed_caches)
        except PaddingError:
            if not self.plan.fixed_caches:
                raise
            model, report = self._repair_with_caches(container, ())
        require_sizes_applied(report, container)
        return model, replace(report, source=str(self.origin.origin))

    def _repair_with_caches(
        self, container: Mapping[str, int], fixed_caches: Sequence[str]
    ) -> tuple[ir.Model, Report]:
        model = self.load_original()
        return model, self._run_passes(model, self.passes_at(container, fixed_caches))

    def repair_first_call(self, first: FirstCall) -> tuple[ir.Model, Report]:
        """Return the model that computes the encoder's caches, repaired, and its report."""
        model = first.extract_model(io.load(self.source))
        items = (":".join(x) for x in pipeline.split_spec(self.spec) if x[0] != _BRANCH)
        passes = replace(self, spec=",".join(items)).passes_at(self.first_call_sizes(first), ())
        return model, self._run_passes(model, passes)

    def first_call_sizes(self, first: FirstCall) -> dict[str, int]:
        """Return the sizes of the model of the first call."""
        return {x: self.plan.containers[0][x] for x in first.names.values()}

    def _run_passes(self, model: ir.Model, passes: Sequence[Check]) -> Report:
        settle = Calibration(passes, {}, None, self.rule.tolerance, self.tell, MARGINS[0])
        return pipeline.run(model, passes, settle=settle)

    def play_original(self, joins: bool, may_roll: bool) -> PlayedSequences:
        """Run the original step by step."""
        self.tell("running the original step by step")
        return run_sequences(
            self.plan, str(self.source), self.constants, joins=joins, may_roll=may_roll
        )

    def measure_own_rounding(
        self, steps: Sequence[StepSequence], *, may_roll: bool
    ) -> OwnRounding | None:
        """Return how far a quantized original differs from itself in steps of whole containers.

        None if it does not round, if a pass rounds, or if the user says what may differ.
        """
        if not self.allows_own_rounding:
            return None
        rerun = functools.partial(self._run_copy, joins=False, may_roll=may_roll)
        return measure_own_rounding(self.source, steps, self.rule.tolerance, rerun)

    def use_for(
        self, streaming: Streaming, steps: tuple[StepSequence, ...], *, may_roll: bool
    ) -> StreamUse:
        """Return a use of the containers, with what may differ in the steps that prove it.

        Args:
            streaming: How a stream uses them.
            steps: All sequences that the original was run on for it.
            may_roll: Whether full caches were allowed to roll there.
        """
        rerun = functools.partial(self._run_copy, joins=streaming.joins, may_roll=may_roll)
        rule = replace(self.rule, measure_noise=noise_of_steps(self.source, steps, rerun))
        if streaming.joins:
            return StreamUse(streaming, steps, rule)
        # The same numbers are rounded together.
        measure = functools.partial(self.measure_own_rounding, steps, may_roll=may_roll)
        return StreamUse(streaming, steps, rule, measure)

    def prove(self, folder: Path, use: StreamUse) -> SessionProof:
        """Prove on the CPU what a stream of a folder gives that uses its containers so."""
        self.tell("proving what a stream gives")
        return prove(folder, self._provable_steps(use), use.rule, use.measure)

    def prove_on_device(
        self, folder: Path, use: StreamUse, cpu_proof: SessionProof
    ) -> SessionProof:
        """Return the proof on the CPU, with that of where else it is to be proved if it passed."""
        if self.ep == "cpu" or not cpu_proof.ok:
            return cpu_proof
        self.tell(f"proving what a stream gives on {PROVIDERS[self.ep].label}")
        steps = self._provable_steps(use)
        proof = prove_on_provider(folder, steps, use.rule, self.ep, use.measure)
        return replace(proof, diffs=(*cpu_proof.diffs, *proof.diffs))

    def _provable_steps(self, use: StreamUse) -> list[StepSequence]:
        """Return the steps; what cannot be filled up in front is as long as containers hold."""
        told = {x.dim for x in use.streaming.caches if x.told}
        return [x for x in use.steps if not x.shorter or told >= {*self.plan.fixed_caches}]

    def _run_copy(self, model: ir.Model, *, joins: bool, may_roll: bool) -> Sequence[StepSequence]:
        return run_sequences(self.plan, model, self.constants, joins=joins, may_roll=may_roll)[0]

    def passes_at(self, container: Mapping[str, int], fixed_caches: Sequence[str]) -> list[Check]:
        """Return the passes, with those that fix a container's sizes before the late passes."""
        sized = {*self.plan.caches, *fixed_caches} - {*self.plan.counted}
        caches = tuple((x, n) for x, n in container.items() if x in sized)
        new = {self.plan.new} if self.plan.step_is_fixed else set()
        other_sizes = tuple((x, n) for x, n in container.items() if x not in sized | new)
        items = pipeline.split_spec(self.spec)
        pass_names = [name for name, *_ in items]
        for name, default in ((_CACHE, _LATE), (_DIMS, _LATE[1:])):
            if name not in pass_names:
                at = next((i for i, x in enumerate(pass_names) if x in default), len(pass_names))
                items.insert(at, [name])
                pass_names.insert(at, name)
        passes: list[Check] = []
        for name, *options in items:
            if name == _CACHE and caches:
                passes.append(registry.get_pass(_CACHE, dims=caches))
            elif name == _DIMS and other_sizes:
                passes.append(registry.get_pass(_DIMS, dims=other_sizes))
            elif name not in (_CACHE, _DIMS):
                passes += pipeline.parse_passes(":".join([name, *options]), self.ep)
        return passes


def ship_stream(
    given: ShipSource,
    folder: Path,
    model: ir.Model,
    containers: ContainerSpec,
    *,
    cache: Sequence[int],
    states: Sequence[StatePair],
    axis: str,
    passes: str,
    float16: bool,
    ep: Ep,
    tolerance: Tolerance | None,
    strict: bool,
    tell: pipeline.Progress,
) -> Shipped:
    """Create a folder with one model per size of caches and steps, and prove it.

    Args:
        given: The model's file.
        folder: Where it goes.
        model: The model as it was loaded.
        containers: The sizes of its dims but those of caches.
        cache: The sizes of caches.
        states: States that the user names.
        axis: The dim of the entries that each step adds, if several could be.
        passes: Text as ``-p`` takes it; "" for the usual ones.
        float16: Whether weights and arithmetic become float16.
        ep: Where the containers are proved besides the CPU.
        tolerance: What may differ.
        strict: Whether a proof that fails is the end.
        tell: Called with a short text at each step.

    Raises:
        UsageError: Sizes, states or passes do not fit.
        PaddingError: A cache of one size cannot be analysed.
        FeedError: The model does not run.
    """
    source = given.path
    usual_passes = [_PARTS, "directml", _CACHE, _DIMS, _FAST, *([_ROUND] if float16 else [])]
    spec = passes or ",".join(usual_passes)
    if branch := branch_input_of(model):
        spec = f"{_BRANCH}:{quote_name(branch)}=true,{spec}"
    model = fix_and_fold_inputs(model, spec)
    states = expand_state_globs(model, states)
    plan, constants, tie = choose_running_plan(source, model, containers, cache, states, axis)
    rule = ChannelRule.between([model], tolerance)
    order = StreamOrder(
        source, plan, spec, tie, rule, ep, tell, constants, tolerance is None, given
    )
    rounds = rounding_tolerance(order.passes_at(plan.containers[0], plan.fixed_caches))
    order = replace(
        order,
        rule=rule if tolerance or rounds is None else rule.with_tolerance(rounds),
        allows_own_rounding=tolerance is None and rounds is None,
    )
    play_original = functools.cache(order.play_original)
    plain = ",".join(":".join(x) for x in pipeline.split_spec(spec) if x != [_FAST])
    attempts = [order] if passes or strict else [order, replace(order, spec=plain)]
    tried: list[Shipped] = []
    for attempt in attempts:
        tried.append(
            _ship_once(attempt, folder, _possible_uses(order, play_original, strict=strict))
        )
        if tried[-1].ok:
            return tried[-1]
    return tried[0]


def _possible_uses(
    order: StreamOrder, play: Callable[[bool, bool], PlayedSequences], *, strict: bool
) -> Iterator[StreamUse]:
    """Yield how a stream may use the containers, the most useful first, with steps to prove it.

    Parts of a prompt, the first filled up in front while the caches are empty; parts that are
    containers; one container, where parts do not give what the whole does: its numbers are rounded
    by the largest of them, or pooled, or each new entry sees those behind it.
    """
    plan = order.plan
    smallest = min(x[plan.new] for x in plan.containers)
    partial = smallest == 1 and all(x.axis is not None for x in plan.states)
    options = [(True, True)] * partial + [(True, False), (False, False)]
    if plan.step_is_fixed:
        options = [(False, False)]
    for may_roll in (True, False):
        rolled = False
        for joined, filled in options[:1] if strict else options:
            steps, rolls = play(joined, may_roll)
            streaming = Streaming((), (), rolls, filled, joined)
            yield order.use_for(streaming, steps, may_roll=may_roll)
            rolled = rolled or rolls
        if not rolled or strict:
            return


def _ship_once(order: StreamOrder, folder: Path, uses: Iterable[StreamUse]) -> Shipped:
    """Repair, write, prove, and give the folder its name."""
    source, plan, tell = order.source, order.plan, order.tell
    repaired = []
    for container in plan.containers:
        tell(f"repairing for {_sizes_text(plan, container)}")
        repaired.append(order.repair_container(container))
    if plan.first is not None:
        tell("repairing the first call")
        repaired.append(order.repair_first_call(plan.first))
    models, reports = zip(*repaired, strict=True)
    cache_inputs = CacheInput.all_from_metadata(models[0])
    tell("checking what is left")
    hazards = compare_hazards(order.load_original(), models)

    def fill_folder(scratch: Path) -> Shipped:
        paths = [scratch / _file_name(source, plan, x) for x in plan.containers]
        first = [scratch / f"{source.stem}.first.onnx"] if plan.first else []
        write_models(models, [*paths, *first], source.stem)
        opening = None
        if plan.first is not None:
            (container,) = containers_with_kernels(
                source, first, [order.first_call_sizes(plan.first)], tell
            )
            opening = plan.first.to_opening(container)
        manifest = _build_manifest(order, paths)
        for possible_use in uses:
            streaming = _complete_streaming(plan, cache_inputs, possible_use.streaming)
            use = replace(possible_use, streaming=replace(streaming, opening=opening))
            manifest = replace(manifest, stream=use.streaming)
            atomic_file.write_text(scratch / NAME, manifest.to_text())
            proof = order.prove(scratch, use)
            if proof.ok:
                break
        return Shipped(
            folder=None,
            manifest=manifest,
            reports=reports,
            checked=hazards,
            padding=(),
            whole=order.prove_on_device(scratch, use, proof),
            remarks=plan.remarks,
            unrounded=reasons_not_rounded(
                order.passes_at(plan.containers[0], plan.fixed_caches), reports
            ),
        )

    return write_folder(folder, fill_folder)


def _complete_streaming(
    plan: StreamPlan, cache_inputs: Sequence[CacheInput], use: Streaming
) -> Streaming:
    inputs_by_dim = {x.dim: x.input for x in cache_inputs}
    dims = (*plan.caches, *(x for x in plan.fixed_caches if x in inputs_by_dim))
    caches = tuple(Cache(x, inputs_by_dim.get(x, ""), x in plan.caches) for x in dims)
    links = tuple(StateLink(x.input, x.output, x.axis) for x in plan.states)
    return replace(use, caches=caches, states=links)


def _sizes_text(plan: StreamPlan, container: Mapping[str, int]) -> str:
    shown = (*plan.caches, plan.new)
    return ", ".join(f"{plan.names.get(x, (x,))[0]}={container[x]}" for x in shown)


def _file_name(source: Path, plan: StreamPlan, container: Mapping[str, int]) -> str:
    sizes = [str(container[x]) for x in (*plan.caches[:1], plan.new)]
    return f"{source.stem}.{'.'.join(sizes)}.onnx"


def _axis_of_new_entries(plan: StreamPlan) -> Axis:
    """Return the axis of the entries that each step adds, of the first input that has them."""
    states = {x.input for x in plan.states}
    content = [
        x
        for kinds in (("tokens", "data"), ("positions", "mask", "lengths", "choice", "int"))
        for x in plan.inputs
        if x.kind in kinds and x.name not in states and x.dims
    ]
    for port in content:
        if plan.new in port.dims:
            return Axis(plan.new, port.name, port.dims.index(plan.new), None, 1)
    return Axis(plan.new, content[0].name, len(content[0].dims) - 1, None, 1)


def _build_manifest(order: StreamOrder, paths: Sequence[Path]) -> Manifest:
    plan, source = order.plan, order.source
    return Manifest(
        axis=_axis_of_new_entries(plan),
        batch=plan.batch,
        lengths=None,
        inputs=plan.inputs,
        outputs=plan.outputs,
        containers=containers_with_kernels(source, paths, plan.containers, order.tell),
        derived=derive_sizes(
            (*plan.inputs, *plan.outputs),
            plan.containers,
            {plan.new, *plan.caches, *plan.fixed_caches},
        ),
        files=records_of(paths[0].parent),
        provenance=provenance_of(order.origin, order.spec, plan.names),
    )

"""``graphfix ship`` of a model that continues its states: caches of one size, proved step by step.

If the proof fails, less is done to the model: no step is filled up in front, then nothing is fused.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from graphfix.caches.cache_input import CacheInput
from graphfix.caches.growth import unify
from graphfix.core import Check
from graphfix.engine import pipeline, registry
from graphfix.engine.report import Report
from graphfix.errors import PaddingError
from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.states import State
from graphfix.files import atomic_file, io
from graphfix.job.remaining_findings import checked
from graphfix.job.rounding_search import MARGINS, Settling, gate
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.provider import LABELS, Ep
from graphfix.shipped.manifest import NAME, Axis, Cache, Manifest, StateLink, Streaming
from graphfix.shipping import result as shipped
from graphfix.shipping.chosen_inputs import decided
from graphfix.shipping.container_repair import require_sized
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.first_call import FirstCall, branch_input
from graphfix.shipping.result import Shipped
from graphfix.shipping.stream_plan import StreamPlan
from graphfix.shipping.stream_proof import prove, prove_on
from graphfix.shipping.stream_steps import Played, Steps, plan_that_runs, sequences
from graphfix.spec.quoting import quoted

_CACHE, _DIMS, _FAST, _ROUND, _BRANCH = "static-cache", "fix-dims", "fast", "float16", "fix-input"
_LATE = (_DIMS, _FAST, _ROUND, *(x.partition(":")[0] for x in registry.FUSIONS))

# How a stream uses the containers, and the steps to prove it by.
Use = tuple[Streaming, tuple[Steps, ...]]


@dataclass(frozen=True)
class StreamOrder:
    """What is to be shipped.

    Attributes:
        source: The model.
        plan: What was read off it.
        spec: The passes, as text; sizes are put in.
        tie: How long a mask is that nothing in the graph relates to another input.
        tolerance: What may differ.
        ep: Where the containers are proved besides the CPU.
        tell: Called with a short text at each step.
    """

    source: Path
    plan: StreamPlan
    spec: str
    tie: Tie
    tolerance: Tolerance
    ep: Ep
    tell: pipeline.Progress

    def original(self) -> ir.Model:
        """The model, with one name for equal dims, and without inputs that are constants."""
        model = decided(io.load(self.source), self.spec)
        if self.plan.first is not None:
            self.plan.first.leave(model)
        unify(model, self.tie)
        return model

    def made(self, container: Mapping[str, int]) -> tuple[ir.Model, Report]:
        """A container, and what the passes did.

        Raises:
            PaddingError: A cache of one size cannot be analysed.
            UsageError: The model cannot have these sizes.
        """
        try:
            model, report = self._made(container, self.plan.held)
        except PaddingError:
            if not self.plan.held:
                raise
            model, report = self._made(container, ())
        require_sized(report, container)
        return model, replace(report, source=str(self.source))

    def _made(self, container: Mapping[str, int], held: Sequence[str]) -> tuple[ir.Model, Report]:
        model = self.original()
        return model, self._repaired(model, self.passes(container, held))

    def opened(self, first: FirstCall) -> tuple[ir.Model, Report]:
        """The model that makes the caches of an encoder, and what the passes did."""
        model = first.model(io.load(self.source))
        items = (":".join(x) for x in pipeline.split(self.spec) if x[0] != _BRANCH)
        passes = replace(self, spec=",".join(items)).passes(self.held(first), ())
        return model, self._repaired(model, passes)

    def held(self, first: FirstCall) -> dict[str, int]:
        """The sizes of that model."""
        return {x: self.plan.containers[0][x] for x in first.names.values()}

    def _repaired(self, model: ir.Model, passes: Sequence[Check]) -> Report:
        settle = Settling(passes, {}, None, self.tolerance, self.tell, MARGINS[0])
        return pipeline.run(model, passes, settle=settle)

    def passes(self, container: Mapping[str, int], held: Sequence[str]) -> list[Check]:
        """The passes with the sizes of a container; those that take sizes before what is late."""
        sized = {*self.plan.caches, *held}
        caches = tuple((x, n) for x, n in container.items() if x in sized)
        others = tuple((x, n) for x, n in container.items() if x not in sized)
        items = pipeline.split(self.spec)
        named = [name for name, *_ in items]
        for name, default in ((_CACHE, _LATE), (_DIMS, _LATE[1:])):
            if name not in named:
                at = next((i for i, x in enumerate(named) if x in default), len(named))
                items.insert(at, [name])
                named.insert(at, name)
        passes: list[Check] = []
        for name, *given in items:
            if name == _CACHE and caches:
                passes.append(registry.get_pass(_CACHE, dims=caches))
            elif name == _DIMS:
                passes.append(registry.get_pass(_DIMS, dims=others))
            elif name != _CACHE:
                passes += pipeline.parse(":".join([name, *given]))
        return passes


def ship_stream(
    source: Path,
    folder: Path,
    model: ir.Model,
    containers: ContainerSpec,
    *,
    cache: Sequence[int],
    states: Sequence[State],
    passes: str,
    float16: bool,
    ep: Ep,
    tolerance: Tolerance | None,
    strict: bool,
    tell: pipeline.Progress,
) -> Shipped:
    """Make of a model a folder with one model for each size of caches and steps, and prove it.

    Args:
        source: The model's file.
        folder: Where it goes.
        model: The model as it was loaded.
        containers: The sizes of its dims but those of caches.
        cache: The sizes of caches.
        states: States that the user names.
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
    spec = passes or ",".join(["directml", _CACHE, _DIMS, _FAST, *([_ROUND] if float16 else [])])
    if branch := branch_input(model):
        spec = f"{_BRANCH}:{quoted(branch)}=true,{spec}"
    model = decided(model, spec)
    found, constants, tie = plan_that_runs(source, model, containers, cache, states)
    usual = Tolerance().for_half() if computes_in_half(model) else Tolerance()
    order = StreamOrder(source, found, spec, tie, usual, ep, tell)
    allowed = tolerance or gate(order.passes(found.containers[0], found.held)) or usual
    order = replace(order, tolerance=allowed)

    @functools.cache
    def steps(joins: bool, may_roll: bool) -> Played:
        tell("running the original step by step")
        return sequences(found, str(source), constants, joins=joins, may_roll=may_roll)

    plain = ",".join(":".join(x) for x in pipeline.split(spec) if x != [_FAST])
    ways = [order] if passes or strict else [order, replace(order, spec=plain)]
    tried: list[Shipped] = []
    for way in ways:
        tried.append(_ship(way, folder, _uses(found, steps, strict=strict)))
        if tried[-1].ok:
            return tried[-1]
    return tried[0]


def _uses(
    found: StreamPlan, steps: Callable[[bool, bool], Played], *, strict: bool
) -> Iterator[Use]:
    """How a stream may use the containers, the most useful first, with the steps to prove it by."""
    joins = min(x[found.new] for x in found.containers) == 1  # sums of them are any number
    partial = joins and all(x.axis is not None for x in found.states)
    ways = [(joins, partial), *([(partial, False)] if joins and not strict else [])]
    for may_roll in (True, False):
        rolled = False
        for joined, filled in ways:
            made, rolls = steps(joined, may_roll)
            yield Streaming((), (), rolls, filled, joined), made
            rolled = rolled or rolls
        if not rolled or strict:
            return


def _ship(order: StreamOrder, folder: Path, uses: Iterable[Use]) -> Shipped:
    """Repair, write, prove, and give the folder its name."""
    source, found, tell = order.source, order.plan, order.tell
    repaired = []
    for container in found.containers:
        tell(f"repairing for {_told(found, container)}")
        repaired.append(order.made(container))
    if found.first is not None:
        tell("repairing the first call")
        repaired.append(order.opened(found.first))
    made, reports = zip(*repaired, strict=True)
    told = CacheInput.all_of(made[0])
    tell("checking what is left")
    hazards = checked(order.original(), made)

    def make(scratch: Path) -> Shipped:
        paths = [scratch / _file(source, found, x) for x in found.containers]
        first = [scratch / f"{source.stem}.first.onnx"] if found.first else []
        shipped.put_models(made, [*paths, *first], source.stem)
        opening = None
        if found.first is not None:
            (container,) = shipped.planned(source, first, [order.held(found.first)], tell)
            opening = found.first.opening(container)
        manifest = _manifest(order, paths, first)
        for about, steps in uses:
            stream = replace(_about(found, told, about), opening=opening)
            manifest = replace(manifest, stream=stream)
            atomic_file.put_text(scratch / NAME, manifest.to_text())
            tell("proving what a stream gives")
            whole = prove(scratch, steps, order.tolerance)
            if whole.ok:
                break
        if whole.ok and order.ep != "cpu":
            tell(f"proving what a stream gives on {LABELS[order.ep]}")
            there = prove_on(scratch, steps, order.tolerance, order.ep)
            whole = replace(there, diffs=(*whole.diffs, *there.diffs))
        return Shipped(
            folder=None,
            manifest=manifest,
            reports=reports,
            checked=hazards,
            padding=(),
            whole=whole,
            unrounded=shipped.unrounded_by(order.passes(found.containers[0], found.held), reports),
        )

    return shipped.into(folder, make)


def _about(found: StreamPlan, told: Sequence[CacheInput], about: Streaming) -> Streaming:
    known = {x.dim: x.input for x in told}
    dims = (*found.caches, *(x for x in found.held if x in known))
    caches = tuple(Cache(x, known.get(x, ""), x in found.caches) for x in dims)
    links = tuple(StateLink(x.input, x.output, x.axis) for x in found.states)
    return replace(about, caches=caches, states=links)


def _told(found: StreamPlan, container: Mapping[str, int]) -> str:
    shown = (*found.caches, found.new)
    return ", ".join(f"{found.names.get(x, (x,))[0]}={container[x]}" for x in shown)


def _file(source: Path, found: StreamPlan, container: Mapping[str, int]) -> str:
    sizes = [str(container[x]) for x in (*found.caches[:1], found.new)]
    return f"{source.stem}.{'.'.join(sizes)}.onnx"


def _manifest(order: StreamOrder, paths: Sequence[Path], first: Sequence[Path]) -> Manifest:
    found, source = order.plan, order.source
    tokens = next(x for x in found.inputs if x.kind in ("tokens", "data") and found.new in x.dims)
    return Manifest(
        axis=Axis(found.new, tokens.name, tokens.dims.index(found.new), None, 1),
        batch=found.batch,
        lengths=None,
        inputs=found.inputs,
        outputs=found.outputs,
        containers=shipped.planned(source, paths, found.containers, order.tell),
        weights=shipped.weights_beside([*paths, *first]),
        provenance=shipped.provenance(source, order.spec, found.names),
    )

"""Repairs a model for each container, and proves each container."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from graphfix.core import Check, Pass, calibrated_passes
from graphfix.editing.exclusions import NO_EXCLUSIONS, Exclusions, record_pass_exclusions
from graphfix.engine import pipeline, registry
from graphfix.engine.fixpoint import spec_of_check
from graphfix.engine.report import Report
from graphfix.errors import GraphfixError, PaddingError, UsageError
from graphfix.feeds.roles import roles_of
from graphfix.files import io
from graphfix.graph.dims import name_dims
from graphfix.job.culprits import Culprits, CulpritSearch
from graphfix.job.fault_search import tensors_of
from graphfix.job.rounding_search import MARGINS, Calibration
from graphfix.probing.padded import PaddedVerdict, padded
from graphfix.proof.budget import Budget
from graphfix.proof.by_channel import ChannelRule, Scales
from graphfix.proof.compare import Tolerance
from graphfix.proof.noise import Noise, NoiseSource
from graphfix.proof.own_rounding import OwnRounding, measure_own_rounding
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.shipping.derived_dims import write_derived_dims
from graphfix.shipping.end_to_end import SessionProof, prove_end_to_end
from graphfix.shipping.model_facts import ModelFacts
from graphfix.shipping.new_outputs import ShipSource
from graphfix.spec.quoting import quote_name

Sizes = Mapping[str, int]

_MASK, _DIMS, INPUT = "ilens-mask", "fix-dims", "fix-input"
_FAST, _ROUND = "fast", ("float16",)
_FUSING = tuple(x.partition(":")[0] for x in registry.FUSIONS)
_BEFORE_FAST = ("directml", "mask-length", _MASK)


def default_passes(*, float16: bool = False) -> str:
    """Return the default passes: ``directml``, safe padding, fixed sizes, then the fusions."""
    return ",".join([*_BEFORE_FAST, _DIMS, _FAST, *(["float16"] if float16 else [])])


def _complete_items(items: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the items of a spec, with ``ilens-mask`` and ``fix-dims`` where they are missing."""
    completed = list(items)
    names = [item[0] for item in completed]
    if _MASK not in names:
        at = names.index(_DIMS) if _DIMS in names else _mask_index(completed)
        fast = names[at : at + 1] == [_FAST]
        completed[at:at] = [[x] for x in _BEFORE_FAST] if fast else [[_MASK]]
    names = [item[0] for item in completed]
    if _DIMS not in names:
        completed.insert(names.index(_MASK) + 1, [_DIMS])
    return completed


def _mask_index(items: Sequence[Sequence[str]]) -> int:
    """Return where ``ilens-mask`` goes: before passes that fuse or round."""
    for i, (name, *_) in enumerate(items):
        if name in (_FAST, *_FUSING, *_ROUND):
            return i
    return next((i for i, x in enumerate(items) if x[0] != INPUT), len(items) - 1) + 1


def require_sizes_applied(report: Report, container: object) -> None:
    """Refuse a container whose sizes the model cannot have.

    Raises:
        UsageError: It could not.
    """
    for pass_report in report.passes:
        if pass_report.name == _DIMS and pass_report.skips and not pass_report.changes:
            raise UsageError(f"there can be no container of {container}: {pass_report.skips[0][1]}")


@dataclass(frozen=True)
class ContainerProof:
    """The proof of one container on one execution provider.

    Attributes:
        file: The container.
        ep: Where it ran.
        verdict: Clips alone against the same clips in it, with garbage behind them.
    """

    file: str
    ep: Ep
    verdict: PaddedVerdict

    def __str__(self) -> str:
        return f"on {PROVIDERS[self.ep].label} {self.verdict}"


@dataclass(frozen=True)
class FailedContainer:
    """A container whose proof failed.

    Attributes:
        proof: The failed proof.
        container: Its sizes.
        report: What the passes did when nothing was left out.
    """

    proof: ContainerProof
    container: Sizes
    report: Report


@dataclass(frozen=True)
class ShipOrder:
    """What to ship: a model, its containers, the passes and the tolerance.

    Attributes:
        source: The model.
        facts: What is known of it: axes, containers, clips.
        spec: The passes, as text; the sizes of a container are filled in.
        tolerance: The tolerance of the proof.
        usual: The tolerance where nothing is rounded.
        ep: Where containers are proved.
        tell: Called with a short text at each step.
        culprits: The places to skip, and what runs instead of passes.
        leave: What is to be skipped.
        margin: Which share of the gate a pass that rounds may use.
        allows_own_rounding: Whether a quantized model may differ as far as it does from itself.
        given: Where the model comes from; None: it is the user's.
    """

    source: Path
    facts: ModelFacts
    spec: str
    tolerance: Tolerance
    usual: Tolerance
    ep: Ep
    tell: pipeline.Progress
    culprits: Culprits = field(default_factory=Culprits)
    leave: Exclusions = NO_EXCLUSIONS
    margin: float = MARGINS[0]
    allows_own_rounding: bool = False
    given: ShipSource | None = None

    @property
    def origin(self) -> ShipSource:
        """Return where the model comes from."""
        return self.given or ShipSource(self.source, self.source)

    def own_rounding(self) -> OwnRounding | None:
        """Return how far the original differs from itself in sessions as users open them.

        None if it does not round, if a pass rounds, or if the user says what may differ.
        """
        if not self._measures_rounding:
            return None
        runs = [(clip.feeds, clip.outputs) for clip in self.facts.clips]
        seconds = Budget().part
        return measure_own_rounding(
            self.source, self.load_original(), runs, self.tolerance, seconds, optimize=True
        )

    def _clip_rule(self) -> ChannelRule:
        """Return what may differ in the clips of a session, whose keys are their numbers."""
        original = self.load_original()
        noise_source = NoiseSource(self.source, original, in_half=self.tolerance.whole)

        def measure_clip(number: str, scales: Scales) -> Noise:
            clip = self.facts.clips[int(number)]
            return noise_source.measure_case(clip.feeds, clip.outputs, scales, Budget().part)

        return ChannelRule.between([original], self._given_tolerance, measure_clip)

    @property
    def _given_tolerance(self) -> Tolerance | None:
        """Return the tolerance where it is not the usual one, which depends on the output."""
        return None if self._measures_rounding else self.tolerance

    @property
    def _measures_rounding(self) -> bool:
        return self.allows_own_rounding and self.tolerance == self.usual

    def repair_all(self) -> tuple[tuple[ir.Model, ...], tuple[Report, ...]]:
        """Return a repaired model for each container, and the report of each."""
        repaired = []
        for container in self.facts.containers:
            self.tell(f"repairing for {container[self.facts.axis.dim]}")
            repaired.append(self.repair_container(container, self.passes_at(container), self.leave))
        models, reports = zip(*repaired, strict=True)
        return models, reports

    def repair_container(
        self, container: Sizes, passes: Sequence[Check], leave: Exclusions
    ) -> tuple[ir.Model, Report]:
        """Return the model repaired at the sizes of a container, and the report of the passes.

        Raises:
            PaddingError: Padding reaches a node that cannot be analysed.
            UsageError: The model cannot have these sizes.
        """
        model = self.load_original()
        sizes = {n: (container[g],) for g, own_names in self.facts.names.items() for n in own_names}
        settle = Calibration(passes, sizes, None, self.tolerance, self.tell, self.margin)
        try:
            report = pipeline.run(model, passes, settle=settle, leave=leave)
        except PaddingError as error:
            fixed_sizes = {name: size for name, (size,) in sizes.items()} | {**self.facts.forced}
            fixed = ":".join(f"{quote_name(name)}={size}" for name, size in fixed_sizes.items())
            raise PaddingError(
                f"{error}. Possible are fixed sizes without padding: "
                f"graphfix run {self.origin.origin} -p directml,"
                f"{self._baked_selectors()}fix-dims:{fixed}"
            ) from error
        require_sizes_applied(report, container[self.facts.axis.dim])
        record_pass_exclusions(model, leave)
        return model, replace(report, source=str(self.origin.origin))

    def _baked_selectors(self) -> str:
        """Return the pass that bakes in what is compared with constants, with a comma; or "".

        Sizes that fit what a sample rate selects need not fit what another one does.
        """
        roles = roles_of(self.load_original()).items()
        values = {name: x.choices[0] for name, x in roles if x.kind == "choice" and x.free}
        texts = [f":{quote_name(name)}={value}" for name, value in values.items()]
        return f"fix-input{''.join(texts)}," if texts else ""

    def load_original(self) -> ir.Model:
        """Load the model as exported, with a name or an expression for each dim."""
        model = io.load(self.source)
        name_dims(model)
        write_derived_dims(model, self.facts.derived)
        return model

    def prove(self, candidate: Path | ir.Model, sizes: Sizes, name: str, ep: Ep) -> ContainerProof:
        """Compare single clips on the original with the same clips in a container.

        Their lengths are the container's own, if the original runs at it, down to a twelfth of it.
        """
        facts = self.facts
        size = sizes[facts.axis.dim]
        dims = {names[0]: [sizes[group]] for group, names in facts.names.items()}
        fitting = [x.length for x in facts.clips if size / 13 <= x.length <= size]
        dims[facts.names[facts.axis.dim][0]] = fitting
        verdict = padded(
            candidate,
            original=self.source,
            dims=dims,
            container=size,
            axis=f"{facts.axis.input}.{facts.axis.axis}",
            tolerance=self._given_tolerance,
            ep=ep,
            progress=lambda step: self.tell(f"proving {name} on {PROVIDERS[ep].label} {step}"),
        )
        return ContainerProof(name, ep, verdict)

    def prove_containers(self, folder: Path, files: Sequence[str]) -> tuple[ContainerProof, ...]:
        """Prove the containers of a folder on the CPU, and where else they are to be proved.

        Args:
            folder: The folder.
            files: The file of each container.
        """
        proofs = []
        for file, container in zip(files, self.facts.containers, strict=True):
            for ep in dict.fromkeys(("cpu", self.ep)):
                self.tell(f"proving {file} on {PROVIDERS[ep].label}")
                proofs.append(self.prove(folder / file, container, file, ep))
        return tuple(proofs)

    def prove_session(self, folder: Path) -> SessionProof:
        """Prove what a session of a folder gives."""
        self.tell("proving what a session gives")
        return prove_end_to_end(folder, self.facts.clips, self._clip_rule(), self.own_rounding)

    def find_culprits(self, failed: Sequence[FailedContainer]) -> Culprits:
        """Search for the places to skip, or to repair in another way, where containers fail.

        Args:
            failed: Each container that has failed; what is found suits all of them.
        """
        plain = replace(self, tolerance=self.usual)

        def failure_with(passes: Sequence[Check], leave: Exclusions, _single: bool) -> str:
            for failure in failed:
                own = dict(
                    zip(
                        map(spec_of_check, chosen),
                        self._searchable_passes(failure.container),
                        strict=True,
                    )
                )
                try:
                    trial_passes = [own.get(spec_of_check(x), x) for x in passes]
                    model, _ = plain.repair_container(failure.container, trial_passes, leave)
                    verdict = plain.prove(
                        model, failure.container, "trial", failure.proof.ep
                    ).verdict
                except GraphfixError as error:
                    return str(error)
                if not verdict.ok:
                    return str(verdict).rstrip(".")
            return ""

        first = failed[0]
        chosen = self._searchable_passes(first.container)
        reason = "" if self.calibrated_passes() else str(first.proof.verdict).rstrip(".")
        pass_reports = [x for failure in failed for x in failure.report.passes]
        tensors = tensors_of(self.load_original())
        return CulpritSearch(chosen, pass_reports, tensors, failure_with, self.tell).run(
            reason, proves_unrepaired=False
        )

    def calibrated_passes(self) -> list[Pass]:
        """Return the passes that round."""
        return calibrated_passes(self.passes_at(self.facts.containers[0]))

    def _searchable_passes(self, container: Sizes) -> list[Check]:
        """Return the passes that the search is about: those that do not round."""
        rounds = self.calibrated_passes()
        return [x for x in self.passes_at(container) if x not in rounds]

    def passes_at(self, container: Sizes) -> list[Check]:
        """Return the passes at the sizes of a container, with their stand-ins."""
        return list(self.culprits.replace_passes(self._requested_passes(container)))

    def _requested_passes(self, container: Sizes) -> Iterator[Check]:
        facts = self.facts
        # What is not padded first: one row has one length, and no axis holds rows or the height of
        # a picture beside frames.
        rows = [facts.batch] if facts.batch is not None and container[facts.batch] > 1 else []
        fixed_groups = [g for g in facts.names if g not in (facts.axis.dim, *rows)]
        if fixed_groups or facts.forced:
            yield _fix_dims_pass(facts, container, fixed_groups, facts.forced)
        other_groups = [g for g in facts.names if g not in fixed_groups]
        for name, *options in _complete_items(pipeline.split_spec(self.spec)):
            if name == _MASK and not options:
                place = f"{facts.axis.input}.{facts.axis.axis}"
                yield registry.get_pass(_MASK, axis=place, from_=facts.validity_input)
            elif name == _DIMS:
                if options:
                    raise UsageError(f"{_DIMS} gets its sizes from --container")
                yield _fix_dims_pass(facts, container, other_groups)
            else:
                yield from pipeline.parse_passes(":".join([name, *options]), self.ep)


def _fix_dims_pass(
    facts: ModelFacts, container: Sizes, groups: Sequence[str], more: Sizes | None = None
) -> Check:
    sizes = [(n, container[g]) for g in groups for n in facts.names[g]]
    return registry.get_pass(_DIMS, dims=(*sizes, *(more or {}).items()))

"""What is shipped: a repaired model for each container, and the proof of one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from graphfix.core import Check, Pass, rounding
from graphfix.editing.exclusions import NOTHING, Leaving, write_passes
from graphfix.engine import pipeline, registry
from graphfix.engine.fixpoint import name_of
from graphfix.engine.report import Report
from graphfix.errors import GraphfixError, PaddingError, UsageError
from graphfix.files import io
from graphfix.graph.dims import name_dims
from graphfix.job.culprits import BadPlaces, Search
from graphfix.job.fault_search import tensors_of
from graphfix.job.rounding_search import MARGINS, Settling
from graphfix.probing.padded import PaddedVerdict, padded
from graphfix.proof.compare import Tolerance
from graphfix.runtime.provider import LABELS, Ep
from graphfix.shipping.model_facts import Reading
from graphfix.spec.quoting import quoted

Sizes = Mapping[str, int]

_MASK, _DIMS, INPUT = "ilens-mask", "fix-dims", "fix-input"
_FAST, _ROUND = "fast", ("float16",)
_FUSING = tuple(x.partition(":")[0] for x in registry.FUSIONS)
_BEFORE_FAST = ("directml", "mask-length", _MASK)


def default_passes(*, float16: bool = False) -> str:
    """``directml``, what makes it safe to pad, fixed sizes, then what makes it fast."""
    return ",".join([*_BEFORE_FAST, _DIMS, _FAST, *(["float16"] if float16 else [])])


def _place_of_mask(items: Sequence[Sequence[str]]) -> int:
    """Where ``ilens-mask`` goes: it does not analyse what is fused, or rounds."""
    for i, (name, *_) in enumerate(items):
        if name in (_FAST, *_FUSING, *_ROUND):
            return i
    return next((i for i, x in enumerate(items) if x[0] != INPUT), len(items) - 1) + 1


def require_sized(report: Report, container: object) -> None:
    """Refuse a container whose sizes the model could not be given.

    Raises:
        UsageError: It could not.
    """
    for done in report.passes:
        if done.name == _DIMS and done.skips and not done.changes:
            raise UsageError(f"there can be no container of {container}: {done.skips[0][1]}")


@dataclass(frozen=True)
class ContainerProof:
    """The proof of one container on one provider.

    Attributes:
        file: The container.
        ep: Where it ran.
        verdict: Clips alone against the same clips in it, with garbage behind them.
    """

    file: str
    ep: Ep
    verdict: PaddedVerdict

    def __str__(self) -> str:
        return f"on {LABELS[self.ep]} {self.verdict}"


@dataclass(frozen=True)
class FailedContainer:
    """A container that is not what the model is.

    Attributes:
        proof: What was found.
        container: Its sizes.
        report: What the passes did when nothing was left out.
    """

    proof: ContainerProof
    container: Sizes
    report: Report


@dataclass(frozen=True)
class Order:
    """What is to be shipped.

    Attributes:
        source: The model.
        reading: What was read off it: axes, containers, clips.
        spec: The passes, as text; the sizes of a container are put in.
        tolerance: What may differ.
        usual: What may differ where nothing is rounded.
        ep: Where containers are proved.
        tell: Called with a short text at each step.
        found: The bad places, and what runs instead of passes.
        leave: What is to be skipped.
        margin: Which share of the gate a pass that rounds may use.
    """

    source: Path
    reading: Reading
    spec: str
    tolerance: Tolerance
    usual: Tolerance
    ep: Ep
    tell: pipeline.Progress
    found: BadPlaces = field(default_factory=BadPlaces)
    leave: Leaving = NOTHING
    margin: float = MARGINS[0]

    def repaired(self) -> tuple[tuple[ir.Model, ...], tuple[Report, ...]]:
        """A model for each container, and what was done to each."""
        found = []
        for container in self.reading.containers:
            self.tell(f"repairing for {container[self.reading.axis.dim]}")
            found.append(self.make(container, self.passes(container), self.leave))
        made, reports = zip(*found, strict=True)
        return made, reports

    def make(
        self, container: Sizes, passes: Sequence[Check], leave: Leaving
    ) -> tuple[ir.Model, Report]:
        """What passes make of the model at the sizes of a container, and what they did.

        Raises:
            PaddingError: Padding reaches a node that cannot be analysed.
            UsageError: The model cannot have these sizes.
        """
        model = self.original()
        sizes = {n: (container[g],) for g, known in self.reading.names.items() for n in known}
        settle = Settling(passes, sizes, None, self.tolerance, self.tell, self.margin)
        try:
            report = pipeline.run(model, passes, settle=settle, leave=leave)
        except PaddingError as error:
            fixed = ":".join(f"{quoted(name)}={size}" for name, (size,) in sizes.items())
            raise PaddingError(
                f"{error}. What can be had is fixed sizes without padding: "
                f"graphfix run {self.source} -p directml,fix-dims:{fixed}"
            ) from error
        require_sized(report, container[self.reading.axis.dim])
        write_passes(model, leave)
        return model, replace(report, source=str(self.source))

    def original(self) -> ir.Model:
        """The model as it is given, with a name for each dim."""
        model = io.load(self.source)
        name_dims(model)
        return model

    def prove(self, made: Path | ir.Model, sizes: Sizes, name: str, ep: Ep) -> ContainerProof:
        """Clips alone on the original against the same clips in a container.

        Their lengths are the container's own, if the original runs at it, down to a twelfth of it.
        """
        reading = self.reading
        size = sizes[reading.axis.dim]
        dims = {names[0]: [sizes[group]] for group, names in reading.names.items()}
        fitting = [x.length for x in reading.clips if size / 13 <= x.length <= size]
        dims[reading.names[reading.axis.dim][0]] = fitting
        found = padded(
            made,
            original=self.source,
            dims=dims,
            container=size,
            axis=f"{reading.axis.input}.{reading.axis.axis}",
            tolerance=self.tolerance,
            ep=ep,
            progress=lambda what: self.tell(f"proving {name} on {LABELS[ep]} {what}"),
        )
        return ContainerProof(name, ep, found)

    def bad_places(self, failed: Sequence[FailedContainer]) -> BadPlaces:
        """What to leave out where containers fail, or to do in another way.

        Args:
            failed: Each container that has failed; what is found suits all of them.
        """
        plain = replace(self, tolerance=self.usual)

        def proves(passes: Sequence[Check], leave: Leaving, _single: bool) -> str:
            for one in failed:
                own = dict(zip(map(name_of, chosen), self._searched(one.container), strict=True))
                try:
                    here = [own.get(name_of(x), x) for x in passes]
                    model, _ = plain.make(one.container, here, leave)
                    verdict = plain.prove(model, one.container, "trial", one.proof.ep).verdict
                except GraphfixError as error:
                    return str(error)
                if not verdict.ok:
                    return str(verdict).rstrip(".")
            return ""

        first = failed[0]
        chosen = self._searched(first.container)
        why = "" if self.rounding() else str(first.proof.verdict).rstrip(".")
        done = [x for one in failed for x in one.report.passes]
        tensors = tensors_of(self.original())
        return Search(chosen, done, tensors, proves, self.tell).run(why, alone=False)

    def rounding(self) -> list[Pass]:
        """The passes that round."""
        return rounding(self.passes(self.reading.containers[0]))

    def _searched(self, container: Sizes) -> list[Check]:
        """The passes that a search is about: what must stay in float32 is found by itself."""
        rounds = self.rounding()
        return [x for x in self.passes(container) if x not in rounds]

    def passes(self, container: Sizes) -> list[Check]:
        """The passes at the sizes of a container, with those that stand in for others."""
        return list(self.found.passes(self._asked(container)))

    def _asked(self, container: Sizes) -> Iterator[Check]:
        reading = self.reading
        items = pipeline.split(self.spec)
        names = [item[0] for item in items]
        if _MASK not in names:
            at = names.index(_DIMS) if _DIMS in names else _place_of_mask(items)
            fast = names[at : at + 1] == [_FAST]
            items[at:at] = [[x] for x in _BEFORE_FAST] if fast else [[_MASK]]
        names = [item[0] for item in items]
        if _DIMS not in names:
            items.insert(names.index(_MASK) + 1, [_DIMS])
        # One row first: it has one length, and no axis holds rows beside frames.
        alone = [g for g in reading.names if g == reading.batch and container[g] == 1]
        if alone:
            yield _fixed(reading, container, alone)
        rest = [g for g in reading.names if g not in alone]
        for name, *given in items:
            if name == _MASK and not given:
                place = f"{reading.axis.input}.{reading.axis.axis}"
                yield registry.get_pass(_MASK, axis=place, from_=reading.tells)
            elif name == _DIMS:
                if given:
                    raise UsageError(f"{_DIMS} gets its sizes from --container")
                yield _fixed(reading, container, rest)
            else:
                yield from pipeline.parse(":".join([name, *given]))


def _fixed(reading: Reading, container: Sizes, groups: Sequence[str]) -> Check:
    sizes = tuple((n, container[g]) for g in groups for n in reading.names[g])
    return registry.get_pass(_DIMS, dims=sizes)

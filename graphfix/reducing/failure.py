"""How a model fails: with which error, with which difference, or after how long."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Check
from graphfix.engine.pipeline import run as run_passes
from graphfix.engine.pipeline import spec_of
from graphfix.errors import GraphfixError, ModelError
from graphfix.graph.dims import contradicts_shape
from graphfix.proof.allowance import USUAL
from graphfix.proof.budget import Budget
from graphfix.proof.by_channel import ChannelRule, OutputPair, Scales
from graphfix.proof.compare import Tolerance, compare
from graphfix.proof.first_difference import broadcast_pair, unmasked_elements
from graphfix.proof.noise import Noise, NoiseSource
from graphfix.providers.directml import hresult
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.reducing.candidate import Candidate, part_between
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import (
    LoadDiedError,
    NoAnswerError,
    RunDiedError,
    RunError,
    StoppedError,
)

Kind = Literal["dies", "fails", "differs", "slow"]
# What two errors of one kind do not share: names, numbers and the folder of a file.
_OWN_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|\([^)]*\)|\{[^}]*\}|\S*/\S*|-?\d[\w.]*")
_CODE_LENGTH = 60


@dataclass(frozen=True)
class Failure:
    """How a model fails.

    Attributes:
        kind: The process ``dies``, the model ``fails`` with an error, an output ``differs`` from
            the reference, or a run is ``slow``.
        code: What the same failure of another model has, too: an HRESULT such as ``80070057``, or
            the words of the error without names and numbers.
        text: The error, or the difference, in a sentence.
        expected: The output of the reference that is off most, if one differs.
        got: What came instead.
    """

    kind: Kind
    code: str
    text: str
    expected: Array | None = None
    got: Array | None = None


@dataclass(frozen=True)
class Trial:
    """How a model is tried.

    Attributes:
        ep: Where it is run, with all of ONNX Runtime's optimizations.
        against: The provider of the reference; the CPU runs without optimizations.
        passes: What goes over it before it is run; then the reference is the model without them.
        tolerance: The largest allowed difference.
        slower_than: A run that takes more seconds is a failure; None if no time is.
        needs_reference: Whether the reference must run a model, too.
        original: Another model, which is the reference: the tensors that both have are compared.
        takes_contradictions: Whether outputs may have other shapes than the file declares, which is
            a fault of its own.
    """

    ep: Ep
    against: Ep = "cpu"
    passes: Sequence[Check] = ()
    tolerance: Tolerance = USUAL
    slower_than: float | None = None
    needs_reference: bool = True
    original: ir.Model | None = None
    takes_contradictions: bool = False

    @property
    def of_repair(self) -> bool:
        """Return whether a repair is at fault, of passes or of an original, not a provider."""
        return bool(self.passes) or self.original is not None

    @property
    def where(self) -> str:
        """Return where a model fails, such as ``on DirectML``."""
        if self.original is not None:
            return "compared with the original"
        after = f"after {spec_of(self.passes)}"
        return after if self.passes else f"on {PROVIDERS[self.ep].label}"

    def known_tensors(self) -> set[str] | None:
        """Return the names of the tensors that the reference has; None if all of any model."""
        if self.original is None:
            return None
        graph = self.original.graph
        return {x.name for node in graph for x in node.outputs if x.name}

    def observe(self, candidate: Candidate) -> Failure | None:
        """Return how a model fails; None if it does not, or if the reference does not run it.

        Raises:
            UsageError: The provider is not there.
        """
        try:
            expected = self.reference_outputs(candidate) if self.needs_reference else {}
        except (ModelError, RunError):
            return None
        if not self.takes_contradictions and contradicts_declaration(candidate.model, expected):
            return None
        return self.observe_against(candidate, expected)

    def observe_against(
        self, candidate: Candidate, expected: Mapping[str, Array]
    ) -> Failure | None:
        """Return how a model fails; None if it does not.

        Args:
            candidate: The model and its feeds.
            expected: What the reference computes.
        """
        try:
            outputs, seconds = self._outputs(candidate)
        except (LoadDiedError, RunDiedError) as error:
            return Failure("dies", failure_code(str(error)), str(error))
        except (NoAnswerError, StoppedError) as error:
            return Failure("slow", "", str(error))
        except (ModelError, RunError) as error:
            return Failure("fails", failure_code(str(error)), str(error))
        if self.slower_than is not None:
            text = f"a run takes {seconds:.3g} s"
            return Failure("slow", "", text) if seconds > self.slower_than else None
        return self._worst_difference(candidate, expected, outputs)

    def is_same(self, first: Failure, other: Failure | None) -> bool:
        """Return whether two models fail in the same way.

        What a repair has spoilt is one fault, whether an error comes of it or another number.
        """
        if other is None or self.of_repair:
            return other is not None
        return (first.kind, first.code) == (other.kind, other.code)

    def reference_outputs(self, candidate: Candidate) -> dict[str, Array]:
        """Return what the reference computes, of the outputs that it has.

        Raises:
            ModelError: It does not load the model, or has none of its outputs.
            RunError: It does not run it.
        """
        model = candidate.model
        if self.original is not None:
            names = [x.name or "" for x in model.graph.outputs]
            model = part_between(self.original, candidate.feeds, names)
        with open_session(model, self.against, repeatable=False) as session:
            return session.run(candidate.feeds)

    def differing_tensors(self, candidate: Candidate, names: Sequence[str]) -> dict[str, bool]:
        """Return whether inner tensors differ from what the reference computes.

        Each node runs by itself: fused with others, what it computes may not be there to be seen.
        If no tensor differs as a whole, those differ of which a channel does by its own scale,
        which may be rounding that has grown.

        Args:
            candidate: The model and its feeds.
            names: The names of the tensors; those that the passes remove are not compared.

        Raises:
            ModelError: One of the two does not load with these tensors as outputs.
            RunError: It does not run.
        """
        model = self._with_passes(candidate.model)
        there = {x.name for node in model.graph for x in node.outputs}
        known = self.known_tensors()
        wanted = [x for x in names if x in there and (known is None or x in known)]
        original = candidate.model if self.original is None else self.original
        with open_session(original, self.against, wanted, repeatable=False) as session:
            expected = session.run(candidate.feeds)
        with Session(model, ep=self.ep, optimize=False, extra_outputs=wanted) as session:
            outputs = session.run(candidate.feeds, wanted)
        expected = {x: expected[x] for x in wanted}
        pairs = self._pairs_of(expected, outputs)
        wholly = {
            x.output: not compare(x.output, "", x.before, x.after, self.tolerance).ok for x in pairs
        }
        if any(wholly.values()):
            return wholly
        return {x.output: not x.ok for x in ChannelRule(self.tolerance).compare_pairs(pairs)}

    def _outputs(self, candidate: Candidate) -> tuple[dict[str, Array], float]:
        model = self._with_passes(candidate.model)
        optimize = not self.of_repair or self.ep != "cpu"
        with Session(model, ep=self.ep, optimize=optimize) as session:
            outputs = session.run(candidate.feeds)
            if self.slower_than is not None:  # the first run compiles
                outputs = session.run(candidate.feeds)
            return outputs, session.run_seconds

    def _pairs_of(
        self, expected: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> list[OutputPair]:
        """Return what is compared; a repair may hide a score by another number."""
        pairs = []
        for name, before in expected.items():
            after = outputs[name]
            if self.of_repair:
                before, after = _shown_alike(before, after)
            pairs.append(OutputPair(name, "", before, after))
        return pairs

    def _with_passes(self, model: ir.Model) -> ir.Model:
        if not self.passes:
            return model
        repaired = model.clone()
        try:
            run_passes(repaired, list(self.passes))
        except GraphfixError as error:
            raise ModelError(str(error)) from error
        return repaired

    def _worst_difference(
        self,
        candidate: Candidate,
        expected: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> Failure | None:
        # Not where it fails: there the reference would differ from itself by as much.
        noise = NoiseSource(candidate.model, candidate.model, as_used=False)

        def measure_noise(_: str, scales: Scales) -> Noise:
            return noise.measure_case(candidate.feeds, expected, scales, Budget().part)

        missing = expected.keys() - outputs.keys()
        if missing:
            return Failure("fails", "missing output", f"there is no output {min(missing)!r}")
        pairs = self._pairs_of(expected, outputs)
        rule = ChannelRule(self.tolerance, measure_noise=measure_noise)
        diffs = rule.compare_pairs(pairs)
        failed = [x for x in diffs if not x.ok]
        if not failed:
            return None
        worst = max(failed, key=lambda x: x.excess_ratio)
        text = f"output {worst.output!r} {worst.reason}"
        return Failure("differs", "", text, expected[worst.output], outputs[worst.output])


def _shown_alike(before: Array, after: Array) -> tuple[Array, Array]:
    """Return two arrays without what a repair may change: spread dims, and what hides a score."""
    try:
        before, after = broadcast_pair(before, after)
    except ValueError:
        return before, after
    shown = unmasked_elements(before, after)
    return before, after if shown is None else np.where(shown, after, before)


def contradicts_declaration(model: ir.Model, outputs: Mapping[str, Array]) -> bool:
    """Return whether an output has another shape than the file declares."""
    declared = {x.name or "": x.shape for x in model.graph.outputs if x.shape is not None}
    return any(contradicts_shape(declared[k], x.shape) for k, x in outputs.items() if k in declared)


def failure_code(text: str) -> str:
    """Return what an error has in common with the same error of another model."""
    if (code := hresult.find_code(text)) is not None:
        return code.key
    return " ".join(_OWN_WORDS.sub("", text).split())[:_CODE_LENGTH]

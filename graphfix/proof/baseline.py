"""What the original makes of its inputs: that is what a repaired model is held to."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.facts.fixed_inputs import arrays_since
from graphfix.feeds.arrays import Maker
from graphfix.feeds.case import Case, Cases, Dropped, Poison
from graphfix.feeds.case_search import search
from graphfix.feeds.case_style import Style
from graphfix.feeds.coverage import Coverage, coverage
from graphfix.feeds.poison import poisoned
from graphfix.feeds.roles import UNUSED
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import given_case
from graphfix.files.given import PathOrModel
from graphfix.graph.dims import fixed_since
from graphfix.lengths.length_input import LengthInput
from graphfix.paths import StrPath
from graphfix.proof.branches import Branches
from graphfix.proof.budget import Budget
from graphfix.proof.compare import Array, Mask, Tolerance
from graphfix.proof.content import Content
from graphfix.proof.output_record import kept_positive, silent_outputs
from graphfix.proof.state_steps import Chain, chains
from graphfix.runtime.compared_session import Opened, open_given
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import OverBudgetError, RunError

Outputs = dict[str, Array]
Sizes = Mapping[str, Sequence[int]]


# Garbage is put into the padding of so many cases, of those whose first row is full.
_POISONED = 2
# So many inputs are changed alone to see whether an output follows; not dozens of caches.
_ASKED = 16


@dataclass
class Ran:
    """A case and what the original made of it."""

    case: Case
    outputs: Outputs
    kept: dict[str, Mask] = field(default_factory=dict)
    """Of a poisoned case: where the original keeps each output clean."""
    apart: dict[str, Mask] = field(default_factory=dict)
    """Of a case with a row in which nothing is content: where the original keeps that row out."""


class Baseline:
    """The cases that the original runs, and its outputs.

    Args:
        source: The original, to load.
        graph: Its graph.
        after: Gives the repaired model, whose signature may leave fewer sizes to choose.
        tolerance: What may differ where the original keeps garbage out.
        tell: Called with what is run next.
        budget: How long cases that are made up may take.

    Attributes:
        graph: The graph of the original.
        runs: What was run, with the outputs; known after :meth:`find`, as the others.
        dropped: Cases that the original cannot run.
        signature: Its inputs.
        content: What is content in its outputs.
        notes: What a reader should know of how it was run.
        branches: Which branches the original took.
        constants: What some inputs are fed in every case: the repaired model has constants there.
        left_out: Cases that would have cost too much.
        unheard: Inputs of which no change reached an output.
        chains: Steps, the outputs of one fed to the next; none of a model without states.
    """

    signature: Signature
    content: Content

    def __init__(
        self,
        source: PathOrModel,
        graph: ir.Model,
        after: Callable[[], ir.Model],
        tolerance: Tolerance,
        tell: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        self.budget = budget or Budget()
        self._source, self.graph, self._after = source, graph, after
        self._tolerance, self._tell = tolerance, tell
        self.runs: list[Ran] = []
        self.dropped: list[Dropped] = []
        self.notes: list[str] = []
        self.constants: dict[str, Array] = {}
        self.branches = Branches(graph)
        self.left_out: list[str] = []
        self.chains: list[Chain] = []
        self.unheard: list[str] = []
        self._made = False
        self._opened: dict[str, Outputs] | None = None
        self._leaks: dict[tuple[str, str], str] = {}  # the first of each output and poison

    def leaks(self, held: Collection[Poison]) -> tuple[str, ...]:
        """Where the original lets garbage through, which is excluded from the comparison.

        Args:
            held: The garbage that is.
        """
        return tuple(text for (_, poison), text in self._leaks.items() if poison not in held)

    def forget_repaired(self) -> None:
        """Let go of the repaired model, which only finding the cases asks of: its file may go."""
        self._after = lambda: self.graph

    def as_opened(self, runs: Sequence[Ran]) -> dict[str, Outputs] | None:
        """What a session with all optimizations makes of some cases; None if it fails."""
        if self._opened is None:
            self._opened = {}
            with contextlib.suppress(ModelError, RunError), Session(self._source) as session:
                self._opened = {x.case.name: session.run(x.case.feeds) for x in runs}
        return self._opened or None

    def coverage(self, compared: Collection[str]) -> Coverage:
        """What the made-up cases have met, and what they have not; nothing of given ones.

        Args:
            compared: The names of the cases of which something was compared.
        """
        if not self._made:
            return Coverage()
        cases = [run.case for run in self.runs if run.case.name in compared]
        found = coverage(cases, self.signature)
        mute = tuple(f"a change of {name!r} that reaches an output" for name in self.unheard)
        covered = (x for x in found.covered if not any(f"{n!r}" in x for n in self.unheard))
        return Coverage(tuple(covered), (*found.missing, *mute))

    def find(
        self,
        cases: Sequence[Case] | None,
        dims: Sizes | None,
        feeds: StrPath | Feeds | None,
        seed: int,
    ) -> None:
        """Find the cases and run the original on them."""
        self.constants = self._constants()
        self.branches = Branches(self.graph, self.constants)
        with open_given(self._source, self.branches.conditions) as session:
            if feeds is None and cases is None:
                self._search(session, dims, seed)
            else:
                self.signature = Signature(self.graph, constants=self.constants)
                given = [] if feeds is None else [given_case(feeds, self.signature)]
                self._run_cases(session, given or cases or ())
            if self._made:
                used = [x.name for x in self.signature.inputs if x.role.why != UNUSED]
                self.unheard = [x for x in used[:_ASKED] if not self._is_heard(session, x, seed)]
                start = self.signature.groups_in(self.runs[0].case.dims)
                found = chains(
                    self.graph, self.signature, start, lambda x: self._outputs(session, x), seed
                )
                self.chains += found
            self.content = Content(self.signature)
            if self._pads_otherwise():
                self.runs = [run for run in self.runs if not run.case.ragged]
                self.notes += ["padding is left to graphfix padded: there the repair differs"]
            if any(run.case.ragged for run in self.runs):
                self.content.learn([(run.case, run.outputs) for run in self.runs])
                self._set_apart(session, seed)
                self._poison(session, seed)

    def _pads_otherwise(self) -> bool:
        """Whether a repair takes valid lengths from an input that the original has as well.

        The original lets padding through, or it would not have been repaired.
        """
        told = LengthInput.of(self._after())
        names = {value.name for value in self.graph.graph.inputs}
        return told is not None and told.input in names and LengthInput.of(self.graph) != told

    def _run_cases(self, session: Opened, cases: Sequence[Case]) -> None:
        for case in cases:
            self._tell(f"before, {case.name}")
            try:
                self.runs.append(Ran(case, self._outputs(session, case)))
            except RunError as error:
                raise FeedError(
                    f"the model as given does not run on the case {case.name!r}: {error}"
                ) from error

    def _search(self, session: Opened, dims: Sizes | None, seed: int) -> None:
        fixed = fixed_since(self.graph, self._after())
        wanted = {**{name: [size] for name, size in fixed.items()}, **(dims or {})}
        self._made = True
        found, outputs = self._tried(session, wanted, seed)
        self.notes += found.signature.unheard()
        if silent := silent_outputs(outputs.values()):
            again, others = self._tried(session, wanted, seed, positive=True)
            if len(silent_outputs(others.values())) < len(silent):
                found, outputs = again, others
                self.notes.append(kept_positive(silent))
        self.signature = found.signature
        self.runs = [Ran(case, outputs[case.name]) for case in found]
        self.dropped, self.left_out = found.dropped, found.left_out

    def _tried(
        self, session: Opened, dims: Sizes, seed: int, *, positive: bool = False
    ) -> tuple[Cases, dict[str, Outputs]]:
        """The cases that run, and what came of each."""
        outputs: dict[str, Outputs] = {}
        told = LengthInput.of(self._after())

        def run(case: Case) -> None:
            self._tell(f"before, {case.name}")
            outputs[case.name] = self._outputs(session, case)

        found = search(
            self.graph,
            run,
            dims=dims,
            seed=seed,
            cover=True,
            positive=positive,
            constants=self.constants,
            told=told if self._pads_otherwise() else None,
            frames=told is not None,
        )
        return found, outputs

    def _is_heard(self, session: Opened, name: str, seed: int) -> bool:
        """Whether an output changes with an input alone, in the smallest case or the largest."""
        maker = Maker(self.signature, seed + 1)
        fed = (x for x in self.runs if x.case.feeds[name].size)
        runs = sorted(fed, key=lambda x: x.case.volume)
        tried = False
        # What is as loud as noise may drive each gate of a model to its end, whatever it is.
        styles = (Style("none full"), Style("none full", values="quiet"))
        runs = [*runs[:2], *runs[-1:]]
        for run, (step, style) in itertools.product(runs, enumerate(styles, 1)):
            groups = self.signature.groups_in(run.case.dims)
            other = maker.case(step, groups, style=style).feeds[name]
            if np.array_equal(other, run.case.feeds[name]):
                continue
            case = replace(run.case, feeds={**run.case.feeds, name: other})
            with contextlib.suppress(RunError):
                outputs = self._outputs(session, case)
                tried = True
                if any(not np.array_equal(x, outputs[n]) for n, x in run.outputs.items()):
                    return True
        return not tried

    def _outputs(self, session: Opened, case: Case) -> Outputs:
        if not self._made:
            return self.branches.see(session.run(case.feeds))
        return self.branches.see(self.budget.run(case, lambda: session.run(case.feeds)))

    def _constants(self) -> dict[str, Array]:
        """What the original is fed where the repaired model says that it has a constant."""
        try:
            return arrays_since(self.graph, self._after())
        except ModelError:
            return {}  # the verdict will say so

    def _poison(self, session: Opened, seed: int) -> None:
        for run, kinds in self._to_poison():
            for case in poisoned(run.case, self.signature, seed, kinds):
                self._tell(f"before, {case.name}")
                try:
                    outputs = self._outputs(session, case)
                except OverBudgetError:
                    continue
                except RunError as error:
                    self.dropped.append(Dropped(case.name, str(error)))
                    continue
                self.runs.append(Ran(case, outputs, self._kept(run, outputs, case)))

    def _to_poison(self) -> list[tuple[Ran, tuple[Poison, ...]]]:
        """Cases with padding, and what to put into it."""
        ragged = [run for run in self.runs if run.case.ragged and not run.case.empty_rows]
        left = [run for run in ragged if run.case.side == "left"]
        full = [run for run in ragged if run.case.side != "left" and _first_full(run.case)]
        none = [run for run in ragged if run.case.side != "left" and not _first_full(run.case)]
        both: tuple[Poison, ...] = ("NaN", "large values")
        usual: tuple[Poison, ...] = ("large values", "other numbers")
        return [
            *((run, both) for run in full[-_POISONED:-1]),
            *((run, (*both, "other numbers")) for run in full[-1:]),
            *((run, usual if full else ("NaN", *usual)) for run in none[-1:]),
            *((run, ("NaN",)) for run in left[-1:]),
        ]

    def _set_apart(self, session: Opened, seed: int) -> None:
        """Learn where a row without content reaches nothing else.

        What a model makes of such a row may be garbage, which a repair may change; and a
        quantization at run time, say, lets it into the other rows.
        """
        for run in self.runs:
            if not run.case.empty_rows:
                continue
            for case in poisoned(run.case, self.signature, seed, ("large values",)):
                with contextlib.suppress(RunError):
                    run.apart = self._kept(run, self._outputs(session, case), case, leaks=False)

    def _kept(
        self, clean: Ran, outputs: Outputs, case: Case, *, leaks: bool = True
    ) -> dict[str, Mask]:
        kept: dict[str, Mask] = {}
        for name, array in outputs.items():
            kept[name] = self.content.kept(name, case, clean.outputs[name], array, self._tolerance)
            where = self.content.where(name, array.shape, case)
            content = array.size if where is None else int(where.sum())
            leaked = content - int(kept[name].sum())
            if leaks and leaked and case.poison != "other numbers":  # large values say it, too
                self._leaks.setdefault(
                    (name, case.poison),
                    f"the original leaks {case.poison} from the padding into {name!r} too: "
                    f"{leaked:,} of {content:,} elements are excluded from the comparison, "
                    f"in case {case.name!r}",
                )
        return kept


def _first_full(case: Case) -> bool:
    return all(rows[0] == case.dims[s] for s, rows in case.valid.items() if s in case.dims)


@dataclass
class Held:
    """What the original made of its inputs, kept for verdicts on other models made of it.

    They have to be fed in the same way: the same input sizes are fixed in all, the same inputs
    added. Nothing is kept of an original that draws random numbers.

    Attributes:
        original: The original's cases, run.
        failed: The names of cases in which a model was found to differ: the next that is only to
            be told apart begins with them.
    """

    original: Baseline | None = None
    failed: list[str] = field(default_factory=list)

    @property
    def graph(self) -> ir.Model | None:
        """The original, as it was read to be run; not to be changed."""
        return None if self.original is None else self.original.graph

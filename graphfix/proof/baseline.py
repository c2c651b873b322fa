"""The original's outputs on the test cases, with which a repaired model is compared."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import subject_of
from graphfix.errors import FeedError, ModelError
from graphfix.facts.fixed_inputs import fixed_input_arrays
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case import Case, Cases, DroppedCase, Poison
from graphfix.feeds.case_search import search_cases
from graphfix.feeds.case_style import Style
from graphfix.feeds.coverage import Coverage, measure_coverage
from graphfix.feeds.mask_holes import HOLES, punch_holes
from graphfix.feeds.poison import poison_padding
from graphfix.feeds.roles import UNUSED
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import case_from_feeds
from graphfix.files.model_input import PathOrModel
from graphfix.graph.dims import newly_fixed_dims
from graphfix.lengths.length_input import LengthInput
from graphfix.paths import StrPath
from graphfix.proof.allowance import ChannelScales, Floats
from graphfix.proof.between_roundings import rounds_somewhere
from graphfix.proof.branches import BranchRecord
from graphfix.proof.budget import Budget
from graphfix.proof.compare import Array, Mask, Tolerance
from graphfix.proof.content import ContentMasks
from graphfix.proof.noise import Noise, NoiseSource, count_runs
from graphfix.proof.output_record import find_silent_outputs, positive_inputs_note
from graphfix.proof.own_rounding import OwnRounding, measure_own_rounding
from graphfix.proof.state_steps import StepChain, run_chains
from graphfix.providers.table import Ep
from graphfix.runtime.compared_session import Opened, open_default_session, open_original
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import OverBudgetError, RunError
from graphfix.wording import group_pairs

Outputs = dict[str, Array]
Sizes = Mapping[str, Sequence[int]]
Channels = dict[str, ChannelScales]


# How many cases with a full first row get garbage in their padding.
_POISONED = 2
# How many inputs are changed, one by one, to see whether an output changes; not dozens of caches.
_MOST_CHANGED_INPUTS = 16


@dataclass
class OriginalRun:
    """A case and the original's outputs for it."""

    case: Case
    outputs: Outputs
    clean_masks: dict[str, Mask] = field(default_factory=dict)
    """Where garbage does not change the original's output, in a poisoned case."""
    isolated_masks: dict[str, Mask] = field(default_factory=dict)
    """Where a row without content does not change the original's output, in a case with one."""


class Baseline:
    """The cases that the original runs, and its outputs.

    Args:
        source: The original, to load.
        graph: Its graph.
        after: Returns the repaired model, whose signature may leave fewer sizes to choose.
        tolerance: The difference up to which an output counts as unchanged by garbage.
        tell: Called with a short text before each run.
        budget: How long cases may take that are not the user's.

    Attributes:
        graph: The graph of the original.
        runs: The cases and their outputs; known after :meth:`run_cases`, as all that follows.
        dropped: Cases that the original cannot run.
        signature: The inputs of the original.
        content: Masks of the content in its outputs.
        notes: Sentences for the reader of the verdict.
        branches: Which branches the original took.
        constants: Arrays for inputs that are constants in the repaired model.
        left_out: Cases that would have cost too much.
        unmet: Sizes at which a graph decides and that no case has.
        ignored_inputs: Inputs whose change reached no output.
        chains: Steps, each fed the states of the one before; empty for a model without states.
    """

    signature: Signature
    content: ContentMasks

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
        self.runs: list[OriginalRun] = []
        self.dropped: list[DroppedCase] = []
        self.notes: list[str] = []
        self.constants: dict[str, Array] = {}
        self.branches = BranchRecord(graph)
        self.left_out: list[str] = []
        self.unmet: list[str] = []
        self.chains: list[StepChain] = []
        self.ignored_inputs: list[str] = []
        self._makes_cases = False
        self._default_outputs: dict[str, Outputs] | None = None
        self._own_rounding: dict[bool, OwnRounding | None] = {}
        self._noisy_channels: dict[tuple[str, Ep, bool], Channels] = {}
        self._noisy_steps: dict[tuple[str, Ep, bool], list[Channels]] = {}
        self._leaks: dict[tuple[str, str], str] = {}  # the first of each output and poison

    def leak_notes(self, compared: Collection[Poison]) -> tuple[str, ...]:
        """Return notes on where the original leaks garbage, excluded from the comparison.

        Args:
            compared: The kinds of garbage that are not excluded.
        """
        return tuple(text for (_, poison), text in self._leaks.items() if poison not in compared)

    def forget_repaired(self) -> None:
        """Drop the repaired model, which is needed only while cases are searched."""
        self._after = lambda: self.graph

    def default_outputs(self, runs: Sequence[OriginalRun]) -> dict[str, Outputs] | None:
        """Return some cases' outputs with all optimizations on, or None if that fails."""
        if self._default_outputs is None:
            self._default_outputs = {}
            with (
                contextlib.suppress(ModelError, RunError),
                open_default_session(self._source) as session,
            ):
                self._default_outputs = {x.case.name: session.run(x.case.feeds) for x in runs}
        return self._default_outputs or None

    def own_rounding(self, tolerance: Tolerance, *, optimize: bool) -> OwnRounding | None:
        """Return how far the original differs from itself, measured once.

        None if it does not round.

        Args:
            tolerance: The usual tolerance.
            optimize: Whether it is about sessions with ONNX Runtime's optimizations.
        """
        if optimize not in self._own_rounding and rounds_somewhere(self.graph):
            self._tell("how far the original differs from itself")
            usual = [x for x in self.runs if not x.case.poison and not x.case.empty_rows]
            usual.sort(key=lambda x: x.case.element_count)
            # Of the smallest and the largest, in turn.
            order = (y for x in zip(usual, reversed(usual), strict=True) for y in x)
            runs = {x.case.name: (x.case.feeds, x.outputs) for x in order}
            self._own_rounding[optimize] = measure_own_rounding(
                self._source,
                self.graph,
                list(runs.values()),
                tolerance,
                self.budget.part,
                optimize=optimize,
                channels=self.channels,
            )
        return self._own_rounding.get(optimize)

    @cached_property
    def channels(self) -> Channels:
        """Return the scales of the channels of each output of floats, over all cases and steps."""
        usual = [x for x in self.runs if not x.case.poison] or self.runs
        named = [
            (name, (array, self._content_mask(name, run)))
            for run in (*usual, *(step for chain in self.chains for step in runs_of(chain)))
            for name, array in run.outputs.items()
            if array.dtype.kind in "fV"
        ]
        return {name: ChannelScales.of_output(x) for name, x in group_pairs(named).items()}

    def noisy_channels(
        self,
        run: OriginalRun,
        ep: Ep,
        *,
        in_half: bool,
        forced: ir.Model | None = None,
        scales: Channels | None = None,
    ) -> Channels:
        """Return the scales with how far the original differs from itself in a case.

        Args:
            run: The case.
            ep: Where the repaired model runs.
            in_half: Whether the repaired model may round to float16.
            forced: The original with a branch forced, if the case was run on that.
            scales: The scales; by default those over all cases.
        """
        key = run.case.name, ep, in_half
        if key not in self._noisy_channels:
            self._tell(f"how far the original differs from itself, {run.case.name}")
            noise = self._noise_source(ep, in_half, forced).measure_case(
                run.case.feeds, run.outputs, scales or self.channels, self.budget.part
            )
            self._noisy_channels[key] = self._with_noise(run, noise, scales)
        return self._noisy_channels[key]

    def noisy_steps(self, chain: StepChain, ep: Ep, *, in_half: bool) -> list[Channels]:
        """Return the scales with how far the original differs from itself in each step.

        It is fed its own states, so that what one step rounds otherwise is seen in the next.
        """
        key = chain.cases[0].name, ep, in_half
        if key not in self._noisy_steps:
            self._tell(f"how far the original differs from itself, {chain.cases[0].name}")
            noise = self._noise_source(ep, in_half).measure_steps(
                functools.partial(chain.play, self.graph),
                chain.outputs,
                count_runs(self.channels, chain.outputs[0]),
                self.budget.part,
            )
            self._noisy_steps[key] = list(map(self._with_noise, runs_of(chain), noise))
        return self._noisy_steps[key]

    def _noise_source(self, ep: Ep, in_half: bool, forced: ir.Model | None = None) -> NoiseSource:
        graph = forced or self.graph
        return NoiseSource(forced or self._source, graph, ep, in_half)

    def _with_noise(
        self, run: OriginalRun, noise: Noise, scales: Channels | None = None
    ) -> Channels:
        return {
            name: own.with_noise(
                [_where(self._content_mask(name, run), x) for x in noise.get(name, ())]
            )
            for name, own in (scales or self.channels).items()
        }

    def _content_mask(self, name: str, run: OriginalRun) -> Mask | None:
        if not run.case.is_ragged or name not in run.outputs:
            return None
        return self.content.mask_of_output(name, run.outputs[name].shape, run.case)

    def coverage_of(self, compared: Collection[str]) -> Coverage:
        """Return which conditions the made-up cases met; nothing for given cases.

        Args:
            compared: The names of the cases of which something was compared.
        """
        if not self._makes_cases:
            return Coverage()
        cases = [run.case for run in self.runs if run.case.name in compared]
        met = measure_coverage(cases, self.signature)
        mute = tuple(f"a change of {name!r} that reaches an output" for name in self.ignored_inputs)
        covered = [x for x in met.covered if not any(f"{n!r}" in x for n in self.ignored_inputs)]
        covered += [HOLES] * any(HOLES in name for name in compared)
        return Coverage(tuple(covered), (*met.missing, *mute))

    def run_cases(
        self,
        cases: Sequence[Case] | None,
        dims: Sizes | None,
        feeds: StrPath | Feeds | None,
        seed: int,
    ) -> None:
        """Find the cases and run the original on them."""
        self.constants = self._find_constants()
        self.branches = BranchRecord(self.graph, self.constants)
        with open_original(self._source, self.branches.conditions) as session:
            self.notes += session.notes
            if feeds is None and cases is None:
                self._search_cases(session, dims, seed)
            else:
                self.signature = Signature(self.graph, constants=self.constants)
                user_cases = [] if feeds is None else [case_from_feeds(feeds, self.signature)]
                self._run_given_cases(session, user_cases or cases or ())
            if self._makes_cases:
                self.ignored_inputs = self._find_ignored_inputs(session, seed)
                start = self.signature.group_sizes(self.runs[0].case.dims)
                self.chains += run_chains(
                    self.graph, self.signature, start, lambda x: self._outputs_of(session, x), seed
                )
            self.content = ContentMasks(self.signature)
            if self._repair_reads_lengths():
                self.runs = [run for run in self.runs if not run.case.is_ragged]
                self.notes += ["padding is left to graphfix padded: there the repair differs"]
            if any(run.case.is_ragged for run in self.runs):
                self.content.learn_dims([(run.case, run.outputs) for run in self.runs])
                self._find_isolated_rows(session, seed)
                self._run_poisoned(session, seed)
            if self._makes_cases and LengthInput.from_metadata(self._after()) is None:
                self._run_holes(session, seed)

    def _repair_reads_lengths(self) -> bool:
        """Return whether a repair takes valid lengths from an input that the original has too.

        The original lets padding through, or it would not have been repaired.
        """
        length_input = LengthInput.from_metadata(self._after())
        names = {value.name for value in self.graph.graph.inputs}
        return (
            length_input is not None
            and length_input.input in names
            and LengthInput.from_metadata(self.graph) != length_input
        )

    def _run_given_cases(self, session: Opened, cases: Sequence[Case]) -> None:
        for case in cases:
            self._tell(f"before, {case.name}")
            try:
                self.runs.append(OriginalRun(case, self._outputs_of(session, case)))
            except RunError as error:
                raise FeedError(
                    f"{subject_of(self.graph)} does not run on the case {case.name!r}: {error}"
                ) from error

    def _search_cases(self, session: Opened, dims: Sizes | None, seed: int) -> None:
        fixed = newly_fixed_dims(self.graph, self._after())
        sizes = {**{name: [size] for name, size in fixed.items()}, **(dims or {})}
        self._makes_cases = True
        cases, outputs = self._try_cases(session, sizes, seed)
        self.notes += cases.signature.unused_input_notes()
        if silent := find_silent_outputs(outputs.values()):
            positive_cases, positive_outputs = self._try_cases(session, sizes, seed, positive=True)
            if len(find_silent_outputs(positive_outputs.values())) < len(silent):
                cases, outputs = positive_cases, positive_outputs
                self.notes.append(positive_inputs_note(silent))
        self.signature = cases.signature
        self.runs = [
            OriginalRun(case, outputs[case.name], _finite_masks(case, outputs[case.name]))
            for case in cases
        ]
        self.dropped, self.left_out, self.unmet = cases.dropped, cases.left_out, cases.unmet

    def _try_cases(
        self, session: Opened, dims: Sizes, seed: int, *, positive: bool = False
    ) -> tuple[Cases, dict[str, Outputs]]:
        """Return the cases that run, and the outputs of each."""
        outputs: dict[str, Outputs] = {}
        length_input = LengthInput.from_metadata(self._after())

        def run_case(case: Case) -> None:
            self._tell(f"before, {case.name}")
            outputs[case.name] = self._outputs_of(session, case)

        cases = search_cases(
            self.graph,
            run_case,
            dims=dims,
            seed=seed,
            cover=True,
            positive=positive,
            constants=self.constants,
            length_input=length_input if self._repair_reads_lengths() else None,
            frames=length_input is not None,
            repaired=self._after(),
        )
        return cases, outputs

    def _find_ignored_inputs(self, session: Opened, seed: int) -> list[str]:
        """Return the inputs that the graph uses, but whose change reaches no output."""
        used = [x.name for x in self.signature.inputs if x.role.why != UNUSED]
        changed = used[:_MOST_CHANGED_INPUTS]
        return [x for x in changed if not self._affects_outputs(session, x, seed)]

    def _affects_outputs(self, session: Opened, name: str, seed: int) -> bool:
        """Return whether changing one input alone changes an output."""
        maker = CaseMaker(self.signature, seed + 1)
        fed = (x for x in self.runs if x.case.feeds[name].size and not x.case.poison)
        runs = sorted(fed, key=lambda x: x.case.element_count)
        tried = False
        # Noise may drive each gate of a model to its end, whatever it is: try quiet inputs too.
        styles = (Style("none full"), Style("none full", values="quiet"))
        runs = [*runs[:2], *runs[-1:]]
        for run, (step, style) in itertools.product(runs, enumerate(styles, 1)):
            groups = self.signature.group_sizes(run.case.dims)
            changed = maker.make_case(step, groups, style=style).feeds[name]
            if np.array_equal(changed, run.case.feeds[name]):
                continue
            case = replace(run.case, feeds={**run.case.feeds, name: changed})
            with contextlib.suppress(RunError):
                outputs = self._outputs_of(session, case)
                tried = True
                if any(not _are_same(x, outputs[n]) for n, x in run.outputs.items()):
                    return True
        return not tried

    def _outputs_of(self, session: Opened, case: Case) -> Outputs:
        if not self._makes_cases:
            return self.branches.record_run(session.run(case.feeds))
        return self.branches.record_run(self.budget.run(case, lambda: session.run(case.feeds)))

    def _find_constants(self) -> dict[str, Array]:
        """Return the arrays of inputs that the repaired model has constants for."""
        try:
            return fixed_input_arrays(self.graph, self._after())
        except ModelError:
            return {}  # the verdict will say so

    def _run_poisoned(self, session: Opened, seed: int) -> None:
        for run, kinds in self._cases_to_poison():
            for case in poison_padding(run.case, self.signature, seed, kinds):
                self._tell(f"before, {case.name}")
                try:
                    outputs = self._outputs_of(session, case)
                except OverBudgetError:
                    continue
                except RunError as error:
                    self.dropped.append(DroppedCase(case.name, str(error)))
                    continue
                self.runs.append(OriginalRun(case, outputs, self._clean_masks(run, outputs, case)))

    def _run_holes(self, session: Opened, seed: int) -> None:
        """Run a case with holes in its masks, if the model takes one.

        With other content in the holes: what follows from it is no content either.
        """
        usual = [x.case for x in self.runs if not (x.case.poison or x.case.empty_rows)]
        usual.sort(key=lambda case: case.element_count)
        from_the_middle = usual[len(usual) // 2 :] + usual[: len(usual) // 2][::-1]
        pairs = (punch_holes(case, self.signature, seed) for case in from_the_middle)
        if (pair := next(filter(None, pairs), None)) is None:
            return
        holed, other = pair
        self._tell(f"before, {holed.name}")
        try:
            run = OriginalRun(holed, self._outputs_of(session, holed))
            outputs = self._outputs_of(session, other)
        except OverBudgetError:
            return
        except RunError as error:
            self.dropped.append(DroppedCase(holed.name, str(error)))
            return
        masks = self._clean_masks(run, outputs, other, leaks=False)
        self.runs.append(OriginalRun(other, outputs, masks))

    def _cases_to_poison(self) -> list[tuple[OriginalRun, tuple[Poison, ...]]]:
        """Return cases with padding, and the kinds of garbage to put into it."""
        ragged = [run for run in self.runs if run.case.is_ragged and not run.case.empty_rows]
        by_layout = group_pairs((_padding_layout(run.case), run) for run in ragged)
        left_padded, full, none = (
            by_layout.get(x, []) for x in ("on the left", "behind others", "behind all rows")
        )
        nan_and_large: tuple[Poison, ...] = ("NaN", "large values")
        usual: tuple[Poison, ...] = ("large values", "other numbers")
        return [
            *((run, nan_and_large) for run in full[-_POISONED:-1]),
            *((run, (*nan_and_large, "other numbers")) for run in full[-1:]),
            *((run, usual if full else ("NaN", *usual)) for run in none[-1:]),
            *((run, ("NaN",)) for run in left_padded[-1:]),
        ]

    def _find_isolated_rows(self, session: Opened, seed: int) -> None:
        """Find where a row without content changes no other row.

        The output of such a row may be garbage, which a repair may change. It may reach the other
        rows: a quantization at run time takes its scale from all of them.
        """
        for run in self.runs:
            if not run.case.empty_rows:
                continue
            for case in poison_padding(run.case, self.signature, seed, ("large values",)):
                with contextlib.suppress(RunError):
                    run.isolated_masks = self._clean_masks(
                        run, self._outputs_of(session, case), case, leaks=False
                    )

    def _clean_masks(
        self, clean: OriginalRun, outputs: Outputs, case: Case, *, leaks: bool = True
    ) -> dict[str, Mask]:
        masks: dict[str, Mask] = {}
        for name, array in outputs.items():
            masks[name] = self.content.clean_mask(
                name, case, clean.outputs[name], array, self._tolerance
            )
            where = self.content.mask_of_output(name, array.shape, case)
            content = array.size if where is None else int(where.sum())
            leaked = content - int(masks[name].sum())
            if leaks and leaked and case.poison != "other numbers":  # large values say it, too
                self._leaks.setdefault(
                    (name, case.poison),
                    f"the original leaks {case.poison} from the padding into {name!r} too: "
                    f"{leaked:,} of {content:,} elements are excluded from the comparison, "
                    f"in case {case.name!r}",
                )
        return masks


def _are_same(expected: Array, actual: Array) -> bool:
    """Return whether two outputs are equal, NaN where the other has NaN."""
    return np.array_equal(expected, actual, equal_nan=expected.dtype.kind == "f")


def runs_of(chain: StepChain) -> list[OriginalRun]:
    """Return the steps of a chain as runs of cases."""
    steps = zip(chain.cases, chain.outputs, strict=True)
    return [OriginalRun(case, dict(outputs)) for case, outputs in steps]


def _finite_masks(case: Case, outputs: Outputs) -> dict[str, Mask]:
    """Return where the original's answer to NaN and infinity counts: where it is a number.

    Whole numbers count where every float is one: the largest of NaN is anywhere.
    """
    if case.poison != "guarded numbers":
        return {}
    masks = {name: np.isfinite(x) for name, x in outputs.items() if x.dtype.kind in "fV"}
    all_finite = all(mask.all() for mask in masks.values())
    return {
        name: masks.get(name, np.full(array.shape, all_finite)) for name, array in outputs.items()
    }


def _where(mask: Mask | None, array: Floats) -> Floats:
    """Return an array with NaN where a mask is false."""
    return array if mask is None else np.where(mask, array, np.nan)


def _padding_layout(case: Case) -> str:
    """Return where a case has padding; "behind others" if its first row is full."""
    if case.side == "left":
        return "on the left"
    first_is_full = (rows[0] == case.dims[s] for s, rows in case.valid.items() if s in case.dims)
    return "behind others" if all(first_is_full) else "behind all rows"


@dataclass
class BaselineCache:
    """The original's runs, kept for verdicts on other models made from it.

    All of them have to be fed in the same way: the same input sizes fixed, the same inputs added.
    An original that draws random numbers is not stored.

    Attributes:
        original: The original's cases, run.
        failed: The names of cases in which a model differed; a brief verdict on the next begins
            with them.
    """

    original: Baseline | None = None
    failed: list[str] = field(default_factory=list)

    @property
    def graph(self) -> ir.Model | None:
        """Return the original's graph as it was read to be run; not to be changed."""
        return None if self.original is None else self.original.graph

"""Runs of both models through branches that no case took."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.proof.baseline import Baseline, OriginalRun
from graphfix.proof.branches import Branch, force_branch
from graphfix.proof.compare import Array
from graphfix.providers.table import Ep
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell, plural

# How many branches are forced; each takes two more sessions.
_MOST_FORCED = 8
# How many that no run took are named; an export may have dozens, one in another.
_MOST_NAMED = 4


class ForcedBranches:
    """The branches that no case took, run in both models.

    Args:
        original: The original's runs of the cases.
        before: The original.
        after: The repaired model.
        ep: Where the repaired model runs.
        tell: Called with a short text before each run.

    Attributes:
        runs: The original's runs with a branch forced that the repaired model ran as well.
    """

    def __init__(
        self, original: Baseline, before: ir.Model, after: ir.Model, ep: Ep, tell: Tell
    ) -> None:
        self._branches = list(original.branches.iter_untaken())
        self._usual = [run.case for run in original.runs if not run.case.poison]
        self._before, self._after, self._ep, self._tell = before, after, ep, tell
        self.runs: list[OriginalRun] = []
        self._untaken = list(self._branches)
        self._open_loops = list(original.branches.iter_open_loops())

    @property
    def untaken(self) -> list[str]:
        """Return the branches and the trips of Loops that no run took, in words."""
        names = list(dict.fromkeys(map(str, self._untaken)))
        more = len(names) - _MOST_NAMED
        names = names[:_MOST_NAMED] + ([plural(more, "more branch", "more branches")] * (more > 0))
        return [*names, *self._open_loops[:_MOST_NAMED]]

    def run_both(
        self, feeds: Callable[[Case], Feeds]
    ) -> Iterator[tuple[ir.Model, OriginalRun, dict[str, Array]]]:
        """Yield the original with a branch forced, its run, and the repaired model's outputs.

        Args:
            feeds: Returns the inputs of the repaired model for a case.

        Raises:
            ModelError: The repaired model does not run with a branch forced.
        """
        for branch in self._branches[:_MOST_FORCED]:
            before, after = force_branch(self._before, branch), force_branch(self._after, branch)
            if before is None or after is None:
                continue
            runs = self._run_original(before, branch)
            if not runs:
                continue
            try:
                with open_session(after, self._ep) as session:
                    for run in runs:
                        yield before, run, session.run(feeds(run.case))
            except (ModelError, RunError) as error:
                message = f"the repaired model does not run with {branch} forced: {error}"
                raise ModelError(message) from error
            self.runs += runs
            self._untaken.remove(branch)

    def _run_original(self, before: ir.Model, branch: Branch) -> list[OriginalRun]:
        """Run the original on some cases with a branch forced; return none if it cannot load."""
        runs: list[OriginalRun] = []
        try:
            with open_session(before) as session:
                for case in (self._usual[0], max(self._usual, key=lambda case: case.element_count)):
                    self._tell(f"before, {case.name}, {branch}")
                    forced_case = replace(case, name=f"{case.name}, {branch} forced")
                    with contextlib.suppress(RunError):
                        runs.append(OriginalRun(forced_case, session.run(case.feeds)))
        except ModelError:
            return []
        return runs

"""Proof of a merged model: two models one after the other against both as one."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphfix.core import Feeds
from graphfix.editing.join import Joined
from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import check_sizes, search_cases
from graphfix.feeds.coverage import measure_coverage
from graphfix.files.model_input import PathOrModel, as_model
from graphfix.proof import output_record
from graphfix.proof.budget import Budget
from graphfix.proof.by_channel import ChannelRule, OutputPair
from graphfix.proof.compare import OutputDiff, Tolerance
from graphfix.proof.verdict import Verdict
from graphfix.runtime.compared_session import (
    Opened,
    open_default_session,
    open_original,
    open_session,
)
from graphfix.runtime.run_errors import RunError

# The smallest cases are also run in a session as users open it.
_OPTIMIZED = 2


@dataclass(frozen=True)
class Chain:
    """Two models, of which the first feeds the second.

    Attributes:
        first: The model that runs first, as it was given.
        second: The model that runs second, as it was given.
        connect: The input of the second by the output of the first that feeds it.
        joined: Both as one model.
    """

    first: PathOrModel
    second: PathOrModel
    connect: Mapping[str, str]
    joined: Joined

    def run(self, sessions: Sequence[Opened], feeds: Feeds) -> Feeds:
        """Run one model after the other; return the outputs under their names in the whole.

        Args:
            sessions: A session of each.
            feeds: The inputs of the whole.

        Raises:
            RunError: One does not run.
        """
        own = {x.name for x in as_model(self.first).graph.inputs}
        outputs = sessions[0].run({name: x for name, x in feeds.items() if name in own})
        passed_on = {target: outputs[source] for source, target in self.connect.items()}
        others = {old: feeds[new] for old, new in self.joined.inputs.items() if new in feeds}
        results = sessions[1].run({**others, **passed_on})
        kept = {name: x for name, x in outputs.items() if name not in self.connect}
        return {**kept, **{self.joined.outputs[name]: x for name, x in results.items()}}


def prove_chain(
    chain: Chain,
    whole: PathOrModel,
    *,
    dims: Mapping[str, Sequence[int]] | None = None,
    tolerance: Tolerance | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Run both models one after the other, and both as one, on made inputs, and compare.

    Args:
        chain: The two models.
        whole: Both as one, as it was written.
        dims: Sizes to use, by the name of the symbolic dim of the whole.
        tolerance: What may differ.
        progress: Called with a short text at each step.

    Raises:
        FeedError: There are no inputs that both run.
        ModelError: ONNX Runtime rejects one of the two.
    """
    model, tell, budget = chain.joined.model, progress or (lambda _: None), Budget()
    check_sizes(model, dims)
    expected: dict[str, Feeds] = {}
    with open_original(chain.first) as first, open_original(chain.second) as second:

        def run_case(case: Case) -> None:
            tell(f"one after the other, {case.name}")
            expected[case.name] = budget.run(case, lambda: chain.run((first, second), case.feeds))

        cases = search_cases(model, run_case, dims=dims, cover=True)
    rule = ChannelRule.between((as_model(chain.first), as_model(chain.second)), tolerance)
    small = sorted(cases, key=lambda x: x.element_count)[:_OPTIMIZED]
    runs: list[tuple[Callable[[PathOrModel], Opened], Iterable[Case], str]] = [
        (open_session, cases, ""),
        (open_default_session, small, ", optimized"),
    ]
    diffs: dict[str, tuple[OutputDiff, ...]] = {}
    for open_one, chosen, suffix in runs:
        try:
            with contextlib.closing(open_one(whole)) as session:
                for case in chosen:
                    tell(f"as one, {case.name}{suffix}")
                    name = f"{case.name}{suffix}"
                    diffs[name] = _compare(rule, name, expected[case.name], session.run(case.feeds))
        except (ModelError, RunError) as error:
            return Verdict(False, diffs, reason=f"the merged model does not run: {error}")
    ok = all(x.ok for own in diffs.values() for x in own)
    reason = "; ".join(output_record.find_faults(diffs)) if ok else ""
    return Verdict(
        ok and not reason,
        diffs,
        tuple(cases.dropped),
        reason,
        tuple(output_record.find_notes(diffs)),
        dims={case.name: case.dims for case in cases},
        covered=measure_coverage(cases, cases.signature).covered,
        not_tried=(*measure_coverage(cases, cases.signature).missing, *cases.unmet),
    )


def _compare(
    rule: ChannelRule, case: str, expected: Feeds, outputs: Feeds
) -> tuple[OutputDiff, ...]:
    missing = [
        OutputDiff(x, case, ok=False, reason="is missing") for x in expected.keys() - outputs
    ]
    pairs = [OutputPair(x, case, y, outputs[x]) for x, y in expected.items() if x in outputs]
    return (*missing, *rule.compare_pairs(pairs))

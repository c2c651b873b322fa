"""What a user's session makes: ONNX Runtime opens a model with all of its optimizations.

The cases are compared without them, so that what differs is the models. But its optimizer may die
of a graph, or compute something else of one form of it than of another.
"""

from collections.abc import Callable, Mapping, Sequence

from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.graph.walks import nodes_of
from graphfix.proof.baseline import Baseline, Ran
from graphfix.proof.compare import Array
from graphfix.proof.judge import Judge
from graphfix.runtime.local_session import Session
from graphfix.runtime.model_source import Source
from graphfix.runtime.run_errors import RunError

Feeds = Callable[[Case], Mapping[str, Array]]

# Those that changed most of what failed; without one of them it may run.
_OPTIMIZERS = (
    *("NchwcTransformer", "NhwcTransformer", "ConstantFolding", "TransposeOptimizer"),
    *("QDQSelectorActionTransformer", "LayerNormFusion", "AttentionFusion", "GeluFusionL2"),
    *("MatMulAddFusion", "ConvActivationFusion"),
)
_ROUNDING = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul"})


class DefaultSession:
    """The repaired model as users open it, beside the original.

    Args:
        after: The repaired model.
        original: The original, and what it makes.
        judge: Holds one to the other.
        feeds: Makes the inputs of a case.
        runs: What the original makes of the cases that count; two are run.
    """

    def __init__(
        self, after: Source, original: Baseline, judge: Judge, feeds: Feeds, runs: Sequence[Ran]
    ) -> None:
        self._after, self._original = after, original
        self._judge, self._feeds = judge, feeds
        usual = [x for x in runs if not x.case.poison] or list(runs)
        usual.sort(key=lambda x: x.case.volume)
        self._runs = list({x.case.name: x for x in (usual[0], usual[len(usual) // 2])}.values())

    def fault(self, *, random: bool, locate: bool) -> str:
        """Why the proof fails; "" if it does not. What is no fault goes into the judge's notes.

        Args:
            random: Whether the models draw random numbers, and nothing can be compared.
            locate: Whether to search for the optimizer that is to blame.
        """
        try:
            made = self._outputs()
        except (ModelError, RunError) as error:
            if self._original.as_opened(self._runs) is None:
                self._note("neither model runs in a session as users open it, with optimizations")
                return ""
            told = f"in a session as users open it, with all optimizations, it fails: {error}"
            return told + (self._blamed() if locate else "")
        before = None if random else self._original.as_opened(self._runs)
        if before is None:
            return ""
        for run, outputs in zip(self._runs, made, strict=True):
            own = Ran(run.case, before[run.case.name], run.kept, run.apart)
            diff = next((x for x in self._judge.diffs(own, outputs) if not x.ok), None)
            if diff is not None:
                told = "in sessions as users open them, with all optimizations, "
                told += f"output {diff.output!r} {diff.reason}, in case {diff.case!r}"
                if any(x.op_type in _ROUNDING for x in nodes_of(self._original.graph.graph)):
                    self._note(f"{told}: what is quantized is rounded otherwise there")
                    return ""
                return told
        return ""

    def _note(self, text: str) -> None:
        self._judge.notes[text] = None

    def _outputs(self, without: Sequence[str] = ()) -> list[dict[str, Array]]:
        with Session(self._after, without=without) as session:
            return [session.run(self._feeds(x.case)) for x in self._runs]

    def _blamed(self) -> str:
        """The optimizer without which it runs."""
        for name in _OPTIMIZERS:
            try:
                self._outputs([name])
            except (ModelError, RunError):
                continue
            return f"; without ONNX Runtime's {name} it runs (disabled_optimizers=[{name!r}])"
        return ""

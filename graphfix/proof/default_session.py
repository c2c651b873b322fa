"""Check in a default session, as users open it: with all of ONNX Runtime's optimizations.

The cases are compared without optimizations, so that only the models differ. But ONNX Runtime's
optimizer may crash on a graph, or change the result of one form of it and not of another.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from graphfix import ops
from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.files.model_input import PathOrModel
from graphfix.graph.walks import nodes_of
from graphfix.proof.baseline import Baseline, OriginalRun
from graphfix.proof.compare import Array, OutputDiff
from graphfix.runtime.compared_session import open_default_session
from graphfix.runtime.run_errors import RunError

Feeds = Callable[[Case], Mapping[str, Array]]
Comparison = Callable[[OriginalRun, dict[str, Array]], Iterable[OutputDiff]]

# The optimizers that are to blame most often; without one of them the model may run.
_OPTIMIZERS = (
    *("NchwcTransformer", "NhwcTransformer", "ConstantFolding", "TransposeOptimizer"),
    *("QDQSelectorActionTransformer", "LayerNormFusion", "AttentionFusion", "GeluFusionL2"),
    *("MatMulAddFusion", "ConvActivationFusion"),
)
_ROUNDS = ops.ROUNDS_TO_INTEGERS | ops.named("com.microsoft.DynamicQuantizeMatMul")


class DefaultSessionCheck:
    """A check of the repaired model in a session as users open it.

    Args:
        after: The repaired model.
        original: The original and its outputs.
        compare_outputs: Compares outputs of the repaired model with those of a run.
        feeds: Returns the inputs of the repaired model for a case.
        runs: The original's runs of the cases that count; two of them are run here.
        notes: Takes sentences for the reader of the verdict.
    """

    def __init__(
        self,
        after: PathOrModel,
        original: Baseline,
        compare_outputs: Comparison,
        feeds: Feeds,
        runs: Sequence[OriginalRun],
        notes: dict[str, None],
    ) -> None:
        self._after, self._original = after, original
        self._compare_outputs, self._feeds, self._notes = compare_outputs, feeds, notes
        usual = [x for x in runs if not x.case.poison] or list(runs)
        usual.sort(key=lambda x: x.case.element_count)
        self._runs = list({x.case.name: x for x in (usual[0], usual[len(usual) // 2])}.values())

    def find_fault(self, *, random: bool, locate: bool) -> str:
        """Return why the proof fails, or an empty string; warnings go into the notes.

        Args:
            random: Whether the models draw random numbers, so that nothing can be compared.
            locate: Whether to search for the optimizer that is to blame.
        """
        try:
            after_outputs = self._run_cases()
        except (ModelError, RunError) as error:
            if self._original.default_outputs(self._runs) is None:
                self._add_note(
                    "neither model runs in a session as users open it, with optimizations"
                )
                return ""
            message = f"in a session as users open it, with all optimizations, it fails: {error}"
            return message + (self._culprit_text() if locate else "")
        before = None if random else self._original.default_outputs(self._runs)
        if before is None:
            return ""
        for run, outputs in zip(self._runs, after_outputs, strict=True):
            own = OriginalRun(run.case, before[run.case.name], run.clean_masks, run.isolated_masks)
            diff = next((x for x in self._compare_outputs(own, outputs) if not x.ok), None)
            if diff is not None:
                message = "in sessions as users open them, with all optimizations, "
                message += f"output {diff.output!r} {diff.reason}, in case {diff.case!r}"
                if any(x in _ROUNDS for x in nodes_of(self._original.graph.graph)):
                    self._add_note(f"{message}: what is quantized is rounded otherwise there")
                    return ""
                return message
        return ""

    def _add_note(self, text: str) -> None:
        self._notes[text] = None

    def _run_cases(self, without: Sequence[str] = ()) -> list[dict[str, Array]]:
        with open_default_session(self._after, without=without) as session:
            return [session.run(self._feeds(x.case)) for x in self._runs]

    def _culprit_text(self) -> str:
        """Return a hint with the optimizer without which the model runs, or an empty string."""
        for name in _OPTIMIZERS:
            try:
                self._run_cases([name])
            except (ModelError, RunError):
                continue
            return f"; without ONNX Runtime's {name} it runs (disabled_optimizers=[{name!r}])"
        return ""

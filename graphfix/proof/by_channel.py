"""The rule that outputs are compared by, wherever they are: each channel by its own scale.

An element that only the scale of its channel refuses may still differ as far as the original does
from itself, which is measured only then: most outputs are never that far off.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from graphfix.proof.allowance import USUAL, ChannelScales, Floats
from graphfix.proof.compare import Array, OutputDiff, Tolerance, compare
from graphfix.proof.half_outputs import count_half_roundings
from graphfix.proof.rankings import Ranking, rankings_of, settle_ties
from graphfix.wording import group_pairs

Diffs = tuple[OutputDiff, ...]
Scales = Mapping[str, ChannelScales]
# Returns how far the original differs from itself in the case of a key, by output.
MeasureNoise = Callable[[str, Scales], Mapping[str, Sequence[Floats]]]


@dataclass(frozen=True)
class OutputPair:
    """An output of the original, and of a repaired model.

    Attributes:
        output: The name of the tensor.
        case: The name of the case.
        before: The array of the original.
        after: The array of the repaired model.
        key: What its noise is measured for; pairs with the same key share it.
        note: The note of the result.
    """

    output: str
    case: str
    before: Array
    after: Array
    key: str = ""
    note: str = ""


def compare_by_channel(
    compare_outputs: Callable[[Scales | None], Iterable[OutputDiff]],
    scales: Scales,
    measure: Callable[[], Scales],
) -> Diffs:
    """Return how far the outputs of a case differ.

    Args:
        compare_outputs: Compares them by the scales of their channels; by none if it gets None.
        scales: The scales of the channels of each output.
        measure: Returns them with how far the original differs from itself.
    """
    diffs = tuple(compare_outputs(scales))
    if all(x.ok for x in diffs) or not all(x.ok for x in compare_outputs(None)):
        return diffs
    return tuple(compare_outputs(measure()))


@dataclass(frozen=True)
class ChannelRule:
    """What may differ in the outputs of a model.

    Attributes:
        tolerance: What may differ in an output that is computed in float32.
        roundings: How many nodes round to float16 on the way to each output, where any do.
        measure_noise: Returns how far the original differs from itself; None: not at all.
        rankings: The outputs of the models that rank scores.
    """

    tolerance: Tolerance = USUAL
    roundings: Mapping[str, int] = field(default_factory=dict)
    measure_noise: MeasureNoise | None = None
    rankings: tuple[Ranking, ...] = ()

    @classmethod
    def between(
        cls,
        models: Iterable[ir.Model],
        tolerance: Tolerance | None = None,
        measure_noise: MeasureNoise | None = None,
    ) -> "ChannelRule":
        """Return the rule for outputs of several models.

        Args:
            models: The models; an output may be rounded to float16 in any of them.
            tolerance: What may differ, whatever is rounded; by default the usual.
            measure_noise: Returns how far the original differs from itself.
        """
        models = list(models)
        rankings = tuple(dict.fromkeys(x for model in models for x in rankings_of(model)))
        if tolerance is not None:
            return cls(tolerance, measure_noise=measure_noise, rankings=rankings)
        counts = [count_half_roundings(x) for x in models]
        names = {name for count in counts for name in count}
        most = {name: max(count.get(name, 0) for count in counts) for name in names}
        return cls(USUAL, most, measure_noise, rankings)

    def with_tolerance(self, tolerance: Tolerance) -> "ChannelRule":
        """Return the rule with another tolerance."""
        return replace(self, tolerance=tolerance)

    def compare_pairs(self, pairs: Sequence[OutputPair]) -> Diffs:
        """Compare outputs of several cases, in the order in which they are given."""
        scales = scales_of((x.output, x.before) for x in pairs)
        settled = self.settle_pairs(pairs)
        return tuple(map(PairComparison(self, scales).compare_pair, settled))

    def settle_pairs(self, pairs: Sequence[OutputPair]) -> list[OutputPair]:
        """Return the pairs with near ties of each case ranked as in the original."""
        if not self.rankings:
            return list(pairs)
        by_case = group_pairs(((x.case, x.key), x) for x in pairs)
        settled = {
            key: settle_ties(
                self.rankings,
                {x.output: x.before for x in own},
                {x.output: x.after for x in own},
                self.tolerance,
            )
            for key, own in by_case.items()
        }
        return [replace(x, after=settled[x.case, x.key][x.output]) for x in pairs]


@dataclass(frozen=True)
class PairComparison:
    """Compares outputs by a rule, and measures the noise of a case once.

    Attributes:
        rule: The rule.
        scales: The scales of the channels of each output.
    """

    rule: ChannelRule
    scales: Scales
    _noisy: dict[str, Scales] = field(default_factory=dict)

    def compare_pair(self, pair: OutputPair) -> OutputDiff:
        """Return how far an output is off."""
        (diff,) = compare_by_channel(
            lambda scales: [self._compare_with(pair, scales)],
            self.scales,
            lambda: self._noisy_scales(pair.key),
        )
        return diff

    def _compare_with(self, pair: OutputPair, scales: Scales | None) -> OutputDiff:
        return compare(
            pair.output,
            pair.case,
            pair.before,
            pair.after,
            self.rule.tolerance.for_half(self.rule.roundings.get(pair.output, 0)),
            note=pair.note,
            channels=None if scales is None else scales.get(pair.output),
        )

    def _noisy_scales(self, key: str) -> Scales:
        if self.rule.measure_noise is None:
            return self.scales
        if key not in self._noisy:
            noise = self.rule.measure_noise(key, self.scales)
            self._noisy[key] = {n: x.with_noise(noise.get(n, ())) for n, x in self.scales.items()}
        return self._noisy[key]


def scales_of(outputs: Iterable[tuple[str, Array]]) -> dict[str, ChannelScales]:
    """Return the scales of the channels of each output of floats, from its arrays by name."""
    floats = [(name, (array, None)) for name, array in outputs if array.dtype.kind in "fV"]
    return {name: ChannelScales.of_output(x) for name, x in group_pairs(floats).items()}

"""ilens-mask: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Change, Finding, Match, Pass, Skip
from graphfix.editing.builder import is_as_exported
from graphfix.errors import PaddingError
from graphfix.facts.hidden_scores import HIDES, hides_score
from graphfix.graph.text import describe_node
from graphfix.lengths.analysis import Analysis, Refusal, analyse, find_poison_only
from graphfix.lengths.apply import apply_repairs
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.repairs.repair import Repair

_MAX_LISTED = 5
_REST_HINT = ". Leave ilens-mask out of -p, and all else is repaired"
_POISON_ONLY = "only NaN or infinity in the padding gets through; padded --poison nan measures it"
_PROFILE_HINT = ". What the profile makes plain may be analysed: -p directml,ilens-mask"


@dataclass(frozen=True)
class Leak(Match):
    """A place where padding would reach valid frames.

    Attributes:
        kind: The kind of leak, in the words of the field.
        remedy: The repair that closes it.
    """

    kind: str
    remedy: str


@dataclass(frozen=True)
class IlensMask(Pass):
    """Adds a length input `ilens`, and masks padding wherever it would reach valid frames.

    Padding leaks in known ways: a mean over the padded clip (mean pollution), a convolution, a
    frame stack or a filter memory that sees padding (boundary leak), a Softmax that gives padding
    weight (attention dilution), statistics, last frames, recurrences, lengths used as numbers. Each
    tensor is followed through the graph with its valid length, which is its symbolic size with
    `ilens` in the place of the padded dim, and a repair is made only where an operator mixes what
    is valid with what is not: 4 repairs for a HuBERT, 11 for a SenseVoice encoder.

    Why:
        DirectML compiles again for each shape that it meets, so clips are padded to one container,
        and the numbers change. Measured on exports of SenseVoice, HuBERT, wav2vec2, Whisper and
        Qwen3-ASR encoders without a mask: in a longer container their outputs differ from those of
        the clip alone by 0.13 to 6; repaired, by at most 1e-6 in containers up to 12 times as long,
        with zeros, noise, values of 1e4 or NaN in the padding.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 4] x, float[4, 4] w) => (float[B, 4] pooled)
        {
            h = MatMul (x, w)
            pooled = ReduceMean <axes = [1], keepdims = 0> (h)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 4] x, float[4, 4] w, int64[B] ilens) => (float[B, 4] pooled)
        <int64[1] one = {1}, int64 first = {0}, int64[1] front = {0}, int64[1] back = {2},
         float nought = {0.0}, int64[2] behind = {1, 2}>
        {
            per_row = Unsqueeze (ilens, one)
            size = Shape <start = 1, end = 2> (x)
            ones = ConstantOfShape <value = int64[1] {1}> (size)
            position = CumSum <exclusive = 1> (ones, first)
            positions = Unsqueeze (position, front)
            valid = Less (positions, per_row)
            mask = Unsqueeze (valid, back)
            clean = Where (mask, x, nought)
            h = MatMul (clean, w)
            total = ReduceSum <keepdims = 1> (h, one)
            some = Max (ilens, one)
            as_float = Cast <to = 1> (some)
            count = Unsqueeze (as_float, behind)
            mean = Div (total, count)
            pooled = Squeeze (mean, one)
        }

    Left alone:
        What computes each frame from itself alone:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        frames (float[B, T, 4] x, float[4, 4] w) => (float[B, T, 4] y)
        {
            h = MatMul (x, w)
            active = Relu (h)
            y = Softmax <axis = -1> (active)
        }

    Safety:
        With `ilens` equal to the padded size the model computes what it did, up to rounding where a
        mean has become a sum and a quotient; that is verified. With less, the first valid-length
        entries of each output are those of the clip alone; what lies behind them is anything
        finite. All repairs are made or none: an operator that has no rule, or a leak that has no
        repair, is an error that names the node, and nothing is written. Proved for
        the operators and sizes of the graph, in runs with no size of 0 and no table read past its
        end; a pool makes no frame of a clip that is shorter than its window, as the standard has
        it, where ONNX Runtime may make one, and a Slice of the last frames (`x[:, -3:]`) takes as
        many of a shorter clip, too, its first again. Relative positions, a table that is cut around
        its middle or a count from the last frame on, are followed until each is in its place, which
        is proved from the symbolic shapes. The size of what lies behind `ilens` must still be one
        that the model accepts, and `ilens` one of a clip that it accepts alone: where halves of the
        frames, doubled, stand beside all of them, both are even. Each row of a batch has its own
        length; `ilens` is [B], or [1] where no batch dim is symbolic. What is quantized dynamically
        shares its range with the other rows of a batch, and what counts the rows counts all of
        them, as it always did. A mask that the model has must be 1 for what is valid, then 0, and
        is believed to hide what it hides. Dims of other names that the graph takes for batch or
        time are taken to be equal to these. Inputs without the padded axis are fed as for the clip
        alone: a share of the longest row (`wav_lens`), which the graph multiplies with a size, is a
        share of `ilens` then, 1 for a clip that is content to its end.

    Options:
        axis: The axis that is padded, `input.axis` such as `axis=audio.2`; found by itself if one
            symbolic dim is left besides batch. `axis=audio.2+mask.1` says that axes of several
            inputs are of one size, and the batches of these inputs too, where the graph does not.
        from: A mask or length input that the model has already and that is to say what is valid,
            such as `from=attention_mask`; no `ilens` is added then.
        floor: What is added to a score that is to weigh nothing; finite, at most -1000. Without it
            the least number of the type, which hides what is below any score.
    """

    safe_to_pad = True

    axis: str = ""
    from_: str = ""
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.floor is not None and not (self.floor > -1e38 and hides_score(self.floor)):
            raise ValueError(f"floor={self.floor:g} must be a finite number, at most {HIDES:g}")

    def pads(self, model: ir.Model) -> str:
        """Return the axis that the options name, or that is inferred."""
        return find_length_source(model, self.axis, self.from_).axis_spec

    def sites(self, model: ir.Model) -> Iterator[Leak | Skip]:
        """Yield every leak, and every node that cannot be analysed."""
        analysis = self._analyse_padding(model)
        yield from map(_site_of, _results_of(analysis))

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """Yield leaks, and nodes that cannot be analysed: warnings, unless only NaN leaks there."""
        analysis = self._analyse_padding(model)
        results = _results_of(analysis)
        poison_only = find_poison_only(model, analysis) if results else []
        fix = None if analysis.refusals else self.spec()  # all leaks are closed or none
        for result in results:
            site = _site_of(result)
            finding = replace(self.finding(site), severity="warning", fix=fix)
            if isinstance(site, Skip):
                text = f"{site.node.op_type} cannot be analysed: {site.reason}"
                finding = replace(finding, message=text)
            if any(x is result for x in poison_only):
                kind = site.kind if isinstance(site, Leak) else "not analysed"
                text = f"{kind} at {site.node.op_type}: {_POISON_ONLY}"
                finding = replace(finding, severity="note", message=text)
            yield finding

    def message(self, site: Match) -> str:
        """Describe the leak and its repair."""
        assert isinstance(site, Leak)
        return f"{site.kind} at {site.node.op_type}: {site.remedy}"

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Close every leak, or none.

        Raises:
            PaddingError: A node cannot be analysed.
        """
        analysis = self._analyse_padding(model)
        if analysis.refusals:
            raise PaddingError(_refusal_message(analysis, model))
        if not analysis.repairs:
            return
        for at, tensor, texts, note in apply_repairs(model, analysis, self.name, self.floor):
            yield Change(self.name, at, tensor, *texts, note)

    def _analyse_padding(self, model: ir.Model) -> Analysis:
        """Return the leaks and the nodes that cannot be analysed."""
        analysis = analyse(model, find_length_source(model, self.axis, self.from_))
        length_input = LengthInput.from_metadata(model)
        if (
            length_input is not None
            and length_input.axis == analysis.source.axis_spec
            and not self.from_
        ):
            # What an earlier run has made of a leak is not always read back as closed.
            analysis.repairs, analysis.refusals = [], []
        return analysis


def _results_of(analysis: Analysis) -> list[Repair | Refusal]:
    """Return what the analysis says of nodes: the leaks, then what cannot be analysed."""
    return [*analysis.repairs, *analysis.refusals]


def _site_of(result: Repair | Refusal) -> Leak | Skip:
    """Return what the analysis says of a node as a site."""
    if isinstance(result, Refusal):
        return Skip(result.node, result.reason)
    return Leak(result.node, result.leak, result.remedy)


def _refusal_message(analysis: Analysis, model: ir.Model) -> str:
    """Return the error text that lists the nodes that cannot be analysed."""
    lines = [f"{describe_node(x.node)}: {x.reason}" for x in analysis.refusals[:_MAX_LISTED]]
    unlisted = len(analysis.refusals) - len(lines)
    unlisted_text = ""
    if unlisted:
        unlisted_text = f"; and {unlisted} more (graphfix check -p ilens-mask lists them)"
    hint = _PROFILE_HINT if is_as_exported(model) else _REST_HINT
    return (
        f"ilens-mask cannot see what padding along {analysis.source.axis_spec} does to this "
        f"model, so it repairs nothing: {'; '.join(lines)}{unlisted_text}{hint}"
    )

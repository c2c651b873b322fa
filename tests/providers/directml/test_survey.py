"""Each kind of case that survey.csv has wrong is what a rule or a pass is for, or left."""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.providers.table import PROVIDERS
from graphfix.rules import rules
from tests.survey.case import Case
from tests.survey.journal import add_lines, read_journal
from tests.survey.outcomes import Journal, Outcome
from tests.survey.table import COLUMNS, lines_of, order
from tests.survey.versions import lines_in, merge_lines, write_table

TABLE = Path(graphfix.__file__).parent / "providers" / "directml" / "survey.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))

# Operator and kind, each a regular expression, and the rules and passes that tell of it.
TOLD: list[tuple[str, str, tuple[str, ...]]] = [
    ("GatherElements", "int.*", ("short-indices",)),
    ("MatMul", "rank [56]", ("matmul-4d",)),
    ("ReverseSequence", "three dims", ("reverse-2d",)),
    ("Trilu", "rank [56]", ("kernel-rank",)),
    ("Asinh", "value (negative|large|inf)", ("negative-asinh",)),
    ("Atan|Celu|HardSigmoid|Max|Min|Relu|Sign", "value nan", ("lost-nan",)),
    ("Reduce(L1|L2|Prod|Sum|SumSquare)", "value .*|axes absent", ("lost-infinity",)),
    ("Selu", "value large", ("lost-infinity",)),
    ("Reduce.*|Conv|Pad", "empty.*", ("empty-input",)),
    ("Einsum|Gemm|MatMul", "of nothing", ("empty-input",)),
    ("Clip", "limits crossed", ("clip-minmax",)),
    ("DFT", "one element", ("lone-dft",)),
    ("MeanVarianceNormalization", "value small", ("large-epsilon",)),
    ("Pad", ".*, negative pads", ("negative-pads", "pad-slice")),
    ("Resize", "5 dims, batch 2, .*", ("resize-4d", "kernel-rank")),
    ("Resize", "antialias|not_larger|not_smaller", ("resize-mode",)),
    ("ReduceLogSumExp", "value .*|empty", ("logsumexp-shift",)),
    ("LpNormalization", ".*", ("lp-norm",)),
    ("AveragePool", "ceil_mode 1, counted .*", ("pool-pads",)),
    ("ConvTranspose", ".*SAME_.*, stride 2, .*", ("convtranspose-pads",)),
    ("ConvTranspose", "output_padding, 1 dim", ("convtranspose-2d",)),
    ("RoiAlign", "opset 10, .*", ("moved-regions",)),
    ("RoiAlign", "opset 16, (half_pixel, max|output_half_pixel), .*", ("moved-regions",)),
    ("RoiAlign", "opset 16, output_half_pixel, max, .*", ("roi-size",)),
    (r".*\.MatMulNBits", ".*(bias|g_idx|float zero points|odd blocks)", ("nbits-inputs",)),
    (r".*\.MultiHeadAttention", "attention_bias .*|unidirectional", ("attention-inputs",)),
    (r".*\.Skip.*", r"skip \[.*", ("skip-broadcast",)),
    (r".*\.SkipSimplified.*", "bias 1", ("skip-bias",)),
    (r".*(LayerNormalization)", "value 500", ("half-norm",)),
    ("SimplifiedLayerNormalization", "value 1e-3", ("half-norm",)),
]
# What is left, and why.
LEFT: list[tuple[str, str, str]] = [
    ("Transpose", "rank 0", "of a single number, which no export has"),
    ("Acosh", "value large", "beyond 1e19, whose squares no float32 holds, and below 1"),
    ("(Average|Max)Pool", ".*SAME_.*, dilation 2",
     "DirectML is right, and the CPU forgets the dilation in the pads"),
    ("Cos|Sin|Tan", "value large", "of 3e38, where no digit is right"),
    ("ThresholdedRelu", "value nan", "DirectML keeps NaN, and ONNX says 0"),
    ("RoiAlign", "opset 16, half_pixel, avg, sampling 0, boxes of no area",
     "the CPU takes no sample of a box without area, and says 0; detectors make none"),
    (r".*\.Attention", "without a bias", "float16, rounded in its steps: by 8e-3 of 1.8"),
    (r".*\.FastGelu", ".*", "DirectML computes Gelu by erf: 5e-4 from the tanh of the CPU"),
    (r".*\.QLinear(Add|AveragePool)", ".*", "a half is rounded the other way: off by one step"),
    (r".*\.Attention", "mask .*",
     "without the sizes of its result; right where its weights or the result have their sizes"),
]  # fmt: skip


def wrong() -> list[tuple[str, str]]:
    bad = ("differs", "fails", "dies")
    return sorted({(x["op"], x["kind"]) for x in ROWS if x["verdict"] in bad})


def covers(entry: tuple[str, str, object], row: tuple[str, str]) -> bool:
    return all(re.fullmatch(a, b) is not None for a, b in zip(entry[:2], row, strict=True))


@pytest.mark.parametrize("row", wrong(), ids=" ".join)
def test_what_is_wrong_is_told_or_left_for_a_reason(row: tuple[str, str]) -> None:
    entries: list[tuple[str, str, object]] = [*TOLD, *LEFT]
    assert [x for x in entries if covers(x, row)], f"{row} has neither rule nor reason"


def test_nothing_stands_here_that_the_table_does_not_say() -> None:
    entries: list[tuple[str, str, object]] = [*TOLD, *LEFT]
    assert not [x for x in entries if not any(covers(x, row) for row in wrong())]


def test_the_rules_are_there() -> None:
    assert {name for *_, names in TOLD for name in names} <= {*rules(), *registry.pass_names()}


def test_every_row_has_its_versions() -> None:
    known = {x.version for x in PROVIDERS["dml"].distributions}
    assert {version for x in ROWS for version in x["versions"].split()} == known


ADD = Case("Add", "type", (np.ones(2, np.float32), np.ones(2, np.float32)))
WRONG = Outcome("differs", 0.5, "1.5, CPU 2.0")


def test_a_survey_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "1.24.4.csv"
    journal = Journal(path)
    assert journal.get(ADD) is None
    journal.add(ADD, WRONG)
    path.write_text(path.read_text() + "0123456789abcdef,rig")  # a kill in the middle of a line
    stopped = Journal(path)
    assert stopped.get(ADD) == WRONG
    other_numbers = dataclasses.replace(ADD, inputs=(np.zeros(2, np.float32), ADD.inputs[1]))
    assert stopped.get(other_numbers) is None
    stopped.add(other_numbers, Outcome("right"))
    assert Journal(path).get(other_numbers) == Outcome("right")


def test_a_cell_of_a_journal_may_have_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "1.30.0.csv"
    lines = [["Add", "float32", 'fails: "no",\nas it says'], ["Add", "int8", ""]]
    add_lines(path, lines[:1])
    add_lines(path, lines[1:])
    assert read_journal(path) == lines


def test_versions_that_say_the_same_share_a_line(tmp_path: Path) -> None:
    path = tmp_path / "survey.csv"
    right, wrong = lines_of([(ADD, Outcome("right"))]), lines_of([(ADD, WRONG)])
    assert wrong == [("Add", "type", "float32", "21", "1", "differs", "0.5", "1.5, CPU 2.0")]
    for version in ("1.30.0", "1.24.4"):
        write_table(path, COLUMNS, merge_lines(right, version, path), order)
    assert merge_lines(right, "1.9.0", path) == [(*right[0], "1.9.0 1.24.4 1.30.0")]
    write_table(path, COLUMNS, merge_lines(wrong, "1.24.4", path), order)
    lines = [tuple(line) for line in csv.reader(path.read_text(encoding="utf-8").splitlines())]
    assert lines == [COLUMNS, (*right[0], "1.30.0"), (*wrong[0], "1.24.4")]
    assert lines_in(path, "1.24.4") == wrong
    assert not lines_in(path, "1.9.0")

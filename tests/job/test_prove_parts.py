"""Parts of a proof: when padding is checked, what is allowed, what failed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import onnx_ir as ir
import pytest

from graphfix.core import Match, NodePass
from graphfix.engine.report import Report
from graphfix.job import prove
from graphfix.lengths.length_input import KEY
from graphfix.proof.compare import Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from graphfix.editing.builder import Builder
    from graphfix.facts.view import View

TEXT = '<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[T] y) { y = Neg (x) }'
LENGTHS = json.dumps({"input": "x", "axis": "x.0", "kind": "lengths"})


@dataclass(frozen=True)
class Plain(NodePass[Match]):
    anchors: ClassVar[tuple[str, ...]] = ("Relu",)

    def match(self, node: ir.Node, view: View) -> Match | None:
        return None

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        raise NotImplementedError


@dataclass(frozen=True)
class Padding(Plain):
    safe_to_pad: ClassVar[bool] = True

    def pads(self, model: ir.Model) -> str:
        return "x.0"


def model(lengths: bool = False) -> ir.Model:
    made = ir.from_onnx_text(TEXT)
    if lengths:
        made.metadata_props[KEY] = LENGTHS
    return made


def task(folder: Path, *chosen: Any, lengths: bool = False, **facts: Any) -> Any:
    source = folder / "m.onnx"
    ir.save(model(lengths), source)
    values = {
        "source": source, "chosen": chosen, "tolerance": None, "dims": None, "ep": "cpu",
        "has_calibrated_passes": False, "tell": lambda _: None,
    }  # fmt: skip
    return SimpleNamespace(**{**values, **facts})


@pytest.mark.parametrize(
    ("chosen", "before", "after", "checked"),
    [
        ((Plain(),), False, False, False),
        ((Plain(), Padding()), False, False, True),
        ((Padding(),), False, False, True),
        ((), False, False, False),
        ((Plain(),), False, True, True),  # it got lengths
        ((Plain(),), True, True, False),  # it had them
    ],
)
def test_padding_is_checked_where_it_is_promised_or_new(
    chosen: tuple[Any, ...], before: bool, after: bool, checked: bool, tmp_path: Path
) -> None:
    assert prove._must_pad(task(tmp_path, *chosen, lengths=before), model(after)) is checked


@pytest.mark.parametrize(
    ("tolerance", "calibrated", "rounded", "kept"),
    [
        (Tolerance(least=0.5), True, False, False),
        (Tolerance(least=0.5), True, True, True),
        (Tolerance(least=0.5), False, False, True),
        (Tolerance(), True, False, True),
        (None, True, False, True),
    ],
)
def test_the_gate_of_float16_holds_where_something_was_rounded(
    tolerance: Tolerance | None,
    calibrated: bool,
    rounded: bool,
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prove, "has_rounded", lambda *_: rounded)
    given = task(tmp_path, tolerance=tolerance, has_calibrated_passes=calibrated)
    found = prove._allowed_tolerance(given, Report("", (), {}, {}))
    assert found is (tolerance if kept else None)


class Verdict:
    def __init__(self, text: str, *, ok: bool) -> None:
        self.text, self.ok = text, ok

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("verdict", "padded", "reason"),
    [
        (None, None, ""),
        (Verdict("the same.", ok=True), None, ""),
        (Verdict("differs.", ok=False), None, "differs"),
        (Verdict("the same", ok=True), Verdict("leaks", ok=False), "leaks"),
        (Verdict("differs", ok=False), Verdict("leaks", ok=False), "differs"),
    ],
)
def test_why_a_proof_failed(verdict: Any, padded: Any, reason: str) -> None:
    report = Report("", (), {}, {}, verdict=verdict, padded=padded)
    assert prove.failure_reason(report) == reason


@pytest.mark.parametrize(
    ("lengths", "chosen", "axis"),
    [
        (False, (Plain(), Padding()), "x.0"),
        (False, (Plain(),), ""),
        (True, (Padding(),), ""),
    ],
)
def test_along_which_axis_padding_is_checked(
    lengths: bool, chosen: Any, axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(prove, "padded", lambda candidate, **options: asked.update(options))
    prove._check_padding(task(tmp_path, *chosen), model(), model(lengths), Report("", (), {}, {}))
    assert asked["axis"] == axis
    assert asked["ep"] == "cpu"


def results(ok: bool) -> Iterator[Any]:
    @dataclass(frozen=True)
    class Result:
        ok: bool
        notes: tuple[str, ...] = ("first",)

        def __bool__(self) -> bool:
            return self.ok

    yield Result(ok)


@pytest.mark.parametrize(
    ("ok", "ep", "note", "notes", "padded"),
    [
        (True, "cpu", "float16", ("first", "float16"), True),
        (True, "cpu", "", ("first",), True),
        (True, "dml", "float16", ("first",), True),
        (False, "cpu", "float16", ("first",), False),
    ],
)
def test_a_proof_ends_with_padding_if_the_rest_is_well(
    ok: bool,
    ep: str,
    note: str,
    notes: tuple[str, ...],
    padded: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (verdict,) = results(ok)
    monkeypatch.setattr(prove, "verify", lambda *_, **__: verdict)
    monkeypatch.setattr(prove, "_float16_note", lambda _: note)
    monkeypatch.setattr(prove, "_check_padding", lambda *_: "padded")
    given = task(tmp_path, Padding(), ep=ep, feeds=None, proof_seconds=1.0, total_seconds=1.0)
    report = prove.prove(given, model(), model(), Report("", (), {}, {}))
    assert report.verdict.notes == notes  # type: ignore[union-attr]
    assert (report.padded == "padded") is padded

"""Kernels and findings for the report, and when rounding is no gain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest

from graphfix.core import Finding, Findings
from graphfix.engine.report import Report
from graphfix.job import kernel_counts, planning, remaining_findings
from graphfix.job.kernel_counts import add_kernel_counts, why_rounding_is_no_gain
from graphfix.job.remaining_findings import HazardComparison, compare_hazards
from graphfix.show import html

TEXT = '<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[T] y) { y = Neg (x) }'


def model() -> ir.Model:
    return ir.from_onnx_text(TEXT)


def task(ep: str = "cpu", **facts: Any) -> Any:
    values = {
        "check": True,
        "kernels": None,
        "tell": lambda _: None,
        "source": "m",
        "chosen": (),
        "ep": ep,
    }
    return SimpleNamespace(**{**values, **facts})


@pytest.mark.parametrize(
    ("check", "kernels", "counted", "always"),
    [
        (True, None, True, False),
        (False, None, False, False),
        (False, True, True, True),
        (True, False, False, False),
    ],
)
def test_kernels_are_counted_where_they_are_wanted(
    check: bool, kernels: bool | None, counted: bool, always: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def count(before: Any, after: Any, ep: str, *, always: bool) -> dict[str, Any]:
        assert ep == "dml"
        asked.append((before, after, always))
        return {"before": {"all": 2}, "after": {"all": 1}}

    monkeypatch.setattr(planning, "count_kernels", count)
    before, after, report = model(), model(), Report("", (), {}, {})
    found = add_kernel_counts(task(check=check, kernels=kernels), report, after, before)
    assert (found.kernels is not None) is counted
    assert (found is report) is not counted
    # Nothing was changed, so the original is what it becomes.
    assert asked == ([(before, before, always)] if counted else [])
    monkeypatch.setattr(planning, "count_kernels", lambda *_, **__: None)
    assert add_kernel_counts(task(kernels=True), report, after, before) is report


@pytest.mark.parametrize(
    ("ep", "version", "label"),
    [("cpu", "", "DirectML"), ("webgpu", "", "WebGPU"), ("dml", "windowsml", "DirectML 1.30.0")],
)
def test_what_is_predicted_is_where_it_is_proved(
    ep: Any, version: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFIX_DML_VERSION", version)
    before, after, bare = model(), model(), Report("", (), {}, {})
    found = add_kernel_counts(task(ep), bare, after, before)
    (row,) = (x for x in found.rows() if x.label == label.split()[0])
    assert row.text == "runs, predicted" + (" for 1.30.0" if version else "")
    (kernels,) = (x for x in found.rows() if x.label == "kernels")
    assert f" on {label.split()[0]}, " in kernels.text
    assert ("copies" in kernels.text) is (ep == "webgpu")
    assert "?" not in kernels.text
    text = html.render_page({**found.to_json(), "source": "m", "output": None})
    assert f"No error on {label}, predicted" in text
    assert f"kernels per run on {label}" in text
    assert ("DirectML" in text) is (ep != "webgpu")


@pytest.mark.parametrize(
    ("rounded", "optional", "kernels", "sizes", "reason"),
    [
        (True, True, (10, 11), (100, 100), "the weights keep their size, kernels 10 -> 11"),
        (True, True, (10, 10), (100, 100), ""),
        (True, True, (10, 11), (99, 100), ""),
        (True, True, (10, 11), (100, 100.9), "the weights keep their size, kernels 10 -> 11"),
        (False, True, (10, 11), (100, 100), ""),
        (True, False, (10, 11), (100, 100), ""),
        (True, True, None, (100, 100), ""),
    ],
)
def test_rounding_that_gains_nothing(
    rounded: bool,
    optional: bool,
    kernels: tuple[int, int] | None,
    sizes: tuple[float, float],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after, before = model(), model()
    bytes_of = {id(after): sizes[0], id(before): sizes[1]}
    passes = [SimpleNamespace(optional=optional), SimpleNamespace(optional=True)]
    monkeypatch.setattr(kernel_counts, "calibrated_passes", lambda _: passes)
    monkeypatch.setattr(kernel_counts, "has_rounded", lambda *_: rounded)
    monkeypatch.setattr(kernel_counts.weights, "weight_bytes", lambda x: bytes_of[id(x)])
    monkeypatch.setattr(kernel_counts.io, "load", lambda _: before)
    counts: Any = kernels and {"before": {"all": kernels[0]}, "after": {"all": kernels[1]}}
    report = Report("", (), {}, {}, kernels=counts)
    assert why_rounding_is_no_gain(task(), report, after) == reason
    one_side: Any = {"before": {"all": 1}, "after": None}
    assert why_rounding_is_no_gain(task(), Report("", (), {}, {}, kernels=one_side), after) == ""


def finding(rule: str, severity: Any, at: str = "a") -> Finding:
    return Finding(rule, severity, at, "m", None)


def test_findings_that_are_left() -> None:
    comparison = HazardComparison(
        Findings([finding("r", "error"), finding("s", "warning")]),
        Findings([finding("s", "warning")]),
    )
    data = comparison.to_json()
    assert (data["before"], data["after"]) == (
        {"error": 1, "warning": 1}, {"error": 0, "warning": 1},
    )  # fmt: skip
    assert [x["rule"] for x in data["had"]] == ["r"]
    assert [x["rule"] for x in data["left"]] == ["s"]
    assert comparison.errors == ()
    assert str(comparison) == "on DirectML 1 error, 1 warning in the original; 1 warning left"
    nothing = HazardComparison(Findings(), Findings([finding("r", "error")]))
    assert str(nothing) == "on DirectML nothing in the original; 1 error left"
    assert len(nothing.errors) == 1


def test_notes_do_not_count_and_each_finding_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ir.Model] = []

    def check(given: ir.Model, *, ep: str) -> Findings:
        asked.append(given)
        assert ep == "dml"
        return Findings([finding("r", "note"), finding("s", "error"), finding("s", "error", "b")])

    monkeypatch.setattr(remaining_findings.checking, "check", check)
    original, other = model(), model()
    found = compare_hazards(original, [original, other, other])
    assert [(x.rule, x.at) for x in found.after] == [("s", "a"), ("s", "b")]
    assert [(x.rule, x.at) for x in found.before] == [("s", "a"), ("s", "b")]
    assert len(asked) == 3  # of the original it is known

"""``check`` in Python: which passes and rules are asked, and what is said of their findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.core import Check, Finding, Findings, Match, Skip
from graphfix.errors import UsageError
from graphfix.job.checking import answer_of, check, default_checks, padding_check
from graphfix.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.core import Severity

HEAD = '<ir_version: 8, opset_import: ["" : 17]> m '
MASKED = (
    HEAD
    + """(float[B, T, 4] x, INPUT) => (float[B, T, 4] y)
    <int64[1] ax = {1}, int64 zero = {0}, float fill = {-inf}>
    { t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)  e = Equal (mask, zero)
      u = Unsqueeze (e, ax)  m = Where (u, fill, s)  p = Softmax (m)  y = MatMul (p, x) }"""
)
MASK = MASKED.replace("INPUT", "int64[B, T] mask")
ALLOWZERO = (
    HEAD
    + """(float[T, 8] x) => (float[N, 4] y) <int64[2] s = {-1, 4}>
    { a = Relu (x)  y = Reshape <allowzero = 1> (a, s) }"""
)


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(text)


def test_passes_that_matter_on_one_provider_are_asked_there() -> None:
    on_dml, on_cpu = ({x.name for x in default_checks(ep)} for ep in ("dml", "cpu"))
    assert {"thaw", "additive-mask", "reshape-allowzero"} <= on_dml
    assert "reshape-allowzero" not in on_cpu
    assert {"thaw", "additive-mask"} <= on_cpu
    for ep, names in (("dml", on_dml), ("cpu", on_cpu)):
        rules = [x for x in default_checks(ep) if isinstance(x, Rule)]  # type: ignore[arg-type]
        assert rules
        assert all(ep in x.providers for x in rules)
        assert len(names) == len(default_checks(ep))  # type: ignore[arg-type]


def test_what_is_asked_for_is_what_is_looked_at() -> None:
    assert {x.rule for x in check(model(ALLOWZERO), "reshape-allowzero")} == {"reshape-allowzero"}
    assert check(model(ALLOWZERO), ["additive-mask"]) == []
    assert check(model(ALLOWZERO), []) == []
    assert {"reshape-allowzero"} <= {x.rule for x in check(model(ALLOWZERO))}
    assert "reshape-allowzero" not in {x.rule for x in check(model(ALLOWZERO), ep="cpu")}
    with pytest.raises(UsageError, match="there is no provider 'tpu'; ep is one of"):
        check(model(ALLOWZERO), ep="tpu")


def test_a_site_of_a_pass_is_as_bad_as_the_provider_makes_it() -> None:
    for ep, severity in (("dml", "error"), ("cpu", "note")):
        (finding,) = check(model(ALLOWZERO), "reshape-allowzero", ep=ep)  # type: ignore[arg-type]
        assert (finding.severity, finding.fix) == (severity, "reshape-allowzero")


def test_a_near_miss_is_a_note_elsewhere() -> None:
    text = """(float[T, 8] x, int64[2] s) => (float[N, M] y)
        { y = Reshape <allowzero = 1> (x, s) }"""
    findings = check(model(HEAD + text), "reshape-allowzero", ep="cpu")
    assert all(x.severity == "note" for x in findings)


class OwnMind(Check):
    """One that says itself how bad its sites are."""

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        yield Match(model.graph[0])

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        yield Finding(self.name, "error", "here", "it is bad", None)


class Plain(Check):
    """One with a site and a near miss."""

    sentence = "can be better"

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        yield Match(model.graph[0])
        yield Skip(model.graph[1], "almost", severity="warning")


def test_a_check_says_itself_how_bad_a_site_is() -> None:
    for ep in ("dml", "cpu"):
        findings = check(model(ALLOWZERO), [OwnMind(), Plain()], ep=ep)  # type: ignore[arg-type]
        assert [(x.rule, x.severity, x.message) for x in findings] == [
            ("own-mind", "error", "it is bad"),
            ("plain", "warning", "can be better"),
            ("plain", "warning" if ep == "dml" else "note", "almost"),
        ]


def test_a_rule_names_the_pass_that_repairs_it_and_it_is_said_once() -> None:
    findings = check(model(MASK))
    places = [(x.fix, x.at) for x in findings if x.fix is not None]
    assert len(places) == len(set(places))
    alone = {x.rule for x in check(model(MASK), "additive-mask")}
    assert alone == {"additive-mask"}


def test_a_check_leaves_the_model_as_it_is() -> None:
    given = model(MASK)
    before = ir.to_proto(given).SerializeToString(deterministic=True)
    check(given)
    assert ir.to_proto(given).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("inputs", "spec"),
    [
        ("int64[B, T] mask", "ilens-mask:from=mask"),
        ("int64[B, T] mask, int64[B] other_lengths", None),
    ],
)
def test_the_only_mask_of_a_model_says_where_content_ends(inputs: str, spec: str | None) -> None:
    found = padding_check(model(MASKED.replace("INPUT", inputs)))
    assert spec is None or found.spec() == spec  # type: ignore[attr-defined]


def test_a_model_without_lengths_gets_its_own() -> None:
    plain = model(HEAD + "(float[B, T, 4] x) => (float[B, T, 4] y) { y = Softmax (x) }")
    assert padding_check(plain).spec() == "ilens-mask"  # type: ignore[attr-defined]
    turned = MASK.replace("Equal (mask, zero)", "Cast <to = 9> (mask)")  # 1 hides: counts nothing
    assert padding_check(model(turned)).spec() == "ilens-mask"  # type: ignore[attr-defined]


def finding(severity: Severity, fix: str | None = None) -> Finding:
    return Finding("a-rule", severity, "at", "a message", fix)


@pytest.mark.parametrize(
    ("findings", "answer"),
    [
        ([], "no error and no warning on DirectML"),
        ([finding("note")], "no error and no warning on DirectML"),
        (
            [finding("warning", "additive-mask")],
            "no error on DirectML; 1 warning, repaired by graphfix run",
        ),
        (
            [finding("warning", "additive-mask")] * 3,
            "no error on DirectML; 3 warnings, all repaired by graphfix run",
        ),
        (
            [*[finding("warning", "additive-mask")] * 2, finding("warning")],
            "no error on DirectML; 3 warnings, 2 of them repaired by graphfix run",
        ),
        ([finding("error")], "1 error on DirectML, no automatic repair"),
        (
            [finding("error", "thaw:dims=T"), finding("error", "thaw"), finding("warning")],
            "2 errors on DirectML, 1 of them repaired by graphfix run -p thaw:dims=T, "
            "1 of them repaired by graphfix run -p thaw; 1 warning, no automatic repair",
        ),
        (
            [finding("error", "additive-mask:floor=-1"), finding("note", "thaw")],
            "1 error on DirectML, repaired by graphfix run",
        ),
    ],
)
def test_what_is_wrong_in_a_sentence(findings: list[Finding], answer: str) -> None:
    assert answer_of(Findings(findings), "dml") == answer
    on_cpu: Any = answer.replace("DirectML", "the CPU")
    assert answer_of(Findings(findings), "cpu") == on_cpu

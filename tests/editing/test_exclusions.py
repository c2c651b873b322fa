"""Sites and passes that are skipped, and the reason that is left in the model."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.editing.exclusions import (
    EXCLUDED,
    MADE_BY_PASS,
    WHOLE_PASS,
    Exclusions,
    attach_exclusions,
    exclusion_reason,
    pass_exclusion_reason,
    record_exclusion,
    record_pass_exclusions,
)


def model() -> ir.Model:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[N] x) => (float[N] y) { a = Neg (x) y = Relu (a) }"""
    m = ir.from_onnx_text(text)
    for node in m.graph:
        node.name = f"/net/{node.op_type}"
    return m


def test_places() -> None:
    exclusions = Exclusions(original_tensors=frozenset(["a"]))
    assert exclusions.place_of("p", "a") == ("p", "a")
    assert exclusions.place_of("p", "b") == ("p", MADE_BY_PASS)
    assert exclusions.place_of("p", "") == ("p", "")


@pytest.mark.parametrize(
    ("exclusions", "reason"),
    [
        (Exclusions(), None),
        (Exclusions({("p", "a"): "why"}, original_tensors=frozenset("a")), "why"),
        (Exclusions({("p", "a"): ""}, original_tensors=frozenset("a")), ""),
        (Exclusions({("q", "a"): "why"}, original_tensors=frozenset("a")), None),
        (Exclusions({("p", MADE_BY_PASS): "why"}), "why"),
        (Exclusions(only_repaired={"p": frozenset("a")}, original_tensors=frozenset("a")), None),
        (Exclusions(only_repaired={"p": frozenset("b")}, original_tensors=frozenset("ab")), ""),
        (Exclusions(only_repaired={"p": frozenset([WHOLE_PASS])}), None),
        (Exclusions(only_repaired={"p": frozenset()}), ""),
        (Exclusions(only_repaired={"q": frozenset()}), None),
    ],
)
def test_why_a_place_is_skipped(exclusions: Exclusions, reason: str | None) -> None:
    assert exclusions.reason_for("p", "a") == reason


@pytest.mark.parametrize(
    ("exclusions", "reason"),
    [
        (Exclusions(), None),
        (Exclusions({("p", WHOLE_PASS): "why"}), "why"),
        (Exclusions({("p", "a"): "why"}), None),
        (Exclusions(only_repaired={"p": frozenset("a")}), None),
        (Exclusions(only_repaired={"p": frozenset()}), ""),
    ],
)
def test_why_a_pass_is_skipped(exclusions: Exclusions, reason: str | None) -> None:
    assert exclusions.reason_for_pass("p") == reason
    m = model()
    attach_exclusions(m, exclusions)
    assert pass_exclusion_reason(m, "p") == reason


def test_a_recorded_reason_counts_in_a_later_run() -> None:
    m = model()
    assert pass_exclusion_reason(m, "p") is None
    record_pass_exclusions(m, Exclusions({("p", WHOLE_PASS): "why", ("q", "a"): "site"}))
    assert pass_exclusion_reason(m, "p") == "why"
    assert pass_exclusion_reason(m, "q") is None


def test_a_node_is_skipped_by_its_name_or_its_tensor() -> None:
    m = model()
    neg, relu = m.graph
    assert exclusion_reason(m, lambda: "p", neg) is None
    attach_exclusions(m, Exclusions(node_patterns=["/net/N*"]))
    assert exclusion_reason(m, lambda: "p", neg) == EXCLUDED
    assert exclusion_reason(m, lambda: "p", relu) is None
    attach_exclusions(m, Exclusions({("p", "a"): "why"}, original_tensors=frozenset("a")))
    assert exclusion_reason(m, lambda: "p", neg) == "why"
    assert exclusion_reason(m, lambda: "q", neg) is None
    assert exclusion_reason(m, lambda: "p", relu) is None


def test_the_reason_is_left_in_the_node() -> None:
    m = model()
    neg, relu = m.graph
    attach_exclusions(m, Exclusions({("p", "a"): "why"}, original_tensors=frozenset("a")))
    record_exclusion(m, neg, "p")
    record_exclusion(m, relu, "p")
    assert len(neg.metadata_props) == 1
    assert not relu.metadata_props
    attach_exclusions(m, Exclusions())
    assert exclusion_reason(m, lambda: "p", neg) == "why"
    assert exclusion_reason(m, lambda: "q", neg) is None
    fresh = model()
    fresh.graph[0].metadata_props.update(neg.metadata_props)
    assert exclusion_reason(fresh, lambda: "p", fresh.graph[0]) == "why"

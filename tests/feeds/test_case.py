"""One set of inputs, and which part of it is content."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case import ORDINARY, Case, Cases, DroppedCase, key_by_user_name
from graphfix.feeds.signature import Signature


@pytest.mark.parametrize(
    ("valid", "ragged", "empty"),
    [
        ({}, False, []),
        ({"T": (5, 5)}, False, []),
        ({"T": (5, 4)}, True, []),
        ({"T": (4, 5)}, True, []),
        ({"T": (5, 0, 1)}, True, [1]),
        ({"T": (5, 5), "U": (3, 2)}, True, []),
        ({"T": (0, 5), "U": (3, 0)}, True, [0, 1]),
    ],
)
def test_rows(valid: dict[str, tuple[int, ...]], ragged: bool, empty: list[int]) -> None:
    case = Case("a", {"T": 5, "U": 3}, {}, valid)
    assert case.is_ragged == ragged
    assert sorted(case.empty_rows) == empty


def test_all_elements_are_counted() -> None:
    case = Case("a", {}, {"x": np.zeros((2, 3)), "y": np.zeros(4), "z": np.zeros((0, 7))})
    assert case.element_count == 10
    assert (case.poison, case.base, case.side, case.large_caches) == ("", "", "right", False)
    assert ORDINARY == ("other numbers", "other ids")


def test_cases_know_what_was_dropped_and_what_inputs_are_for() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[B, T] x) => (y) { y = Cos (x) }'
    )
    signature = Signature(model)
    cases = Cases([Case("a", {}, {})], (DroppedCase("b", "why"),), signature, ("T 9",))
    assert [x.name for x in cases] == ["a"]
    assert cases.dropped == [DroppedCase("b", "why", has_inputs=True)]
    assert cases.left_out == ["T 9"]
    assert list(cases.input_roles) == ["x"]
    assert Cases([], [], signature).left_out == []
    assert key_by_user_name(signature, {"B": 1, "T": 2}) == {"B": 1, "T": 2}

"""Every graph of tests/test_plan.py, asked of the real DirectML: it does what was predicted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from graphfix.errors import ModelError
from graphfix.runtime.local_session import Session
from tests.dml.ran import found, predicted

_spec = importlib.util.spec_from_file_location(
    "plan_cases", Path(__file__).parents[1] / "providers" / "directml" / "test_plan.py"
)
plan_cases = importlib.util.module_from_spec(_spec)
sys.modules["plan_cases"] = plan_cases  # its dataclasses look themselves up there
_spec.loader.exec_module(plan_cases)


@pytest.mark.parametrize("name", plan_cases.CASES)
def test_directml_does_what_was_foreseen(name: str) -> None:
    model = plan_cases.CASES[name].model()
    ran, plan = found(model), predicted(model)
    if name in ("an If", "a Loop"):  # a profile has no fused graph of what is inside
        assert ran.pop("graph") < plan.pop("graph")
    assert ran == plan


def test_an_output_that_feeds_an_activation_breaks_the_session() -> None:
    model = plan_cases.Case(plan_cases.BROKEN, "dd").model()
    with pytest.raises(ModelError, match="Failed to find node output"):
        Session(model, ep="dml")

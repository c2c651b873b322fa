"""``check`` against what the real DirectML did with each export of the zoo.

The lists are of onnxruntime-directml 1.24.4: each model was run at every case of its recipe.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import graphfix
from graphfix.providers.directml import hresult

_spec = importlib.util.spec_from_file_location("counts", Path(__file__).with_name("counts.py"))
counts = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("counts", counts)  # its dataclasses look themselves up there
_spec.loader.exec_module(counts)

ROWS = counts.models()
pytestmark = pytest.mark.skipif(not ROWS, reason=f"no zoo at {counts.ROOT}; set GRAPHFIX_ZOO")

# Of dynamo's exports these run as they are; all others end in 80070057 or 8007023E.
RUN = frozenset(
    {"bert.hf441.eager.dy18", "fsmn_vad.dy18"}
    | {"qwen3_asr_encoder_naive.dy18", "qwen3_asr_encoder_naive.dy18+fp16"}
)
# Runs there, and its numbers are wrong where a clip is shorter than the window of its relative
# positions: at 1 to 4 frames by up to 0.32, the Pad of that table being the first node to part. At
# 5, 6 and 25 frames it agrees.
WRONG = {"vits_text_encoder.hf441.eager.ts14": "negative-pads"}
# Of TorchScript's exports none crashes. These do not load, whatever the provider.
UNLOADABLE = frozenset(
    {"bert.hf441.eager.ts14+fp16", "llama.hf5.sdpa.dy18+fp16", "sensevoice_official.ts14+fp16"}
)
# One false width among many, which ONNX Runtime may infer over: a warning.
WIDTH = "qwen3_asr_encoder_naive.ts17+badvi"


def errors(model: Any) -> set[str]:
    return {x.rule for x in graphfix.check(model) if x.severity == "error"}


def load(name: str) -> Any:
    return graphfix.load(counts.ROOT / "models" / f"{name}.onnx")


@pytest.mark.parametrize("row", ROWS or [None], ids=lambda row: row["name"] if row else "none")
def test_what_crashes_has_an_error_and_what_runs_has_none(row: dict[str, Any]) -> None:
    name = row["name"]
    model = load(name)
    found = errors(model)
    crashes = ".dy18" in name and name not in RUN
    assert ("reshape-allowzero" in found) == crashes
    assert ("type-conflict" in found) == (name in UNLOADABLE)
    assert ("does-not-load" in found) == (name in {*UNLOADABLE, WIDTH})
    told = {"reshape-allowzero", "type-conflict", "does-not-load"}
    assert found - told == {WRONG[x] for x in WRONG if x == name}
    if crashes and name not in UNLOADABLE:  # the error that was seen there leads to the node
        code = hresult.find_code("Reshape node. Name:'node_view_1' Status Message: 80070057")
        assert code is not None
        rules = ",".join(rule for cause in code.causes for rule in cause.rules)
        assert any(x.severity == "error" for x in graphfix.check(model, rules))
    graphfix.run(model)
    unloadable = {"type-conflict", "does-not-load"} if name in UNLOADABLE else set()
    assert errors(model) == unloadable


def test_a_width_that_onnx_runtime_may_infer_over_is_a_warning() -> None:
    found = [x for x in graphfix.check(load(WIDTH)) if x.rule == "fresh-shapes"]
    assert {x.severity for x in found} == {"warning"}


def test_a_width_that_it_stumbles_over_is_an_error_with_its_repair() -> None:
    found = [x for x in graphfix.check(load(WIDTH)) if x.rule == "does-not-load"]
    assert [x.fix for x in found] == ["fresh-shapes"]

"""The pass GraphFix in real workflows of Olive; each is a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphfix.feeds.case_search import make_cases
from graphfix.runtime.local_session import Session
from tests.integrations import page

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("olive") is None, reason="olive-ai is not installed"
)
MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OLIVE_DISABLE_TELEMETRY": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout if words[0] == "graphfix.integrations.olive" else done.stdout + done.stderr


def workflow(model: str, *passes: dict[str, Any]) -> str:
    """What Olive says of these passes, one after the other; the result is in out/."""
    steps = {f"{i} {step['type']}": step for i, step in enumerate(passes)}
    given = {"type": "ONNXModel", "model_path": model}
    config = {"input_model": given, "passes": steps, "output_dir": "out"}
    Path("workflow.json").write_text(json.dumps(config), encoding="utf-8")
    Path("package.json").write_text(run("graphfix.integrations.olive"), encoding="utf-8")
    return run("olive", "run", "--config", "workflow.json", "--package-config", "package.json")


def kinds(path: str) -> set[str]:
    return {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


def test_external_data_stays_external() -> None:
    Path("given").mkdir()
    proto = onnx.load(MODELS / "sensevoice/model.onnx")
    onnx.save(proto, "given/model.onnx", save_as_external_data=True, location="weights.bin")
    workflow("given/model.onnx", {"type": "GraphFix", "profile": "fast"})
    assert "MultiHeadAttention" in kinds("out/model.onnx")
    assert list(Path("out").glob("*.data"))
    case = make_cases("given/model.onnx")[0]
    before, after = (Session(x).run(case.feeds) for x in ("given/model.onnx", "out/model.onnx"))
    for name, array in before.items():
        np.testing.assert_allclose(array, after[name], rtol=1e-3, atol=1e-4)


def test_olive_quantizes_what_was_repaired() -> None:
    passes = {"type": "GraphFix", "profile": "fast"}, {"type": "OnnxDynamicQuantization"}
    workflow(str(MODELS / "sensevoice/model.onnx"), *passes)
    assert {"MultiHeadAttention", "MatMulInteger"} <= kinds("out/model.onnx")
    Session("out/model.onnx").run(make_cases("out/model.onnx")[0].feeds)


def test_options_are_taken() -> None:
    options = {"profile": "additive-mask", "verify": False}
    workflow(str(MODELS / "bert/model.onnx"), {"type": "GraphFix", **options})
    nodes = onnx.load("out/model.onnx").graph.node
    told = {x.value for node in nodes for x in node.metadata_props if x.key == "graphfix.pass"}
    assert told == {"additive-mask"}


def test_a_failed_proof_is_said_and_leaves_no_model() -> None:
    given = str(MODELS / "bert/model.onnx")
    told = workflow(
        given, {"type": "GraphFix", "profile": "fast", "atol": 0.0, "dims": {"no": [1]}}
    )
    assert "OlivePassError" in told
    assert "'no'" in told or "no dim" in told
    assert not Path("out/model.onnx").exists()


def test_the_workflow_of_the_page() -> None:
    """From a model of transformers to a folder."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=100, num_hidden_layers=2, **sizes)
    BertForSequenceClassification(config).save_pretrained("bert")
    Path("workflow.json").write_text(page.marked("olive"), encoding="utf-8")
    page.run_commands_of("olive run")
    assert "Attention" in kinds("out/model.onnx")

"""What the model builder of onnxruntime-genai writes: graphfix keeps it usable."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphfix
from tests.integrations import page

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("onnxruntime_genai") is None,
        reason="onnxruntime-genai is not installed",
    ),
    pytest.mark.filterwarnings("default"),
]


def _tokens(folder: Path) -> list[int]:
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=20, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens([5, 20, 31, 44, 7])
    while not generator.is_done():
        generator.generate_next_token()
    return [int(x) for x in generator.get_sequence(0)]


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_the_same_tokens_are_generated(precision: str, tmp_path: Path) -> None:
    given, built, fixed = (tmp_path / name for name in ("given", "built", "fixed"))
    page.llama(given)
    words = ["-m", "onnxruntime_genai.models.builder", "-i", given, "-o", built, "-p", precision]
    words += ["-e", "cpu", "-c", tmp_path / "cache"]
    subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True)
    fixed.mkdir()
    for file in built.glob("*.json"):
        shutil.copy2(file, fixed)
    told = json.loads((built / "genai_config.json").read_text(encoding="utf-8"))
    head = told["model"]["decoder"]["head_size"]
    source, target = built / "model.onnx", fixed / "model.onnx"
    assert graphfix.fix(source, "fast", target, dims={"kv_cache_dim": head}).ok
    assert _tokens(built) == _tokens(fixed)


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page.llama(tmp_path / "llama")
    told = page.run_commands_of("onnxruntime_genai")
    (counts,) = re.findall(r"kernels +(\d+) -> (\d+) on DirectML, (\d+) -> (\d+) on the CPU", told)
    before, after, cpu_before, cpu_after = map(int, counts)
    assert (before + cpu_before, after + cpu_after) == (37, 37)

"""ONNX Runtime's quantizers take what graphfix writes, and what they make of it runs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

import graphfix
from graphfix.feeds.case_search import make_cases
from graphfix.runtime.local_session import Session
from tests.integrations import page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from graphfix.feeds.case import Feeds

reason = "onnxruntime has no quantizers here"
pytest.importorskip("onnxruntime.quantization", reason=reason)
nbits = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer", reason=reason)
from onnxruntime.quantization import (  # noqa: E402
    CalibrationDataReader,
    quantize_dynamic,
    quantize_static,
)

# Their own code warns of what it calls.
pytestmark = pytest.mark.filterwarnings("default")
MODELS = Path(__file__).parents[2] / "models"
# Of both exporters; the last two say no shapes of what is inside them.
NAMES = ("bert", "llama", "whisper", "sensevoice", "qwen3-decoder")
# Of a model of random weights: how far its outputs may go, as a share of the largest.
FAR = 0.4


class Reader(CalibrationDataReader):
    """Feeds to calibrate with."""

    def __init__(self, feeds: list[Feeds]) -> None:
        self._feeds: Iterator[Feeds] = iter(feeds)

    def get_next(self) -> Feeds | None:
        return next(self._feeds, None)


def dynamic(source: Path, target: Path, _: list[Feeds]) -> str:
    quantize_dynamic(source, target)
    return "MatMulInteger"


def static(source: Path, target: Path, feeds: list[Feeds]) -> str:
    quantize_static(source, target, Reader(feeds))
    return "QuantizeLinear"


def four_bits(source: Path, target: Path, _: list[Feeds]) -> str:
    quantizer = nbits.MatMulNBitsQuantizer(onnx.load(source), block_size=32)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))
    return "MatMulNBits"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files that the quantizers leave where they run, and what they log."""
    monkeypatch.chdir(tmp_path)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("profile", ["directml", "fast"])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_repaired_is_quantized_and_runs(name: str, profile: str) -> None:
    source, fixed = MODELS / name / "model.onnx", Path("fixed.onnx")
    graphfix.fix(source, profile, fixed, check=False)
    feeds = [case.feeds for case in make_cases(source)[:3]]
    wanted = Session(source).run(feeds[0])
    ways: tuple[Callable[[Path, Path, list[Feeds]], str], ...] = (dynamic, static, four_bits)
    for way in ways:
        target = Path(f"{way.__name__}.onnx")
        kind = way(fixed, target, feeds)
        kinds = [node.op_type for node in onnx.load(target).graph.node]
        assert kind in kinds, way
        got = Session(target).run(feeds[0])
        for output, array in wanted.items():
            assert got[output].shape == array.shape, (way, output)
            if array.dtype.kind == "f" and profile == "fast":
                there = np.isfinite(array)
                apart = np.abs(got[output][there] - array[there]).max(initial=0)
                assert apart <= FAR * np.abs(array[there]).max(initial=0), (way, output)


def test_the_program_of_the_page() -> None:
    shutil.copy2(MODELS / "sensevoice/model.onnx", "model.onnx")
    exec(compile(page.marked("quantize"), "program.py", "exec"), {})
    kinds = {node.op_type for node in onnx.load("quantized.onnx").graph.node}
    assert {"MatMulInteger", "QAttention"} <= kinds


@pytest.mark.parametrize("name", NAMES)
def test_onnx_infers_the_same_shapes_as_are_declared(name: str) -> None:
    """Or a quantizer ends with "Inferred shape and existing shape differ"."""
    fixed = graphfix.fix(onnx.load(MODELS / name / "model.onnx"), "fast", check=False)
    onnx.shape_inference.infer_shapes(fixed, check_type=True, strict_mode=True, data_prop=True)

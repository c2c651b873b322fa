"""graphfix ship in float16: the order of the passes, and models that float16 gains nothing in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from graphfix.cli import main
from graphfix.float16_search import keep_search
from graphfix.float16_search.keep_search import KeepSearchResult
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests.shipping.conftest import MASKED, saved

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from graphfix.core import Pass

# Of so many turns float16 has 300.
TURNS = MASKED.replace(
    "y = MatMul (p, x)",
    "many = Constant <value = float {300.12}> () a = Mul (x, many) b = Sin (a) y = MatMul (p, b)",
)


@pytest.fixture
def _finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes the usual inputs for all there are, and is wrong."""

    def settle(model: ir.Model, chosen: Pass, **_: object) -> tuple[Pass, KeepSearchResult]:
        return chosen, KeepSearchResult()

    monkeypatch.setattr(keep_search, "search_kept_nodes", settle)


@pytest.mark.parametrize(
    ("asked", "before"), [("fast,float16", "fuse-attention"), ("float16", "float16")]
)
def test_what_is_padded_is_masked_before_it_is_fused_or_rounded(
    tmp_path: Path, asked: str, before: str
) -> None:
    source = saved(MASKED, tmp_path / "m.onnx")
    done = ship_file(source, tmp_path / "out", parse_containers(["T=6", "B=2"]), passes=asked)
    assert done.ok
    names = [x.name for x in done.reports[0].passes]
    assert names.index("ilens-mask") < names.index("fix-dims") < names.index(before)
    assert names[-1] == "float16"
    assert done.reports[0].passes[-1].changes
    assert not done.unrounded


def test_what_float16_gains_nothing_in_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(MASKED, tmp_path / "m.onnx")
    out = tmp_path / "out"
    arguments = ["ship", str(source), "--container", "T=6", "-o", str(out)]
    assert main([*arguments, "-p", "directml,float16:keep=MatMul+Softmax"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "note float16 gains nothing here, left as it is:" in told
    assert "keep=MatMul; keep=Softmax" in told
    held = onnx.load(out / "m.6.onnx").graph.initializer
    assert onnx.TensorProto.FLOAT16 not in {x.data_type for x in held}


@pytest.mark.usefixtures("_finds_nothing")
def test_a_container_that_misses_the_gate_is_shipped_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(TURNS, tmp_path / "m.onnx")
    out = tmp_path / "out"
    arguments = ["ship", str(source), "--container", "T=6", "-o", str(out), "-p", "fast,float16"]
    assert main([*arguments, "--strict"]) == 1
    assert not out.exists()
    capsys.readouterr()
    assert main(arguments) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "left out float16: with it on the CPU" in told
    assert "it gains nothing here, left as it is" in told
    types = {x.elem_type for x in _tensors(onnx.load(out / "m.6.onnx"))}
    assert onnx.TensorProto.FLOAT16 not in types


def test_the_share_that_may_differ_can_be_said(tmp_path: Path) -> None:
    source = saved(MASKED, tmp_path / "m.onnx")
    arguments = ["ship", str(source), "--container", "T=6", "-p", "directml,float16"]
    assert main([*arguments, "-o", str(tmp_path / "a"), "--rtol", "0.02"]) == 0
    assert main([*arguments, "-o", str(tmp_path / "b"), "--rtol", "2"]) == 2


def _tensors(model: onnx.ModelProto) -> list[onnx.TypeProto.Tensor]:
    made = onnx.shape_inference.infer_shapes(model).graph
    return [x.type.tensor_type for x in (*made.value_info, *made.input, *made.output)]

"""A shipped folder is proved again, and what was changed in it is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from graphfix.errors import ModelError
from graphfix.proof.compare import Tolerance
from graphfix.shipped.manifest import NAME
from graphfix.shipping.build import ship_file
from graphfix.shipping.stream_bench import bench_stream
from graphfix.shipping.verify_folder import verify_folder
from tests.cli.conftest import said
from tests.shipping.conftest import write_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

Pair = tuple[Path, Path]
DECODER = Path(__file__).parents[2] / "models" / "qwen3-decoder" / "model.onnx"


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("decoder") / "out"
    assert ship_file(DECODER, folder, ["S=1,4"], cache=[12]).ok
    return DECODER, folder


def changed_copy(folder: Path, target: Path, change: Callable[[Path, Any], object]) -> Path:
    """Copy a folder, change it, and make its hashes those of what is in it."""
    shutil.copytree(folder, target)
    data = json.loads((target / NAME).read_text(encoding="utf-8"))
    change(target, data)
    write_manifest(target, data)
    return target


def test_what_was_shipped_is_proved(mean: Pair, masked: Pair) -> None:
    for source, folder in (mean, masked):
        proof = verify_folder(source, folder)
        assert proof.ok, str(proof)
        assert not proof.remarks
        assert {x.file for x in proof.padding} == {x.name for x in folder.glob("*.onnx")}
        assert "same for" in str(proof.session)


def test_a_stream_that_was_shipped_is_proved(decoder: Pair) -> None:
    proof = verify_folder(*decoder)
    assert proof.ok, str(proof)
    assert "steps" in str(proof.session)


def scale_a_weight(folder: Path, data: Any) -> None:
    for container in data["containers"]:
        path = folder / container["file"]
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1:
                array = onnx.numpy_helper.to_array(tensor) * np.float32(1.05)
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
                break
        onnx.save(model, path)


def shift_what_is_valid(_: Path, data: Any) -> None:
    entry = next(x for x in data["derived"] if x["of"])
    entry["add"] -= entry["divide"]


def refuse_short_clips(_: Path, data: Any) -> None:
    data["axis"]["shortest"] = 6


def pad_with_ones(_: Path, data: Any) -> None:
    next(x for x in data["inputs"] if x["kind"] == "mask")["pad"] = 1.0


def feed_every_frame(_: Path, data: Any) -> None:
    mask = next(x for x in data["inputs"] if x["kind"] == "mask")
    mask |= {"kind": "data", "valid": None, "counted": False, "pad": 1.0}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mean", scale_a_weight),
        ("mean", shift_what_is_valid),
        ("mean", refuse_short_clips),
        ("masked", pad_with_ones),
        ("masked", feed_every_frame),
    ],
)
def test_what_was_changed_is_told(
    name: str,
    change: Callable[[Path, Any], object],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    source, folder = request.getfixturevalue(name)
    proof = verify_folder(source, changed_copy(folder, tmp_path / "out", change))
    assert not proof.ok
    assert proof.reason


def cut_caches_in_half(_: Path, data: Any) -> None:
    entry = next(x for x in data["derived"] if len(x["of"]) == 2)
    entry["most"] = 6


def swap_two_states(_: Path, data: Any) -> None:
    states = data["stream"]["states"]
    states[0]["output"], states[1]["output"] = states[1]["output"], states[0]["output"]


def roll(_: Path, data: Any) -> None:
    data["stream"]["rolls"] = True


@pytest.mark.parametrize("change", [scale_a_weight, cut_caches_in_half, swap_two_states, roll])
def test_what_was_changed_in_a_stream_is_told(
    decoder: Pair, change: Callable[[Path, Any], object], tmp_path: Path
) -> None:
    source, folder = decoder
    folder = changed_copy(folder, tmp_path / "out", change)
    try:
        proof = verify_folder(source, folder)
    except ModelError as error:
        assert str(folder) in str(error)  # noqa: PT017
        return
    assert not proof.ok
    assert proof.reason


def test_another_tolerance_is_obeyed(mean: Pair) -> None:
    proof = verify_folder(*mean, tolerance=Tolerance(max_abs=1e-12))
    assert not proof.ok
    assert "mean." in proof.reason


def test_a_folder_of_another_model(mean: Pair, masked: Pair) -> None:
    names = r"made from another model than .* has no input '.*'; the folder has .*, and the model "
    with pytest.raises(ModelError, match=names):
        verify_folder(mean[0], masked[1])


def test_a_folder_of_another_decoder(mean: Pair, decoder: Pair) -> None:
    """Its states are not the model's, which no option is to blame for."""
    with pytest.raises(ModelError, match=r"made from another model than .* has no input '"):
        verify_folder(mean[0], decoder[1])


def test_the_same_model_in_another_file_is_a_remark(mean: Pair, tmp_path: Path) -> None:
    model = onnx.load(mean[0])
    model.producer_name = "another"
    onnx.save(model, tmp_path / "m.onnx")
    proof = verify_folder(tmp_path / "m.onnx", mean[1])
    assert proof.ok
    (remark,) = proof.remarks
    assert "was made from another file than" in remark


def test_the_command_line_proves_a_folder(
    mean: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "verify", *mean, "--json")
    assert code == 0
    assert json.loads(out)["ok"]
    _, out, _ = said(capsys, "verify", *mean)
    assert "session   the same for 10 clips" in out
    worse = changed_copy(mean[1], tmp_path / "out", scale_a_weight)
    code, _, err = said(capsys, "verify", mean[0], worse)
    assert code == 1
    assert "does not give what" in err
    (worse / NAME).unlink()
    assert said(capsys, "verify", mean[0], worse)[0] == 2


@pytest.mark.parametrize(
    "option", [("--dims", "T=4"), ("--safety", "exact"), ("--report", "x.html")]
)
def test_options_of_two_models_are_refused(
    mean: Pair, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "verify", *mean, *option)
    assert code == 2
    assert f"{option[0]}: {mean[1]} is a folder; leave it out" in err


@pytest.mark.parametrize("name", ["mean", "decoder"])
def test_a_benchmark_of_what_was_changed_fails(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source, folder = request.getfixturevalue(name)
    options: Any = {"ep": "cpu", "clips": 3, "processes": 1}
    same = bench_stream(folder, source, **options)
    assert same.ok, str(same.proof)
    worse = changed_copy(folder, tmp_path / "out", scale_a_weight)
    result = bench_stream(worse, source, **options)
    assert not result.ok
    assert not result.proof.ok
    assert not result.shipped.error

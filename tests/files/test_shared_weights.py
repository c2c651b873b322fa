"""Models that are written together share one file of weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphfix
from graphfix.errors import ModelError, UsageError
from graphfix.files import io, wire

WIDTH = 160  # so that the weight is big
TEXT = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, {WIDTH}] x) => (float[B, T, {WIDTH}] y) {{ y = MatMul (x, w) }}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    assert weight.nbytes > wire.BIG
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def external(file: Path) -> Path:
    folder = file.parent / "given"
    folder.mkdir()
    graphfix.save(graphfix.load(file), folder / "model.onnx", external_data="separate")
    file.unlink()
    return folder / "model.onnx"


def put(source: Path, target: Path, sizes: Sequence[int] = (5, 30)) -> None:
    """Write the model at ``source`` once for each size."""
    pairs = []
    for size in sizes:
        model = io.load(source)
        model.doc_string = f"for {size}"  # else its file is copied as it is
        pairs.append((model, target.with_name(f"{target.stem}.{size}.onnx")))
    with io.draft_models(pairs, f"{target.stem}.shared.data") as drafts:
        for draft in drafts:
            draft.keep()


def locations(path: Path) -> set[tuple[str, str]]:
    proto = onnx.load(path, load_external_data=False)
    entries = [{e.key: e.value for e in t.external_data} for t in proto.graph.initializer]
    return {(x["location"], x["offset"]) for x in entries if x}


def data_in(folder: Path) -> str:
    (path,) = folder.glob("*.shared.*.data")
    return path.name


def listing(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir() if x.is_file())


def test_inline_weights_move_out_once(file: Path) -> None:
    put(file, file)
    data = data_in(file.parent)
    assert listing(file.parent) == ["model.30.onnx", "model.5.onnx", "model.onnx", data]
    assert locations(file.with_name("model.5.onnx")) == {(data, "0")}
    assert locations(file.with_name("model.30.onnx")) == {(data, "0")}
    assert file.with_name(data).stat().st_size == WIDTH * WIDTH * 4


def test_external_weights_beside_it_stay(external: Path) -> None:
    given = listing(external.parent)
    put(external, external)
    assert listing(external.parent) == sorted(["model.30.onnx", "model.5.onnx", *given])
    assert locations(external.with_name("model.5.onnx")) == locations(external)


def test_external_weights_go_along_once(external: Path, tmp_path: Path) -> None:
    put(external, tmp_path / "out.onnx")
    assert listing(tmp_path) == ["out.30.onnx", "out.5.onnx", data_in(tmp_path)]
    assert len({*locations(tmp_path / "out.5.onnx"), *locations(tmp_path / "out.30.onnx")}) == 1


@pytest.mark.parametrize("there", [(), ("5",), ("5", "30", "60")])
def test_a_name_that_cannot_be_given_leaves_each_file_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...]
) -> None:
    for size in there:
        file.with_name(f"model.{size}.onnx").write_bytes(f"earlier {size}".encode())
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if Path(target).name == "model.60.onnx":
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    told = r"model\.60\.onnx: cannot be written: Permission denied.*; written: .*model\.30\.onnx$"
    with pytest.raises(ModelError, match=told):
        put(file, file, (5, 30, 60))
    for size in (5, 30):
        graphfix.load(file.with_name(f"model.{size}.onnx"))
    monkeypatch.undo()
    put(file, file, (5, 30, 60))
    data = data_in(file.parent)
    made = ["model.30.onnx", "model.5.onnx", "model.60.onnx", "model.onnx", data]
    assert listing(file.parent) == made


def test_a_file_of_someone_else_is_not_overwritten(file: Path) -> None:
    file.with_name("model.shared.data").write_bytes(b"mine")
    put(file, file)
    assert file.with_name("model.shared.data").read_bytes() == b"mine"


def test_one_model_has_one_size(file: Path) -> None:
    with pytest.raises(UsageError, match=r"T=5,30 are several sizes.*graphfix ship --container"):
        graphfix.repair_file(file, passes="fix-dims:T=5,30")
    assert listing(file.parent) == ["model.onnx"]

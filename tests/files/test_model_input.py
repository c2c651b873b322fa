"""Models, dims and feeds in the forms in which a caller may give them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError, UsageError
from graphfix.files import model_input

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T] x) => (float[T] y) { y = Relu (x) }"""


def proto() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def test_paths_and_models_stay_what_they_are() -> None:
    model = ir.from_onnx_text(TEXT)
    for given in ("m.onnx", Path("m.onnx"), model):
        assert model_input.as_path_or_model(given) is given
    assert model_input.as_model(model) is model


@pytest.mark.parametrize("form", ["proto", "bytes", "holder"])
def test_other_forms_become_a_model(form: str) -> None:
    given: Any = proto()
    if form == "bytes":
        given = given.SerializeToString()
    elif form == "holder":
        given = SimpleNamespace(model_proto=given)
    model = model_input.as_path_or_model(given)
    assert isinstance(model, ir.Model)
    assert [x.op_type for x in model.graph] == ["Relu"]
    assert isinstance(model_input.as_model(given), ir.Model)


def test_what_is_no_model() -> None:
    for given in (3, None, SimpleNamespace(model_proto="m.onnx"), ["m.onnx"]):
        with pytest.raises(UsageError, match=f"^{type(given).__name__} is no model; give a path"):
            model_input.as_path_or_model(given)
    with pytest.raises(ModelError, match=r"^the 1,200 bytes given are no ONNX model: "):
        model_input.as_path_or_model(b"\xff" * 1200)


def test_a_file_is_loaded_and_a_model_saved_where_it_must_be(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert model_input.as_model_file("other.onnx", path) == "other.onnx"
    assert not path.exists()
    assert model_input.as_model_file(proto(), path) == path
    assert [x.op_type for x in model_input.as_model(path).graph] == ["Relu"]
    with pytest.raises(ModelError):
        model_input.as_model(tmp_path / "gone.onnx")


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        (None, {}),
        ({}, {}),
        ({"T": 7}, {"T": (7,)}),
        ({"T": [7, 40], "B": (1,)}, {"T": (7, 40), "B": (1,)}),
        ({"T": np.array([3, 4])}, {"T": (3, 4)}),
        ({"T": np.int64(3)}, {"T": (3,)}),
        ({"T": []}, {"T": ()}),
    ],
)
def test_sizes_by_dim(dims: Any, sizes: dict[str, tuple[int, ...]]) -> None:
    found = model_input.sizes_by_dim(dims)
    assert found == sizes
    assert all(type(x) is int for values in found.values() for x in values)


@pytest.mark.parametrize("dims", [{"T": 1.5}, {"T": "7"}, {"T": [1, None]}, ["T"], 7])
def test_what_are_no_sizes(dims: Any) -> None:
    with pytest.raises(UsageError, match="give sizes by the name of a dim, such as"):
        model_input.sizes_by_dim(dims)


def test_one_size_by_dim() -> None:
    assert model_input.one_size_by_dim({"T": [7, 7], "B": 1}) == {"T": 7, "B": 1}
    assert model_input.one_size_by_dim(None) == {}
    with pytest.raises(UsageError, match=r"^T: one size is needed here; give one of \[7, 8\]$"):
        model_input.one_size_by_dim({"T": [7, 8]})
    with pytest.raises(UsageError, match="T: one size is needed here"):
        model_input.one_size_by_dim({"T": []})


def test_feeds() -> None:
    for given in (None, "f.npz", Path("f.npz")):
        assert model_input.normalize_feeds(given) is given
    feeds = model_input.normalize_feeds({"x": [1, 2]})
    assert isinstance(feeds, dict)
    assert feeds["x"].tolist() == [1, 2]
    with pytest.raises(UsageError, match=r"give an .npz file, or an array for each input by name"):
        model_input.normalize_feeds([1, 2])  # type: ignore[arg-type]


class Accepted(TypedDict, total=False):
    floor: float
    strict: bool


def test_choices_and_options() -> None:
    model_input.require_valid_choices(ep=("cpu", ["cpu", "dml"]), how=(1, [1]))  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"^ep='gpu': give one of 'cpu', 'dml'$"):
        model_input.require_valid_choices(ep=("gpu", ["cpu", "dml"]))
    model_input.refuse_unknown_options({}, Accepted)
    model_input.refuse_unknown_options({"floor": 1, "strict": True}, Accepted)
    with pytest.raises(UsageError, match=r"^there is no option 'flor'.*floor"):
        model_input.refuse_unknown_options({"floor": 1, "flor": 1}, Accepted)

"""Graphs that are rare, some of them valid: what is not gone through is refused in a sentence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from graphfix.cli import _terminal, main
from graphfix.model import io
from graphfix.runtime.errors import reason_of

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '<ir_version: 9, opset_import: ["" : 17, "f" : 1]>'
CAST = "c = Cast <to = 9> (x) e = Cast <to = 1> (c)"


def sparse() -> onnx.SparseTensorProto:
    numbers = numpy_helper.from_array(np.ones(2, np.float32), "w")
    return helper.make_sparse_tensor(numbers, numpy_helper.from_array(np.array([0, 3])), [4])


def with_sparse_initializer() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(
        f"{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ {CAST} y = Relu (e) }}"
    )
    proto.graph.node[-1].CopyFrom(helper.make_node("Add", ["e", "w"], ["y"]))
    proto.graph.sparse_initializer.append(sparse())
    return proto


def with_sparse_constant() -> onnx.ModelProto:
    proto = with_sparse_initializer()
    del proto.graph.sparse_initializer[:]
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse()))
    return proto


def with_function_of_another_opset() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ {CAST} y = f.F (e) }}
        <domain: "f", opset_import: ["" : 9]> F (a) => (b) {{ b = Relu (a) }}"""
    )


@pytest.mark.parametrize("verb", ["check", "verify", "bool-cast", "float16", "fix-dims:T=3"])
@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (with_sparse_initializer, ""),
        (with_sparse_constant, ""),
        (with_function_of_another_opset, "Opset mismatch"),
    ],
)
def test_gone_through_or_refused(
    made: object, refused: str, verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(made(), file)  # type: ignore[operator]
    words = [verb, str(file)] if verb == "check" else ["verify", str(file), str(file)]
    if verb not in ("check", "verify"):
        words = ["run", str(file), "-p", verb, "-o", str(tmp_path / "o.onnx")]
    code = main(words)
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert code != 2 or (refused and refused in told)


def test_words_of_a_million_letters_take_no_time() -> None:
    start = time.process_time()
    name = "n" * 1_000_000
    assert len(reason_of(RuntimeError(f"{name} is not a registered function"))) <= 300
    assert len(_terminal.clean(f"the node {name} is")) < 300
    assert time.process_time() - start < 5


@pytest.mark.parametrize("made", [with_sparse_initializer, with_sparse_constant])
@pytest.mark.parametrize("verb", ["plan", "padded"])
def test_sparse_constants_are_copied(made: object, verb: str, tmp_path: Path) -> None:
    onnx.save(made(), tmp_path / "m.onnx")  # type: ignore[operator]
    more = ["--before-after", "fix-dims:T=4"] if verb == "plan" else []
    assert main([verb, str(tmp_path / "m.onnx"), *more]) == 0


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("made", [with_sparse_initializer, with_sparse_constant])
def test_a_sparse_constant_stays_or_becomes_a_dense_one(
    made: object, linear: bool, tmp_path: Path
) -> None:
    """Where a pass has changed it, there is the dense one, and only that."""
    given = made()  # type: ignore[operator]
    for tensor in [*given.graph.sparse_initializer, given.graph.node[0].attribute[0].sparse_tensor]:
        if tensor.values.name and not linear:
            tensor.indices.dims[:] = [2, 1]
    onnx.save(given, tmp_path / "m.onnx")
    model = io.load(tmp_path / "m.onnx")
    model.doc_string = "edited"
    io.save(model, tmp_path / "same.onnx")
    same = onnx.load(tmp_path / "same.onnx")
    same.ClearField("doc_string")
    assert same == given
    words = ["run", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "-p", "float16"]
    assert main([*words, "--no-verify"]) == 0
    half = onnx.load(tmp_path / "o.onnx")
    assert not half.graph.sparse_initializer
    assert not any(x.HasField("sparse_tensor") for node in half.graph.node for x in node.attribute)
    session = onnxruntime.InferenceSession(tmp_path / "o.onnx")
    (y,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
    assert y.tolist() == [[2, 1, 1, 2]] * 2

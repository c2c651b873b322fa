"""Graphs that are rare, some of them valid: what is not gone through is refused in a sentence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphfix.cli import _terminal, main
from graphfix.runtime.run_errors import reason_of

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
        (with_sparse_initializer, "the initializer 'w' is sparse, which graphfix does not read"),
        (with_sparse_constant, "the attribute 'sparse_value' of Constant is sparse"),
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
    assert len(_terminal.clean_text(f"the node {name} is")) < 300
    assert time.process_time() - start < 5


@pytest.mark.parametrize("key", ["graphfix.lengths", "graphfix.inputs"])
def test_an_entry_that_is_nested_without_end_is_refused(
    key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "m (float[T, 4] x) => (float[T, 4] y) { y = Neg (x) }"
    proto = onnx.parser.parse_model(f"{HEAD} {text}")
    proto.metadata_props.add(key=key, value="[" * 200_000)
    onnx.save(proto, tmp_path / "m.onnx")
    words = ["run", str(tmp_path / "m.onnx"), "-p", "ilens-mask", "-o", str(tmp_path / "o.onnx")]
    assert main(words) == 2
    assert f"graphfix: error: the model's {key}='[[[" in capfd.readouterr().err

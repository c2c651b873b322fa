"""Every public verb raises a GraphfixError, whatever a model makes of the code inside it."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import FaultError, GraphfixError, ModelError
from graphfix.job import checking
from graphfix.runtime.own_errors import raises_own_errors

GOOD = '<ir_version: 8, opset_import: ["" : 17]> m (float[N] x) => (float[N] y) { y = Relu (x) }'


def fails(error: Exception) -> object:
    @raises_own_errors
    def inspect(model: ir.Model) -> None:
        raise error

    return inspect


def test_a_model_that_onnx_runtime_refuses_is_to_blame() -> None:
    bad = GOOD.replace("y = Relu (x)", "h = Concat <axis = 3> (x, x) y = Relu (h)")
    with pytest.raises(ModelError, match="does not load in ONNX Runtime") as caught:
        fails(IndexError("list index out of range"))(ir.from_onnx_text(bad))
    assert isinstance(caught.value.__cause__, IndexError)


def test_another_is_not_and_the_fault_is_ours() -> None:
    with pytest.raises(
        FaultError, match="unexpected IndexError: no such; this is a fault"
    ) as caught:
        fails(IndexError("no such"))(ir.from_onnx_text(GOOD))
    assert isinstance(caught.value.__cause__, IndexError)


class CancelledError(Exception):
    """An error of the caller."""


@pytest.mark.parametrize(
    "error", [CancelledError(), OSError("full"), MemoryError(), ModelError("a")]
)
def test_what_is_no_fault_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        fails(error)(ir.from_onnx_text(GOOD))
    assert caught.value is error


def test_a_callback_may_end_a_verb() -> None:
    def progress(_: str) -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        graphfix.verify(ir.from_onnx_text(GOOD), ir.from_onnx_text(GOOD), progress=progress)


def test_a_wrong_call_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        graphfix.check()  # type: ignore[call-arg]


def test_a_rule_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(checking, "_findings_of", raises)
    with pytest.raises(FaultError):
        graphfix.check(ir.from_onnx_text(GOOD))


@pytest.mark.parametrize("field", ["domain", "producer", "node domain", "attribute", "dim", "doc"])
@pytest.mark.parametrize("verb", ["check", "plan", "run", "verify"])
def test_a_text_that_is_no_utf8_is_refused_wherever_it_stands(field: str, verb: str) -> None:
    mark = "marked"
    proto = onnx.parser.parse_model(GOOD.replace("Relu (x)", "Elu <alpha = 1.0> (x)"))
    node = proto.graph.node[0]
    if field == "domain":
        proto.opset_import.add(domain=mark, version=1)
    elif field == "producer":
        proto.producer_name = mark
    elif field == "node domain":
        node.domain = mark
    elif field == "attribute":
        node.attribute[0].name = mark
    elif field == "dim":
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = mark
    else:
        node.doc_string = mark
    data = proto.SerializeToString().replace(mark.encode(), b"mar\x92ed")
    proto = onnx.ModelProto.FromString(data)
    arguments = [proto, proto] if verb == "verify" else [proto]
    with pytest.raises(GraphfixError, match="UTF-8"):
        getattr(graphfix, verb)(*arguments)

"""The table of DirectML's kernels, and which version of an operator an opset means."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from graphfix.providers.directml.kernel_table import (
    kernel_at,
    kernel_for,
    kernel_versions,
    newest_opset_with_kernel,
)
from graphfix.providers.kernels import since_version, standard_domain, typed_values


def test_a_row_of_the_table() -> None:
    clip = kernel_for("Clip", "ai.onnx", 11)
    assert clip is not None
    assert (clip.op, clip.domain, clip.since) == ("Clip", "", 11)
    assert clip.cpu_inputs == {1, 2}
    assert clip.cpu_outputs == frozenset()
    assert (clip.fuses, clip.inputs_to_fuse) == (True, None)
    shape = kernel_for("Shape", "", 13)
    assert shape is not None
    assert shape.cpu_outputs == {0}
    assert not shape.fuses
    assert shape.types["T1"] == {ir.DataType.INT64}
    # A sequence has no element type of its own.
    assert ir.DataType.FLOAT in shape.types["T"]
    total = kernel_for("Sum", "", 13)
    assert total is not None
    assert total.inputs_to_fuse == 2
    choice = kernel_for("If", "", 13)
    assert choice is not None
    assert choice.types == {}
    assert kernel_for("Clip", "", 14) is None
    assert kernel_for("Clip", "com.microsoft", 11) is None


def test_a_kernel_takes_the_types_that_are_listed() -> None:
    exp = kernel_for("Exp", "", 13)
    assert exp is not None
    assert exp.accepts_type("T", ir.DataType.FLOAT16)
    assert not exp.accepts_type("T", ir.DataType.INT64)
    assert exp.accepts_type("Other", ir.DataType.INT64)


def test_versions_are_in_order() -> None:
    assert kernel_versions("Softmax") == (1, 11, 13)
    assert kernel_versions("Softmax", "com.microsoft") == ()
    assert kernel_versions("Nothing") == ()


@pytest.mark.parametrize(
    ("op", "domain", "opset", "since"),
    [
        ("Softmax", "", 12, 11),
        ("Softmax", "ai.onnx", 13, 13),
        ("Softmax", "", 17, 13),
        ("CumSum", "", 10, None),
        # ONNX Runtime's own are of version 1; some are in ONNX's domain.
        ("FastGelu", "com.microsoft", 1, 1),
        ("LayerNormalization", "", 16, 1),
        ("LayerNormalization", "", 17, 17),
        ("SimplifiedLayerNormalization", "", 17, 1),
        ("Nothing", "", 17, None),
    ],
)
def test_the_version_that_an_opset_means(
    op: str, domain: str, opset: int, since: int | None
) -> None:
    assert since_version(op, domain, opset) == since
    kernel = kernel_at(op, domain, opset)
    assert kernel is None or kernel.since == since


def test_the_newest_opset_that_runs_there() -> None:
    assert newest_opset_with_kernel("Sin", "", 22) == 21
    assert newest_opset_with_kernel("Sin", "", 8) == 7
    assert newest_opset_with_kernel("Sin", "", 7) is None
    assert newest_opset_with_kernel("Nothing", "", 22) is None


def test_values_have_the_types_of_their_formal_parameters() -> None:
    graph = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[2] x, int64 k, q) => (y) {
        a = Concat <axis = 0> (x, x, x)  b = Clip (a, , x)  v, i = TopK (b, k)  y = Neg (q) }"""
    ).graph
    concat, clip, top, neg = graph

    def found(node: ir.Node) -> list[tuple[str, str | None]]:
        schema = onnx.defs.get_schema(node.op_type, 17, "")
        typed = typed_values(node, schema, lambda x: x.dtype)
        return [(formal.type_str, value.name) for formal, value, _ in typed]

    # The last formal parameter may be variadic; absent values and unknown types are left out.
    assert found(concat) == [("T", "x")] * 3
    assert found(clip) == [("T", "x")]
    assert found(top) == [("tensor(int64)", "k")]
    assert found(neg) == []


def test_onnx_has_two_names_of_its_domain() -> None:
    assert standard_domain("ai.onnx") == standard_domain("") == ""
    assert standard_domain("ai.onnx.ml") == "ai.onnx.ml"

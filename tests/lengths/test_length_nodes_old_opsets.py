"""Opsets 11 and 12, which have no Max of integers, or axes in attributes."""

from __future__ import annotations

import zlib

import onnx
import pytest

import graphfix
from graphfix.errors import UsageError
from tests.lengths.catalogue import generated
from tests.lengths.padding import hold
from tests.lengths.steps import STEPS

BODIES = {
    "mean": "y = ReduceMean <axes = [1]> (x)",
    "largest": "y = ReduceMax <axes = [1], keepdims = 0> (x)",
    "last frame": "y = Slice <starts = [-1], ends = [9223372036854775807], axes = [1]> (x)",
    "the three last frames": """y = Slice
        <starts = [-3], ends = [9223372036854775807], axes = [1]> (x)""",
    "last frame, time first": """t = Transpose <perm = [1, 0, 2]> (x)
        f = Slice <starts = [-1], ends = [9223372036854775807], axes = [0]> (t)
        y = Transpose <perm = [1, 0, 2]> (f)""",
    "last frame, time last": """t = Transpose <perm = [0, 2, 1]> (x)
        y = Slice <starts = [-1], ends = [9223372036854775807], axes = [2]> (t)""",
    "from the second": """c = Slice <starts = [1], ends = [9223372036854775807], axes = [1]> (x)
        y = ReduceMean <axes = [1]> (c)""",
    "convolution": """t = Transpose <perm = [0, 2, 1]> (x)
        c = Conv <kernel_shape = [3], pads = [1, 1], strides = [2]> (t, k)
        y = ReduceMean <axes = [2]> (c)""",
    "reflect": """p = Pad <mode = "reflect", pads = [0, 2, 0, 0, 2, 0]> (x)
        y = ReduceMax <axes = [1]> (p)""",
    "heads": """s = Shape (x)  bt = Slice <starts = [0], ends = [2], axes = [0]> (s)
        h = Concat <axis = 0> (bt, two)  r = Reshape (x, h)  y = ReduceMean <axes = [1]> (r)""",
    "attention": """t = Transpose <perm = [0, 2, 1]> (x)
        s = MatMul (x, t)  p = Softmax <axis = 2> (s)  y = MatMul (p, x)""",
}


def model(body: str, opset: int) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 4] x) => (float[] y)
        <float[4, 4, 3] k = {{{", ".join(str((i * 7 % 13 - 6) / 8) for i in range(48))}}},
         int64[2] two = {{2, 2}}>
        {{ {body} }}"""
    made = onnx.parser.parse_model(text)
    made = by_inputs(made)
    made.graph.output[0].ClearField("type")
    return made


def by_inputs(made: onnx.ModelProto) -> onnx.ModelProto:
    """The same with the limits of each Slice, and what is padded, as inputs."""
    for node in made.graph.node:
        names = {"Slice": ("starts", "ends", "axes"), "Pad": ("pads",)}.get(node.op_type, ())
        for attribute in [x for x in node.attribute if x.name in names]:
            name = f"{node.output[0]}_{attribute.name}"
            values = onnx.numpy_helper.from_array(
                onnx.numpy_helper.np.array(attribute.ints, "int64"), name
            )
            made.graph.initializer.append(values)
            node.attribute.remove(attribute)
        node.input.extend(f"{node.output[0]}_{x}" for x in names)
    return made


@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_padding_stays_out(body: str, opset: int) -> None:
    found = hold(model(body, opset), zlib.crc32(body.encode()), "B")
    assert found.kind == "repaired", found.what


@pytest.mark.parametrize("opset", [11, 12])
def test_padding_stays_out_of_what_is_generated(opset: int) -> None:
    kinds: set[str] = set()
    for step in sorted(STEPS):
        made, names, batch = generated(zlib.crc32(step.encode()), step, opset=opset)
        if any(node.domain for node in made.graph.node):
            continue
        found = hold(made, zlib.crc32(step.encode()), batch)
        assert found.kind != "leaks", f"{step} in {names}: {found.what}"
        kinds.add(found.kind)
    assert "repaired" in kinds


def test_before_opset_11_there_is_a_sentence(tmp_path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 9]>
        m (float[B, T, 4] x) => (float[B, 1, 4] y) { y = ReduceMean <axes = [1]> (x) }"""
    path = tmp_path / "old.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with pytest.raises(UsageError, match="masks need opset 11, the model has 9"):
        graphfix.repair_file(path, passes="ilens-mask")

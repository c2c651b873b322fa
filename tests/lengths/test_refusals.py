"""What a refusal says: names that a user can find in the model that was given."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError, UsageError


def model(body: str, inputs: str = "float[B, T, 4] x", opset: int = 17) -> ir.Model:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m ({inputs}) => (float[] y) <float[2, 3, 1, 1] k = {{1, 2, 3, 4, 5, 6}}>
        {{ {body} }}"""
    made = onnx.parser.parse_model(text)
    made.graph.output[0].ClearField("type")
    return ir.from_proto(made)


def refusal(made: ir.Model, spec: str = "ilens-mask:axis=x.1") -> str:
    with pytest.raises((PaddingError, UsageError)) as error:
        graphfix.run(made, spec)
    return str(error.value)


def ours(made: ir.Model, by: str, *names: str) -> ir.Model:
    """The same where a pass has written these nodes, and named what only they make."""
    for node in made.graph:
        if node.outputs[0].name in names:
            node.name = f"gf_{by}_{names.index(node.outputs[0].name)}"
            node.metadata_props["graphfix.pass"] = by
            for i, value in enumerate(node.outputs):
                value.name = value.name if value.name == "y" else f"{node.name}_{i}"
        else:
            node.name = f"/own/{node.op_type}"
    return made


SPLIT = "h = Relu (x) c, d = Split <axis = 1> (h) e = Neg (c) y = ReduceMax (e)"


def test_a_node_of_the_model_is_named() -> None:
    found = refusal(ours(model(SPLIT), "fold"))
    assert "Split '/own/Split': it splits the axis" in found
    assert found.endswith("-p directml,ilens-mask")


def test_a_node_that_a_pass_has_written_is_told_by_what_follows_from_it() -> None:
    found = refusal(ours(model(SPLIT), "fold", "c", "e"))
    assert "the Split before ReduceMax '/own/ReduceMax' (fold wrote it): it splits" in found
    assert "gf_" not in found
    assert "-p directml" not in found  # a profile has been there


def test_or_by_what_it_makes() -> None:
    body = "y, d = Split <axis = 1> (x)"
    assert "the Split that makes 'y' (fold wrote it): it splits" in refusal(
        ours(model(body), "fold", "y")
    )


# --- images -----------------------------------------------------------------------------------

CONV = "c = Conv (x, k) y = GlobalAveragePool (c)"


def test_an_image_of_which_only_the_batch_may_vary_has_no_time() -> None:
    found = refusal(model(CONV, "float[B, 3, 224, 224] x"), "ilens-mask")
    assert "x is [B, 3, 224, 224], as images are" in found
    assert "nothing to pad" in found
    assert "axis=x.0" not in found


@pytest.mark.parametrize("batch", ["B", "1"])
def test_an_image_of_any_size_is_no_clip(batch: str) -> None:
    found = refusal(model(CONV, f"float[{batch}, 3, H, W] x"), "ilens-mask")
    assert f"x is [{batch}, 3, H, W], as images are" in found
    assert "-p fix-dims:H=48,ilens-mask:axis=x.3" in found
    made = model(CONV, f"float[{batch}, 3, H, W] x")
    graphfix.run(made, "fix-dims:H=48,ilens-mask:axis=x.3")
    assert [x.name for x in made.graph.inputs] == ["x", "ilens"]


def test_the_height_of_one_image_is_no_batch() -> None:
    made = model(CONV, "float[1, 3, H, W] x")
    graphfix.run(made, "ilens-mask:axis=x.3")
    assert list(made.graph.inputs[1].shape) == [1]


def test_a_batch_behind_time_is_one() -> None:
    made = model("y = ReduceSum <keepdims = 0> (x)", "float[T, B, 4] x", 12)
    found = refusal(made, "ilens-mask:axis=x.0")
    assert "it sums over the batch" in found


def test_a_table_that_is_not_cut_to_the_clip() -> None:
    """Whisper's positions are those of 30 seconds, whatever dim its export has for time."""
    entries = ", ".join(["0.5"] * 80)
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, 4, frames] x) => (float[] y)
        <float[4, 4, 3] k = {{{", ".join(["1"] * 48)}}}, float[20, 4] table = {{{entries}}}>
        {{ c = Conv <strides = [2], pads = [1, 1]> (x, k) h = Transpose <perm = [0, 2, 1]> (c)
           p = Add (h, table) y = ReduceMax (p) }}"""
    found = refusal(ir.from_proto(onnx.parser.parse_model(text)), "ilens-mask")
    assert "with 20 of something that does not follow the clip" in found
    assert "(-p fix-dims:frames=40)" in found
    assert "cut to the clip (table[:floor(frames/2 + 1/2)])" in found


@pytest.mark.parametrize(
    ("inputs", "told", "spec"),
    [
        ("float[N, H, W, 3] x", "[N, H, W, 3]", "fix-dims:H=48,ilens-mask:axis=x.2"),
        ("float[3, H, W] x", "[3, H, W]", "fix-dims:H=48,ilens-mask:axis=x.2"),
        ("float[N, 3, ?, ?] x", "[N, 3, ?, ?]", "fix-dims:x.2=48,ilens-mask:axis=x.3"),
        ("float[N, 3, H, W] x, float[N, 2] s", "[N, 3, H, W]", "fix-dims:H=48,ilens-mask:axis=x.3"),
    ],
)
def test_images_of_other_layouts_and_beside_other_inputs(inputs: str, told: str, spec: str) -> None:
    made = model("y = Relu (x)", inputs)
    found = refusal(made, "ilens-mask")
    assert f"x is {told}, as images are: both sides may vary" in found
    assert found.endswith(f"-p {spec}")
    graphfix.run(made, spec)  # what it says works


def test_what_varies_in_all_axes_is_not_taken_for_an_image() -> None:
    found = refusal(model("y = Relu (x)", "float[B, C, T, F] x"), "ilens-mask")
    assert "axis=x.2 (T)" in found


def test_one_number_for_each_row_may_be_its_length() -> None:
    """Rows have two names, so that nothing says that there are as many of both."""
    given = "int64[B, T] ids, int64[C] length"
    made = model("c = Cast <to = 1> (ids) y = ReduceMean <axes = [1]> (c)", given)
    told = refusal(made, "ilens-mask")
    spec = "ilens-mask:axis=ids.1:from=length"
    assert told.endswith(f"if length is how much is valid of each row: -p {spec}")
    assert graphfix.run(made, spec).changed  # what it says works


def test_a_fraction_for_each_row_is_not() -> None:
    made = model("y = Relu (x)", "float[B, T] x, float[C] share")
    assert "how much is valid" not in refusal(made, "ilens-mask")


def test_a_dim_without_a_name_has_only_its_place() -> None:
    made = model("y = Relu (x)", "float[B, T, 4, N] x")
    given = made.graph.inputs[0]
    given.shape = ir.Shape([ir.SymbolicDim("B"), ir.SymbolicDim(None), 4, ir.SymbolicDim("N")])
    told = refusal(made, "ilens-mask")
    assert "of one size: x.1, x.3 (N); " in told
    assert "-p ilens-mask:axis=x.1, -p ilens-mask:axis=x.3 (N)" in told


@pytest.mark.parametrize(
    ("inputs", "body", "says"),
    [
        ("int64[B, U] ids, float[B, T, 4] x", "e = Gather (table, ids)", False),
        ("float[B, U] f0, float[B, T, 4] x", "e = Unsqueeze (f0, last)", False),
        ("float[B, U] x_mask, float[B, T, 4] x", "e = Unsqueeze (x_mask, last)", True),
        ("int64[B, U] valid, float[B, T, 4] x", "c = Cast <to = 1> (valid) e = Identity (c)", True),
    ],
    ids=["tokens", "a curve", "a mask", "numbers"],
)
def test_only_what_may_be_a_mask_is_said_to_be_one(inputs: str, body: str, says: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({inputs}) => (float[] y)
        <float[1, 4] table = {{1, 1, 1, 1}}, int64[1] last = {{2}}>
        {{ {body} a = ReduceMean <keepdims = 0> (e) y = Mul (a, x) }}"""
    made = onnx.parser.parse_model(text)
    made.graph.output[0].ClearField("type")
    told = refusal(ir.from_proto(made), "ilens-mask")
    assert "several dims may be time" in told
    assert ("for what is valid" in told) is says


def test_a_number_that_a_trace_has_counted() -> None:
    body = """split = Constant <value = int64[4] {0, 37, 2, 2}> ()  y = Reshape (x, split)"""
    assert "counted" not in refusal(model(body.replace("{0, 37, 2, 2}", "{-1, 4, 2, 2}")))
    found = refusal(
        model(
            "h = Transpose <perm = [1, 0, 2]> (x)  s = Constant <value = int64[3] "
            "{37, -1, 4}> ()  r = Reshape (h, s)  y = Relu (r)"
        )
    )
    assert "if a trace has counted 37 there" in found
    assert "-p fix-dims:T=37" in found

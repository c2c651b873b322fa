"""fresh-shapes: which declared shapes are written again, and which are left alone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import data

ZOO = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[4] / "shared" / "zoo")) / "models"
Dims = list[int | str | None]

NODES = {
    "relu": "t = Relu (x) y = Neg (t)",
    "reshape": "t = Reshape (x, heads) y = Reshape (t, flat)",
    "expand": "s = Shape (x) t = Expand (x, s) y = Neg (t)",
    "two": "t = Transpose <perm = [1, 0, 2]> (x) y = Transpose <perm = [1, 0, 2]> (t)",
}


def model(body: str, declared: Dims | None, *, output: str = "B, T, 8") -> ir.Model:
    """A model of x [B, T, 8] with a shape declared for its tensor t."""
    made = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 18]>
    m (float[B, T, 8] x) => (float[{output}] y)
    <int64[4] heads = {{0, 0, 2, 4}}, int64[3] flat = {{0, 0, 8}}>
    {{ {body} }}""")
    if declared is not None:
        value = find(made, "t")
        value.shape = ir.Shape(declared)
        value.dtype = ir.DataType.FLOAT
    return made


def find(m: ir.Model, name: str) -> ir.Value:
    return next(x for node in m.graph.all_nodes() for x in node.outputs if x.name == name)


def dims(value: ir.Value) -> Dims:
    return [x if isinstance(x, int) else x.value for x in value.shape or ()]


def renew(m: ir.Model) -> tuple[ir.Model, graphfix.PassReport]:
    after = m.clone()
    report = graphfix.run(after, "fresh-shapes").passes[0]
    saved = data(after)
    again = graphfix.run(after, "fresh-shapes").passes[0]
    assert not again.changes
    assert again.skips == report.skips
    assert data(after) == saved
    return after, report


def execute(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {x.name: feeds[x.name] for x in session.get_inputs()})


# The body, what is declared, what it becomes.
STALE: dict[str, tuple[str, Dims, Dims]] = {
    "a width": ("relu", ["B", "T", 3584], ["B", "T", 8]),
    "a width, with dims that nobody names": ("relu", [None, "unk__7", 3584], [None, "unk__7", 8]),
    "a rank": ("reshape", ["B", "T", 8], ["B", "T", 2, 4]),
    "a rank of one more": ("relu", ["B", 1, "T", 8], ["B", "T", 8]),
    "no dims at all": ("relu", [], ["B", "T", 8]),
    "a length frozen at export": ("relu", ["B", 200, 8], ["B", "T", 8]),
    "a batch frozen at export": ("relu", [1, "T", 8], ["B", "T", 8]),
    "an Expand frozen at export": ("expand", [2, 7, 8], ["B", "T", 8]),
    "the name of a dim for a number": ("relu", ["B", "T", "T"], ["B", "T", 8]),
    "names that changed places": ("two", ["B", "T", 8], ["T", "B", 8]),
}


@pytest.mark.parametrize(("body", "declared", "wanted"), STALE.values(), ids=STALE)
def test_a_contradiction_is_written_anew(body: str, declared: Dims, wanted: Dims) -> None:
    before = model(NODES[body], declared)
    after, report = renew(before)
    assert dims(find(after, "t")) == wanted
    assert len(report.changes) == 1
    assert report.changes[0].tensor == "t"
    onnx.shape_inference.infer_shapes(ir.to_proto(after), strict_mode=True, data_prop=True)
    # But for that shape, nothing is touched.
    after.metadata_props.pop("graphfix.pipeline")
    find(after, "t").shape = find(before, "t").shape
    assert data(after) == data(before)
    clean = ir.to_proto(model(NODES[body], None))
    feeds = {"x": np.arange(48, dtype=np.float32).reshape(2, 3, 8)}
    after.graph.outputs[0].shape = None
    find(after, "t").shape = ir.Shape(wanted)
    for old, new in zip(execute(clean, feeds), execute(ir.to_proto(after), feeds), strict=True):
        np.testing.assert_array_equal(old, new)


# The body and what is declared, which is true, or of which nothing is known.
TRUE: dict[str, tuple[str, Dims | None]] = {
    "the same": ("relu", ["B", "T", 8]),
    "nothing": ("relu", None),
    "names of its own": ("relu", ["batch", "unk__3", 8]),
    "no names": ("relu", [None, None, None]),
    "a name for a number": ("relu", ["B", "T", "width"]),
    "a known number without a name": ("relu", ["B", "T", None]),
    "a rank of its own": ("reshape", ["B", "T", 2, 4]),
    "an expression that nobody proves": ("relu", ["B", "Max(0, T)", 8]),
    "an expression for the same": ("relu", ["B", "T + 0", 8]),
    "a number where the size is data": ("half", [5, 3]),
    "an operator that nobody knows": ("unknown", ["B", "T", 99]),
    "after an operator that nobody knows": ("later", [1, 2, 3]),
}
UNKNOWN = {
    "unknown": "t = com.acme.Twice (x) y = Neg (t)",
    "later": "u = com.acme.Twice (x) t = Relu (u) y = Neg (t)",
    "half": "n = NonZero (x) t = Transpose (n) y = Cast <to = 1> (t)",
}


@pytest.mark.parametrize(("body", "declared"), TRUE.values(), ids=TRUE)
def test_what_does_not_contradict_keeps_every_byte(body: str, declared: Dims | None) -> None:
    text = UNKNOWN.get(body) or NODES[body]
    before = model(text, declared, output="A, 3" if body == "half" else "B, T, 8")
    after, report = renew(before)
    assert not report.changes
    assert not report.skips
    assert data(after) == data(before)


def test_min_of_a_table_is_no_contradiction_with_a_name() -> None:
    before = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 18]>
    m (float[T] x) => (float[T] y)
    <int64[1] size = {64}, int64[1] zero = {0}, int64[T] t> {
        n = Shape (x)
        table = ConstantOfShape <value = int64[1] {3}> (size)
        t = Slice (table, zero, n)
        f = Cast <to = 1> (t)
        y = Add (x, f)
    }"""
    )
    after, report = renew(before)
    assert not report.changes
    assert data(after) == data(before)


OUTPUTS = {
    "a number": ("B, T, 9", ["B", "T", 8]),
    "a rank": ("B, T", ["B", "T", 8]),
    "a length frozen at export": ("B, 200, 8", ["B", "T", 8]),
}


@pytest.mark.parametrize(("declared", "wanted"), OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_is_written_anew_too(declared: str, wanted: Dims) -> None:
    after, report = renew(model(NODES["relu"], None, output=declared))
    assert len(report.changes) == 1
    assert dims(after.graph.outputs[0]) == wanted


@pytest.mark.parametrize("size", [1, 2])
def test_an_output_keeps_the_name_of_a_dim_that_may_have_one_size_only(size: int) -> None:
    made = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 18]>
    m (float[N, 4, 4] x) => (float[N, 16] y) <int64[2] flat = {{{size}, 16}}>
    {{ y = Reshape (x, flat) }}""")
    after, report = renew(made)
    assert not report.changes
    assert dims(after.graph.outputs[0]) == ["N", 16]


@pytest.mark.parametrize("declared", ["B, T, 8", "batch, frames, 8", "B, T, width", "B, T, C"])
def test_an_output_with_names_of_its_own_stays(declared: str) -> None:
    before = model(NODES["relu"], None, output=declared)
    after, report = renew(before)
    assert not report.changes
    assert data(after) == data(before)


def test_a_branch_is_looked_at_too() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    m (float[B, 4] x, bool c) => (float[B, 4] y) {
        y = If (c) <
            then_branch = a () => (float[B, 4] p) <float[B, 5] t> { t = Relu (x) p = Neg (t) },
            else_branch = b () => (float[B, 4] q) { q = Abs (x) }
        >
    }"""
    after, report = renew(ir.from_onnx_text(text))
    assert [x.tensor for x in report.changes] == ["t"]
    assert dims(find(after, "t")) == ["B", 4]


def test_strict_inference_stops_before_and_not_after() -> None:
    before = model(NODES["relu"], ["B", "T", 3584])
    with pytest.raises(onnx.shape_inference.InferenceError, match="3584"):
        onnx.shape_inference.infer_shapes(ir.to_proto(before), strict_mode=True)
    after, _ = renew(before)
    onnx.shape_inference.infer_shapes(ir.to_proto(after), strict_mode=True)


def test_check_says_both_shapes() -> None:
    found = graphfix.check(model(NODES["relu"], ["B", "T", 3584]), "fresh-shapes")
    assert [x.message for x in found] == ["'t' is declared as [B,T,3584] and is [B,T,8]"]


def test_a_saved_file_has_the_new_shape(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    ir.save(model(NODES["relu"], ["B", 200, 3584]), file)
    fixed = graphfix.load(file)
    graphfix.run(fixed, "fresh-shapes")
    graphfix.save(fixed, tmp_path / "fixed.onnx")
    known = onnx.load(tmp_path / "fixed.onnx").graph.value_info
    [info] = [x for x in known if x.name == "t"]
    found = [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]
    assert found == ["B", "T", 8]


BAD = ("qwen3_asr_encoder_naive.ts17", "sensevoice_official.ts14")


@pytest.mark.parametrize("name", BAD)
def test_models_of_the_zoo_load_and_equal_their_clean_twin(name: str, tmp_path: Path) -> None:
    if not ZOO.is_dir():
        pytest.skip(f"no zoo at {ZOO}; set GRAPHFIX_ZOO")
    fixed = graphfix.load(ZOO / f"{name}+badvi.onnx")
    report = graphfix.run(fixed, "fresh-shapes").passes[0]
    assert len(report.changes) == 2
    assert not report.skips
    graphfix.save(fixed, tmp_path / "fixed.onnx")
    clean, after = onnx.load(ZOO / f"{name}.onnx"), onnx.load(tmp_path / "fixed.onnx")
    rng = np.random.default_rng(0)
    session = ort.InferenceSession(clean.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {}
    for x in session.get_inputs():
        at = [d if isinstance(d, int) else {"batch_size": 2, "B": 2}.get(d, 24) for d in x.shape]
        if "int" in x.type:
            feeds[x.name] = np.ones(at, np.int64 if "64" in x.type else np.int32)
        else:
            feeds[x.name] = rng.normal(size=at).astype(np.float32)
    for old, new in zip(execute(clean, feeds), execute(after, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(1, 9), st.sampled_from(["B", "T", "other", None])),
        min_size=0,
        max_size=4,
    )
)
def test_what_is_left_is_never_false(declared: Dims) -> None:
    after, _ = renew(model(NODES["relu"], declared))
    found = dims(find(after, "t"))
    assert len(found) == 3
    for dim, true in zip(found, ["B", "T", 8], strict=True):
        assert dim in (true, None, "other")


def squeezed(declared: Dims) -> ir.Model:
    """Of one row the Squeeze leaves a scalar, as PLCMOS declares its output."""
    made = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 11]>
    m (float[B, 4] x) => (float y)
    <float[1, 4] w = {1, 2, 3, 4}, float[1] b = {1}, float four = {4}>
    { g = Gemm <transB = 1> (x, w, b) s = Squeeze (g) y = Mul (s, four) }""")
    made.graph.outputs[0].shape = ir.Shape(declared)
    return made


@pytest.mark.parametrize(("declared", "severity"), [([], "error"), (["B"], "warning")])
def test_no_shape_is_declared_behind_a_squeeze_of_what_is_1_in_a_run(
    declared: Dims, severity: str
) -> None:
    before = squeezed(declared)
    (finding,) = (x for x in graphfix.check(before) if x.rule == "fresh-shapes")
    assert finding.severity == severity
    assert "of another rank in each run" in finding.message
    after, report = renew(before)
    assert len(report.changes) == 1
    assert after.graph.outputs[0].shape is None
    assert after.graph.outputs[0].dtype == ir.DataType.FLOAT


def test_axes_that_are_named_leave_the_declared_shape() -> None:
    made = squeezed(["B"])
    node = next(x for x in made.graph if x.op_type == "Squeeze")
    node.attributes.add(ir.AttrInt64s("axes", [1]))
    assert not renew(made)[1].changes

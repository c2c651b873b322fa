from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

import graphfix
from tests.passes.models import opened

REFUSALS = (Fail, InvalidArgument, RuntimeException)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
SIZES = ({"B": 1, "T": 1, "S": 1}, {"B": 1, "T": 2, "S": 5}, {"B": 2, "T": 7, "S": 2})

# Shape of x as Gathers that TorchScript writes, and as Shapes that dynamo writes.
B = "sb = Shape <start = 0, end = 1> (x)"
T = "st = Shape <start = 1, end = 2> (x)"


def model_of(text: str) -> ir.Model:
    return ir.from_onnx_text(f"{HEAD} m {text}")


def run(model: ir.Model, sizes: dict[str, int]) -> list[np.ndarray]:
    session = opened(model)
    feeds = {}
    for value in session.get_inputs():
        shape = [sizes.get(d, d) for d in value.shape]
        count = int(np.prod(shape))
        kind = np.float32 if value.type == "tensor(float)" else np.int64
        feeds[value.name] = np.arange(1, count + 1, dtype=kind).reshape(shape)
    return session.run(None, feeds)


def same_everywhere(text: str, after: ir.Model, sizes: tuple[dict[str, int], ...] = SIZES) -> None:
    for case in sizes:
        for a, b in zip(run(model_of(text), case), run(after, case), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5)  # one of the models has a MatMul


def targets(model: ir.Model) -> list[list[int] | None]:
    """The constant shape of each Reshape; None where it is still computed."""
    found: list[list[int] | None] = []
    for node in model.graph.all_nodes():
        if node.op_type == "Reshape":
            shape = node.inputs[1]
            constant = shape is not None and shape.is_initializer() and shape.const_value
            found.append(constant.numpy().tolist() if constant else None)
    return found


def repaired(text: str, sizes: tuple[dict[str, int], ...] = SIZES) -> tuple[ir.Model, object]:
    model = model_of(text)
    result = graphfix.get_pass("unflatten-heads")(model)
    same_everywhere(text, model, sizes)
    again = graphfix.get_pass("unflatten-heads")(model)
    assert not again.modified
    return model, result


# What is repaired -------------------------------------------------------------------------------

REPAIRS = {
    "split, dynamo": (
        f"""(float[B, T, 32] x) => (float[B, T, 2, 16] y) <int64[2] hd = {{2, 16}}> {{
            {B} {T} s = Concat <axis = 0> (sb, st, hd)
            y = Reshape <allowzero = 1> (x, s) }}""",
        [0, 0, 2, 16],
    ),
    "split with -1": (
        f"""(float[B, T, 32] x) => (float[B, T, H, 16] y) <int64[2] hd = {{-1, 16}}> {{
            {B} {T} s = Concat <axis = 0> (sb, st, hd)
            y = Reshape <allowzero = 1> (x, s) }}""",
        [0, 0, 2, 16],
    ),
    "split with -1 at the time": (
        f"""(float[B, T, 32] x) => (float[B, T, 2, 16] y) <int64[3] thd = {{-1, 2, 16}}> {{
            {B} s = Concat <axis = 0> (sb, thd) y = Reshape (x, s) }}""",
        [0, 0, 2, 16],
    ),
    "merge": (
        f"""(float[B, T, 2, 16] x) => (float[B, T, 32] y) <int64[1] d = {{-1}}> {{
            {B} {T} s = Concat <axis = 0> (sb, st, d) y = Reshape <allowzero = 1> (x, s) }}""",
        [0, 0, 32],
    ),
    "the size from another tensor of equal size": (
        """(float[B, T, 32] x, float[B, T, 5] other) => (float[B, T, 2, 16] y)
        <int64[2] hd = {2, 16}> {
            w = Relu (other) sh = Shape <start = 0, end = 2> (w)
            s = Concat <axis = 0> (sh, hd) y = Reshape (x, s) }""",
        [0, 0, 2, 16],
    ),
    "a flattening of known features": (
        """(float[B, T, 4, 8] x) => (float[N, 32] y)
        <int64[1] d = {32}, int64 z = {0}, int64 o = {1}>
        { sx = Shape (x) b = Gather (sx, z) t = Gather (sx, o) n = Mul (b, t)
          axis = Constant <value_ints = [0]> () n1 = Unsqueeze (n, axis)
          s = Concat <axis = 0> (n1, d) y = Reshape (x, s) }""",
        [-1, 32],
    ),
    "a Concat of constants": (
        """(float[B, T, 32] x) => (float[B, T, 2, 16] y)
        <int64[2] a = {0, -1}, int64[2] b = {2, 16}>
        { s = Concat <axis = 0> (a, b) y = Reshape (x, s) }""",
        [0, 0, 2, 16],
    ),
    "the shape of the input itself": (
        "(float[B, T, 32] x) => (float[B, T, 32] y) { s = Shape (x) y = Reshape (x, s) }",
        [0, 0, 32],
    ),
    "the batch is 1": (
        """(float[1, T, 32] x) => (float[1, T, 2, 16] y) <int64[2] hd = {2, 16}> {
            sh = Shape <end = 2> (x) s = Concat <axis = 0> (sh, hd) y = Reshape (x, s) }""",
        [1, 0, 2, 16],
    ),
    "the last size is proved by the MatMul after it": (
        # The scores take their batch from x or from the mask, whichever is not 1; the weight
        # takes 32, so that merging [., T, 2, 16] to [batch of x, T, -1] must have given 32.
        """(float[B, T, 2, 16] x, float[M, 1, 1, 1] mask, float[32, 4] w) => (float[B, T, 4] y)
        <int64[1] d = {-1}> {
            hidden = Add (x, mask) sh = Shape <end = 2> (x)
            s = Concat <axis = 0> (sh, d) merged = Reshape (hidden, s) y = MatMul (merged, w) }""",
        [0, 0, 32],
    ),
}


@pytest.mark.parametrize("case", REPAIRS)
def test_a_computed_shape_becomes_a_constant(case: str) -> None:
    text, target = REPAIRS[case]
    sizes = tuple({**x, "M": m} for x in SIZES for m in {1, x["B"]})
    model, result = repaired(text, sizes)
    assert targets(model) == [target], result
    assert not result.skips
    reshape = next(x for x in model.graph if x.op_type == "Reshape")
    assert "allowzero" not in reshape.attributes
    kinds = {x.op_type for x in model.graph}
    assert kinds.isdisjoint({"Shape", "Concat", "Gather", "Unsqueeze"})


# Sizes that lie elsewhere: a Squeeze or an Unsqueeze would bring them to their place, at the price
# of a kernel, which a Glow-TTS would pay in each of its flows.
MOVED = {
    "keys folded for attention": """(float[B, 2, T, 16] x) => (float[N, T, 16] y)
        <int64[1] minus = {-1}> { st = Shape <start = 2, end = 4> (x)
          s = Concat <axis = 0> (minus, st) y = Reshape (x, s) }""",
    "channels taken apart": """(float[B, 16, T] x) => (float[B, 2, 8, T] y)
        <int64[2] parts = {2, 8}> { sb = Shape <end = 1> (x) st = Shape <start = 2, end = 3> (x)
          s = Concat <axis = 0> (sb, parts, st) y = Reshape (x, s) }""",
    "a sum of sizes": """(float[B, 8, T] x, float[B, 8, P] past) => (float[M, 4, 8, N] y)
        <int64[1] minus = {-1}, int64[2] hd = {4, 8}> {
            both = Concat <axis = 2> (past, x) st = Shape <start = 2, end = 3> (both)
            s = Concat <axis = 0> (minus, hd, st) y = Reshape (both, s) }""",
}


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("case", MOVED)
def test_a_size_that_lies_elsewhere_stays_computed(case: str, opset: int) -> None:
    text = MOVED[case] if opset >= 15 else older(MOVED[case])
    model = ir.from_onnx_text(f"{HEAD.replace('17', str(opset))} m {text}")
    result = graphfix.get_pass("unflatten-heads")(model)
    assert not result.modified
    assert not result.skips


SHAPE = re.compile(r"(\w+) = Shape <(?:start = (\d+))?(?:, )?(?:end = (\d+))?> \((\w+)\)")


def older(text: str) -> str:
    """The same with a Shape of all dims and a Slice, as before opset 15."""
    return SHAPE.sub(_cut, text)


def _cut(found: re.Match[str]) -> str:
    name, start, end, of = found.groups()
    return (
        f"{name}_from = Constant <value_ints = [{start or 0}]> ()"
        f" {name}_to = Constant <value_ints = [{end or 9}]> ()"
        f" {name}_all = Shape ({of}) {name} = Slice ({name}_all, {name}_from, {name}_to)"
    )


def test_a_size_of_zero_at_run_time_is_copied() -> None:
    text, _ = REPAIRS["split, dynamo"]
    repaired(text, ({"B": 0, "T": 3}, {"B": 2, "T": 0}, {"B": 0, "T": 0}))


def test_a_size_beside_a_minus_1_is_taken_to_be_none_of_zero() -> None:
    """The manual says so: where it is 0, the model copies another size, and loses its features."""
    text = f"""(float[B, T, 8] x) => (float[M, 8] y) <int64[1] m = {{-1}}> {{
        {B} {T} bt = Mul (sb, st) s = Concat <axis = 0> (bt, m) y = Reshape (x, s) }}"""
    model, _ = repaired(text)
    assert targets(model) == [[-1, 8]]
    empty = {"B": 2, "T": 0}
    assert [x.shape for x in run(model_of(text), empty)] == [(2, 0)]
    assert [x.shape for x in run(model, empty)] == [(0, 8)]


@pytest.mark.parametrize("allowzero", [0, 1])
def test_a_size_of_zero_that_copies_another_size_is_left(allowzero: int) -> None:
    # Where B is 0 and T is 1, the 0 for B copies T: [0, 1], unless zeros are meant.
    text = f"""(float[B, T, B] x) => (float[N, M] y) {{
        {B} {T} n = Mul (sb, st) s = Concat <axis = 0> (n, sb)
        y = Reshape <allowzero = {allowzero}> (x, s) }}"""
    model, _ = repaired(text, ({"B": 0, "T": 1}, {"B": 2, "T": 3}))
    assert targets(model) == [None]


# What is left alone -----------------------------------------------------------------------------

LEFT = {
    "a size from a tensor of another length": (
        """(float[B, T, 32] x, float[B, S, 32] kv) => (float[A, Q, 2, 16] y) <int64[2] hd = {2, 16}>
        { sb = Shape <end = 1> (x) ss = Shape <start = 1, end = 2> (kv)
          s = Concat <axis = 0> (sb, ss, hd) y = Reshape (x, s) }""",
        "entry 1 (S) would have to be -1, which is ambiguous if B is 0",
    ),
    "a chunk length beside a batch that may be empty": (
        f"""(float[B, T, 32] x) => (float[B, N, 16] y) <int64[1] two = {{2}}, int64[1] d = {{16}}>
        {{ {B} {T} n = Mul (st, two) s = Concat <axis = 0> (sb, n, d) y = Reshape (x, s) }}""",
        "entry 1 (2*T) would have to be -1, which is ambiguous if B is 0",
    ),
    "the batch of a tensor that only broadcasts with this one": (
        """(float[B, T, 32] x, float[M, 1, 1] mask) => (float[A, C, 2, 16] y)
        <int64[2] hd = {2, 16}>
        { hidden = Add (x, mask) sh = Shape <end = 2> (x)
          s = Concat <axis = 0> (sh, hd) y = Reshape (hidden, s) }""",
        "entry 0 (B) would have to be -1, which is ambiguous if T is 0",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_no_constant_expresses_is_left(case: str) -> None:
    text, reason = LEFT[case]
    model = model_of(text)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = graphfix.get_pass("unflatten-heads")(model)
    assert targets(model) == [None]
    assert [reason in x for _, x in result.skips] == [True], result.skips
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


CONSTANT = {
    "an initializer": "<int64[4] s = {0, 0, 2, 16}> { y = Reshape (x, s) }",
    "an initializer with allowzero": (
        "<int64[4] s = {1, 3, 2, 16}> { y = Reshape <allowzero = 1> (x, s) }"
    ),
    "a Constant": "{ s = Constant <value_ints = [0, 0, 2, 16]> () y = Reshape (x, s) }",
    "a Constant behind Identity": (
        "{ c = Constant <value_ints = [0, -1, 2, 16]> () s = Identity (c) y = Reshape (x, s) }"
    ),
}


@pytest.mark.parametrize("case", CONSTANT)
def test_a_constant_shape_is_not_ours(case: str) -> None:
    model = model_of(f"(float[B, T, 32] x) => (float[B, T, 2, 16] y) {CONSTANT[case]}")
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = graphfix.get_pass("unflatten-heads")(model)
    assert not result.modified
    assert not result.skips
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_a_reshape_before_opset_5_is_not_ours() -> None:
    model = ir.from_onnx_text("""<ir_version: 3, opset_import: ["" : 4]>
        m (float[B, 32] x) => (float[B, 2, 16] y) { y = Reshape <shape = [0, 2, 16]> (x) }""")
    result = graphfix.get_pass("unflatten-heads")(model)
    assert not result.modified
    assert not result.skips


def test_a_shape_that_the_caller_gives_is_left() -> None:
    model = model_of(
        "(float[B, T, 32] x, int64[4] s) => (float[B, T, 2, 16] y) { y = Reshape (x, s) }"
    )
    result = graphfix.get_pass("unflatten-heads")(model)
    assert targets(model) == [None]
    assert "the caller's choice" in result.skips[0][1]


@pytest.mark.parametrize("target", ["s", "joined"])
def test_a_default_that_the_caller_may_override_is_no_constant(target: str) -> None:
    model = model_of(f"""(float[2, 3, 32] x) => (float[A, C, D, E] y)
        <int64[3] s = {{2, 3, 2}}, int64[1] d = {{16}}>
        {{ joined = Concat <axis = 0> (s, d) y = Reshape (x, {target}) }}""")
    model.graph.inputs.append(model.graph.initializers["s"])
    result = graphfix.get_pass("unflatten-heads")(model)
    assert not result.modified
    assert len(result.skips) == 1


def test_a_shape_computed_from_data_is_left() -> None:
    model = model_of("""(float[B, T, 32] x, float[B, T] m) => (float[A, C, D] y)
        <int64[2] r = {-1, 32}> {
            n = NonZero (m) c = ReduceMax <keepdims = 0, axes = [1]> (n)
            s = Concat <axis = 0> (c, r) y = Reshape (x, s) }""")
    result = graphfix.get_pass("unflatten-heads")(model)
    assert targets(model) == [None]
    assert "known only at run time" in result.skips[0][1]


def test_an_unknown_number_of_sizes_is_left() -> None:
    model = model_of("""(float[B, T] x, int64[N] s) => (float[A, C] y) {
        t = Identity (s) y = Reshape (x, t) }""")
    result = graphfix.get_pass("unflatten-heads")(model)
    assert not result.modified
    assert "even how many sizes" in result.skips[0][1]


def test_an_entry_that_may_be_minus_one_says_nothing_of_its_size() -> None:
    # With S = 1 the entry S - 2 is -1, and the size is T.
    text = """(float[T, 32] x, float[S] other) => (float[A, 32] y, float[C, 32] z)
        <int64[1] two = {2}, int64[1] d = {32}> {
            n = Shape (other) m = Sub (n, two) s = Concat <axis = 0> (m, d)
            y = Reshape (x, s) z = Relu (y) }"""
    repaired(text, ({"T": 4, "S": 1}, {"T": 4, "S": 6}))


def test_a_slice_may_be_shorter_than_it_says() -> None:
    text = """(float[T, 32] x) => (float[A, 2, 16] y)
        <int64[1] zero = {0}, int64[1] five = {5}, int64[2] hd = {2, 16}> {
            part = Slice (x, zero, five) n = Shape <end = 1> (part)
            s = Concat <axis = 0> (n, hd) y = Reshape (part, s) }"""
    model, _ = repaired(text, ({"T": 9}, {"T": 3}, {"T": 0}))
    assert targets(model) == [[0, 2, 16]]


# Around it --------------------------------------------------------------------------------------


def test_a_shape_that_others_use_stays() -> None:
    text = f"""(float[B, T, 32] x) => (float[B, T, 2, 16] y, int64[4] s) <int64[2] hd = {{2, 16}}>
        {{ {B} {T} s = Concat <axis = 0> (sb, st, hd) y = Reshape (x, s) }}"""
    model, _ = repaired(text)
    assert [x.op_type for x in model.graph] == ["Shape", "Shape", "Concat", "Reshape"]


def test_reshapes_with_one_shape_share_one_constant() -> None:
    text = f"""(float[B, T, 32] x, float[B, T, 32] k)
        => (float[B, T, 2, 16] y, float[B, T, 2, 16] z) <int64[2] hd = {{2, 16}}>
        {{ {B} {T} s = Concat <axis = 0> (sb, st, hd) y = Reshape (x, s) z = Reshape (k, s) }}"""
    model, result = repaired(text)
    assert targets(model) == [[0, 0, 2, 16]] * 2
    assert len(model.graph.initializers) == 1
    assert len(result.changes[0].removed) == 1
    assert len(result.changes[1].removed) == 4


def test_one_shape_two_inputs_and_only_one_of_them_fits() -> None:
    text = """(float[B, T, 32] x, float[T, B, 32] k) => (float[B, T, 2, 16] y, float[B, T, 2, 16] z)
        <int64[2] hd = {2, 16}> { sh = Shape <end = 2> (x)
        s = Concat <axis = 0> (sh, hd) y = Reshape (x, s) z = Reshape (k, s) }"""
    model, result = repaired(text)
    assert targets(model) == [[0, 0, 2, 16], None]
    assert len(result.skips) == 1


def test_names_of_outputs_and_nodes_stay() -> None:
    text = f"""(float[B, T, 32] x) => (float[B, T, 2, 16] y) <int64[2] hd = {{2, 16}}>
        {{ {B} {T} s = Concat <axis = 0> (sb, st, hd) [view] y = Reshape (x, s) }}"""
    model, result = repaired(text)
    assert model.graph.outputs[0].name == "y"
    assert [str(x) for x in model.graph.outputs[0].shape] == ["B", "T", "2", "16"]
    assert model.graph[-1].name == "view"
    assert result.changes[0].at == "view"


def test_inside_a_branch() -> None:
    text = """(float[B, T, 32] x, bool cond) => (float[B, T, 2, 16] y) <int64[2] hd = {2, 16}> {
        y = If (cond) <
            then_branch = yes () => (float[B, T, 2, 16] a) {
                sx = Shape <end = 2> (x) s = Concat <axis = 0> (sx, hd) a = Reshape (x, s) },
            else_branch = no () => (float[B, T, 2, 16] b) {
                c = Relu (x) sc = Shape <end = 2> (c) t = Concat <axis = 0> (sc, hd)
                b = Reshape (c, t) }
        > }"""
    model = model_of(text)
    result = graphfix.get_pass("unflatten-heads")(model)
    assert targets(model) == [[0, 0, 2, 16]] * 2
    assert not result.skips
    assert not graphfix.get_pass("unflatten-heads")(model).modified


LOOP = """(float[B, T, 32] x, int64 n, bool go) => (float[A, C, D] y) <int64[2] hd = {{2, 16}}> {{
    y = Loop (n, go, x) <body = body (int64 i, bool c, float[P, Q, 32] h) => (bool d, float k) {{
        d = Identity (c) sx = Shape <end = 2> ({of}) s = Concat <axis = 0> (sx, hd)
        r = Reshape (h, s) f = Flatten <axis = 3> (r) sh = Shape (h) g = Reshape (r, sh)
        k = {last} }}> }}"""


def test_inside_a_loop_that_keeps_the_shape() -> None:
    model = model_of(LOOP.format(of="h", last="Relu (g)"))
    result = graphfix.get_pass("unflatten-heads")(model)
    assert targets(model) == [[0, 0, 2, 16], [0, 0, 32]]
    assert not result.skips


def test_inside_a_loop_that_changes_the_shape() -> None:
    # x and h are of one size in the first iteration only.
    model = model_of(LOOP.format(of="x", last="Concat <axis = 1> (g, g)"))
    result = graphfix.get_pass("unflatten-heads")(model)
    assert targets(model) == [None, None]
    assert len(result.skips) == 2


def test_inside_a_local_function() -> None:
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        m (float[B, T, 32] x) => (float[B, T, 32] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 17]>
        f (x) => (y) { s = Shape (x) y = Reshape (x, s) }""")
    result = graphfix.get_pass("unflatten-heads")(model)
    assert not result.modified
    assert "local function" in result.skips[0][1]


# Whatever the sizes -----------------------------------------------------------------------------


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[str, list[dict[str, int]]]:
    """A model that regroups neighbouring dims, its sizes read from x or from one like it."""
    symbols = ["B", "T", "S"]
    dims = draw(st.lists(st.sampled_from([*symbols, "2", "3", "4"]), min_size=1, max_size=4))
    cuts = draw(st.lists(st.booleans(), min_size=len(dims) - 1, max_size=len(dims) - 1))
    groups: list[list[int]] = [[0]]
    for i, cut in enumerate(cuts, 1):
        if cut:
            groups.append([i])
        else:
            groups[-1].append(i)
    if draw(st.booleans()):
        groups.insert(draw(st.integers(0, len(groups))), [])
    unknown = draw(st.integers(-1, len(groups) - 1))
    source = draw(st.sampled_from(["x", "other"]))
    allowzero = draw(st.integers(0, 1))
    lines = ["one = Constant <value_ints = [1]> ()", "minus = Constant <value_ints = [-1]> ()"]
    lines.append("twin = Relu (other)" if source == "other" else "twin = Identity (x)")
    parts = []
    for n, group in enumerate(groups):
        part = "minus" if n == unknown else "one"
        for i in group if n != unknown else []:
            lines.append(f"d{i} = Shape <start = {i}, end = {i + 1}> (twin)")
            lines.append(f"p{n}_{i} = Mul ({part}, d{i})")
            part = f"p{n}_{i}"
        parts.append(part)
    lines.append(f"s = Concat <axis = 0> ({', '.join(parts)})")
    lines.append(f"y = Reshape <allowzero = {allowzero}> (x, s)")
    shape = ", ".join(dims)
    out = ", ".join(f"o{i}" for i in range(len(groups)))
    text = f"(float[{shape}] x, float[{shape}] other) => (float[{out}] y) {{ {' '.join(lines)} }}"
    least = 1 if unknown >= 0 else 0
    sizes = st.fixed_dictionaries({s: st.integers(least, 3) for s in symbols})
    return text, draw(st.lists(sizes, min_size=1, max_size=3))


@settings(max_examples=80, deadline=None)
@given(reshapes())
def test_any_regrouping_computes_the_same(case: tuple[str, list[dict[str, int]]]) -> None:
    text, sizes = case
    model = model_of(text)
    graphfix.get_pass("unflatten-heads")(model)
    for size in sizes:
        try:
            wanted = run(model_of(text), size)
        except REFUSALS:
            continue  # a 0 that is no size of x there: the model before does not accept it
        np.testing.assert_array_equal(wanted[0], run(model, size)[0])
    assert not graphfix.get_pass("unflatten-heads")(model).modified

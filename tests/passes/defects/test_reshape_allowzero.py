"""reshape-allowzero: which shapes can do without, which cannot, and what it rests on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.editing.builder import PASS_KEY
from tests.passes.models import execute, refusals

HEAD = '<ir_version: 8, opset_import: ["" : 18{more}]>\n'
SHAPE = """
    b = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x)
    t2 = Mul (t, two) bt = Mul (b, t)"""


def model(text: str, more: str = "") -> ir.Model:
    return ir.from_onnx_text(HEAD.format(more=more) + text)


def reshape(target: str, *, rank: int, x: str = "B, T, 8", more: str = "") -> str:
    """``target`` makes ``shape`` out of the sizes b and t of x."""
    out = ", ".join("IJKLMN"[:rank])
    return f"""m (float[{x}] x) => (float[{out}] y)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] eight = {{8}},
         int64[1] minus = {{-1}}, int64[1] zero = {{0}}{more}>
        {{ {SHAPE} {target} y = Reshape <allowzero = 1> (x, shape) }}"""


def constant(target: str, *, x: str = "B, T, 8") -> str:
    rank = len(target.split(","))
    return reshape("", rank=rank, x=x, more=f", int64[{rank}] shape = {{{target}}}")


def run(m: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, feeds)[0]


def allowzero(m: ir.Model) -> list[int]:
    found = [n for n in m.graph.all_nodes() if n.op_type == "Reshape"]
    return [n.attributes.get_int("allowzero", 0) for n in found]


def repaired(text: str, spec: str = "reshape-allowzero") -> tuple[ir.Model, graphfix.Report]:
    after = model(text)
    return after, graphfix.run(after, spec)


PROVED = {
    "the input's own sizes": reshape(
        "shape = Concat <axis = 0> (b, t, two, four)", rank=4
    ),
    "a -1 beside sizes": reshape("shape = Concat <axis = 0> (b, minus, four)", rank=3),
    "a -1 before sizes": reshape("shape = Concat <axis = 0> (minus, t, four)", rank=3),
    "constant with -1": constant("-1, 8"),
    "constant 1, -1": constant("1, 1, -1"),
    "constant -1 alone": constant("-1"),
    "all numbers": constant("2, 3, 2, 4", x="2, 3, 8"),
    "a length that the same shape has beside a -1": reshape(
        "s = Concat <axis = 0> (t2, minus) z = Reshape (x, s)"
        " shape = Concat <axis = 0> (t2, b, four)".replace("t2, b, four", "t2, minus, four"),
        rank=3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PROVED)
@pytest.mark.parametrize(("b", "t"), [(1, 1), (2, 3)])
def test_proved(case: str, b: int, t: int) -> None:
    text = PROVED[case]
    after, report = repaired(text, "reshape-allowzero:assume-nonempty=no")
    assert report.changed
    assert 1 not in allowzero(after)
    assert not any(change.note for change in report.passes[0].changes)
    fixed = "2, 3, 8" in text
    x = np.arange((2 if fixed else b) * (3 if fixed else t) * 8, dtype=np.float32)
    feeds = {"x": x.reshape(2 if fixed else b, 3 if fixed else t, 8)}
    np.testing.assert_array_equal(run(after, feeds), run(model(text), feeds))


def test_a_size_that_the_input_has_there_is_copied_even_if_it_is_zero() -> None:
    text = PROVED["the input's own sizes"]
    after, _ = repaired(text, "reshape-allowzero:assume-nonempty=no")
    for shape in ((0, 3, 8), (2, 0, 8), (0, 0, 8)):
        feeds = {"x": np.zeros(shape, np.float32)}
        assert run(after, feeds).shape == run(model(text), feeds).shape == (*shape[:2], 2, 4)


def test_a_minus_one_that_a_pass_has_handed_on_is_repaired() -> None:
    after = model(constant("-1, 8"))
    after.graph[-1].metadata_props[PASS_KEY] = "fold"
    graphfix.run(after, "reshape-allowzero")
    assert 1 not in allowzero(after)


def test_a_literal_zero_that_the_input_has_there_is_copied() -> None:
    text = constant("0, 2, 4", x="0, 8")
    text = text.replace("t = Shape <start = 1, end = 2> (x)", "t = Shape <start = 0, end = 1> (x)")
    after, report = repaired(text, "reshape-allowzero:assume-nonempty=no")
    assert report.changed
    assert run(after, {"x": np.zeros((0, 8), np.float32)}).shape == (0, 2, 4)


RESTS = {
    "a product": ("shape = Concat <axis = 0> (bt, eight)", 2, "0 (B*T)"),
    "a size at another place": ("shape = Concat <axis = 0> (t, b, eight)", 3, "0 (T) and 1 (B)"),
    "a multiple": ("shape = Concat <axis = 0> (b, t2, four)", 3, "1 (2*T)"),
    "a size read from the data": (
        "s = ReduceSum <keepdims = 0> (x) n = IsNaN (s) i = Cast <to = 7> (n)"
        " k = Reshape (i, one) c = Add (k, bt) shape = Concat <axis = 0> (c, eight)",
        2,
        "0 (a size known only at run time)",
    ),
}


@pytest.mark.parametrize("case", RESTS)
def test_rests_on_no_tensor_being_empty(case: str) -> None:
    target, rank, entry = RESTS[case]
    text = reshape(target, rank=rank)
    after, report = repaired(text)
    assert 1 not in allowzero(after)
    (note,) = [change.note for change in report.passes[0].changes if change.note]
    assert note.startswith("rests on assume-nonempty: ")
    assert f"entry {entry} of 'shape' is never 0" in note
    feeds = {"x": np.arange(48, dtype=np.float32).reshape(2, 3, 8)}
    np.testing.assert_array_equal(run(after, feeds), run(model(text), feeds))
    left, report = repaired(text, "reshape-allowzero:assume-nonempty=no")
    assert not report.changed
    ((_, reason),) = report.passes[0].skips
    assert reason.endswith("assume-nonempty=yes takes it that no tensor is empty")
    assert allowzero(left)[-1] == 1


def test_a_shape_of_unknown_length_rests_on_it_too() -> None:
    text = "m (float[N] x, int64[K] shape) => (float y) { z = Reshape <allowzero = 1> (x, shape)"
    text += " y = ReduceSum <keepdims = 0> (z) }"
    after, report = repaired(text)
    assert allowzero(after) == [0]
    assert "what 'shape' holds is not known" in report.passes[0].changes[0].note
    feeds = {"x": np.ones(6, np.float32), "shape": np.array([2, -1], np.int64)}
    assert run(after, feeds) == run(model(text), feeds) == 6


LEFT = {
    "a literal 0 in a computed shape": (
        reshape("shape = Concat <axis = 0> (b, zero, eight)", rank=3),
        "entry 1 of its shape is 0: it is meant to be empty",
    ),
    "a literal 0 beside a -1": (constant("0, -1"), "entry 0 of its shape is 0: it is meant to be"),
    "a literal 0 past the input's rank": (constant("4, 2, 8, 0"), "entry 3 of its shape is 0"),
    "allowzero=0": (constant("0, -1").replace("allowzero = 1", "allowzero = 0"), None),
    "allowzero=0 and a copied 0": (
        constant("0, 0, 2, 4").replace("allowzero = 1", "allowzero = 0"),
        None,
    ),
    "no allowzero": (constant("-1, 8").replace("<allowzero = 1>", ""), None),
    "no Reshape": (
        "m (float[B, T] x) => (float[B, T, 1] y) <int64[1] a = {2}> { y = Unsqueeze (x, a) }",
        None,
    ),
    "another domain's Reshape": (
        "m (float[B, T] x, int64[2] s) => (float[U, V] y) "
        "{ y = my.Reshape <allowzero = 1> (x, s) }",
        None,
    ),
}


@pytest.mark.parametrize("case", LEFT)
@pytest.mark.parametrize("spec", ["reshape-allowzero", "reshape-allowzero:assume-nonempty=no"])
def test_left_alone(case: str, spec: str) -> None:
    text, reason = LEFT[case]
    more = ', "my" : 1' if "my." in text else ""
    after = model(text, more)
    found = refusals(after, spec)
    assert (found == []) if reason is None else found[0].startswith(reason)


def test_what_depends_on_the_call_of_a_function_is_left_alone() -> None:
    text = """m (float[B, T] x, int64[K] s) => (float[U, V] y) { y = f.view <zero = 1> (x, s) }
        <domain: "f", opset_import: ["" : 18]>
        view <zero> (x, s) => (y) { y = Reshape <allowzero: int = @zero> (x, s) }"""
    after = model(text, ', "f" : 1')
    (reason,) = refusals(after, "reshape-allowzero")
    assert reason == "its allowzero is 'zero' of the local function"


def test_a_known_minus_one_becomes_its_number() -> None:
    after, _ = repaired(constant("-1, 2, 8", x="2, 3, 8"))
    shapes = [x.const_value.numpy().tolist() for x in after.graph.initializers.values()]
    assert [3, 2, 8] in shapes
    assert [-1, 2, 8] not in shapes
    x = np.arange(48, dtype=np.float32).reshape(2, 3, 8)
    np.testing.assert_array_equal(run(after, {"x": x}), x.reshape(3, 2, 8))


def test_a_minus_one_that_is_known_to_be_zero_stays() -> None:
    text = constant("-1, 4", x="0, 8")
    text = text.replace("t = Shape <start = 1, end = 2> (x)", "t = Shape <start = 0, end = 1> (x)")
    after, report = repaired(text)
    assert report.changed
    assert run(after, {"x": np.zeros((0, 8), np.float32)}).shape == (0, 4)


def test_a_shape_shared_with_others_stays_theirs() -> None:
    text = """m (float[2, 3, 8] x, float[B, 8] z) => (float[I, J] y, float[K, L] w)
        <int64[2] shape = {-1, 8}>
        { y = Reshape <allowzero = 1> (x, shape) w = Reshape <allowzero = 1> (z, shape) }"""
    after, _ = repaired(text)
    assert allowzero(after) == [0, 0]
    assert [n.inputs[1].const_value.numpy().tolist() for n in after.graph] == [[6, 8], [-1, 8]]


def test_the_name_and_the_output_stay() -> None:
    text = constant("-1, 8").replace("y = Reshape", "[view] y = Reshape")
    after, report = repaired(text)
    (node,) = [n for n in after.graph if n.op_type == "Reshape"]
    assert (node.name, node.outputs[0].name) == ("view", "y")
    assert node.outputs[0] is after.graph.outputs[0]
    assert report.passes[0].changes[0].at == "view"


def test_check_says_what_directml_makes_of_it() -> None:
    (finding,) = graphfix.check(model(constant("-1, 8")), "reshape-allowzero")
    assert finding.message == "Reshape has allowzero=1: DirectML cannot read a -1 in it"
    (finding,) = graphfix.check(model(constant("2, 3, 2, 4", x="2, 3, 8")), "reshape-allowzero")
    assert finding.message == "Reshape has allowzero=1"


ENTRIES = ("b", "t", "t2", "bt", "minus", "one", "two", "four", "eight")


@settings(max_examples=60, deadline=None)
@given(
    target=st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=4),
    sizes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    nonempty=st.booleans(),
)
def test_every_shape_that_runs_before_runs_after(
    target: list[str], sizes: tuple[int, int], nonempty: bool
) -> None:
    # ONNX has no -1 beside a 0; only assume-nonempty=no speaks of empty tensors.
    assume(not nonempty or 0 not in sizes)
    assume("minus" not in target or 0 not in sizes)
    text = reshape(f"shape = Concat <axis = 0> ({', '.join(target)})", rank=len(target))
    feeds = {"x": np.arange(sizes[0] * sizes[1] * 8, dtype=np.float32).reshape(*sizes, 8)}
    try:
        want = run(model(text), feeds)
    except Exception:
        return
    after, report = repaired(
        text, f"reshape-allowzero:assume-nonempty={'yes' if nonempty else 'no'}"
    )
    if nonempty:
        assert report.changed
    np.testing.assert_array_equal(run(after, feeds), want)


def test_a_minus_one_that_stands_for_nothing_is_not_written_as_0() -> None:
    """Without allowzero a 0 copies what the input has there, which is 4."""
    text = """m (float[4, 0] x) => (float[N, 4] y) <int64[2] to = {-1, 4}>
        { y = Reshape <allowzero = 1> (x, to) }"""
    after = model(text)
    graphfix.run(after, "reshape-allowzero")
    assert run(after, {"x": np.zeros((4, 0), np.float32)}).shape == (0, 4)

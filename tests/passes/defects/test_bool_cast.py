"""bool-cast: what is no longer cast, what is left alone, and that every number stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphfix
from tests.passes.models import execute, ops, refusals

HEAD = '<ir_version: 8, opset_import: ["" : {opset}{more}]>\n'
KINDS = {"float": np.float32, "float16": np.float16, "double": np.float64}
EDGES = [0.0, -0.0, 1e-40, 6e-8, 0.25, 0.5, 0.999, 1, 2, 256, -0.5, -1, -256, 3.4e38, -3.4e38]
EDGES += [np.inf, -np.inf, np.nan]


def model(body: str, *, kind: str = "float", opset: int = 17, more: str = "") -> ir.Model:
    text = f"m ({kind}[N] x, bool[N] c, int64[N] i) => (int64[M] y) {body}"
    return ir.from_onnx_text(HEAD.format(opset=opset, more=more) + text)


def cast(before: str = "v = Identity (x)", how: str = "b = Cast <to = 9> (v)") -> str:
    return f"""<float zero = {{0.0}}, float one = {{1.0}}, float half = {{0.5}},
        int64 wide = {{4294967296}}, int64 most = {{9223372036854775807}},
        bool[1] yes = {{1}}, float[1] low = {{-1.0}}, int64[1] axis = {{0}}, int64[1] flat = {{-1}}>
        {{ {before} {how} y = Cast <to = 7> (b) }}"""


def run(m: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, feeds)[0]


def feeds(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": x, "c": np.arange(len(x)) % 3 == 0, "i": np.arange(len(x)) - 2}


REPAIRED = {
    "a float": cast(),
    "a float like a bool": cast(how="b = CastLike (v, yes)"),
    "a mask of low numbers": cast("f = Cast <to = 1> (c) v = Mul (f, low)"),
    "a difference": cast("f = Cast <to = 1> (c) v = Sub (f, one)"),
    "a sum of truths": cast("f = Cast <to = 1> (c) v = Add (f, f)"),
    "half a truth": cast("f = Cast <to = 1> (c) v = Mul (f, half)"),
    "an integer": cast("v = Cast <to = 1> (i)"),
    "a truth or something else": cast("f = Cast <to = 1> (c) v = Where (c, f, x)"),
    "one minus a number": cast("v = Sub (one, x)"),
    "zero minus a truth": cast("f = Cast <to = 1> (c) v = Sub (zero, f)"),
    "a product beyond 32 bits": cast("v = Mul (i, wide)"),
    "a sum beyond 32 bits, laid out": cast("s = Add (i, wide) v = Reshape (s, flat)"),
    "a choice of one": cast("v = Where (c, wide, i)"),
}


@pytest.mark.parametrize("case", REPAIRED)
@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_repairs(case: str, opset: int) -> None:
    if "CastLike" in REPAIRED[case] and opset < 15:
        pytest.skip("no CastLike yet")
    before, after = (model(REPAIRED[case], opset=opset) for _ in range(2))
    report = graphfix.run(after, "bool-cast")
    assert len(report.passes[0].changes) == 1
    assert ops(after)[-3:] == ["Equal", "Not", "Cast"]
    for x in (np.array(EDGES, np.float32), np.zeros(0, np.float32)):
        np.testing.assert_array_equal(run(after, feeds(x)), run(before, feeds(x)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_edge_of_each_type(kind: str) -> None:
    with np.errstate(over="ignore"):
        x = np.array(EDGES).astype(KINDS[kind])
    before, after = (model(cast(), kind=kind) for _ in range(2))
    assert graphfix.run(after, "bool-cast").changed
    got = run(after, feeds(x))
    np.testing.assert_array_equal(got, run(before, feeds(x)))
    np.testing.assert_array_equal(got, (x != 0).astype(np.int64))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_number_is_true_but_zero(kind: str, data: st.DataObject) -> None:
    x = data.draw(hnp.arrays(KINDS[kind], st.integers(0, 8)))
    before, after = (model(cast(), kind=kind) for _ in range(2))
    graphfix.run(after, "bool-cast")
    np.testing.assert_array_equal(run(after, feeds(x)), run(before, feeds(x)))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_integer_is_true_but_zero(data: st.DataObject) -> None:
    x = data.draw(hnp.arrays(np.int64, st.integers(0, 8)))
    before, after = (model(cast("v = Mul (i, wide)")) for _ in range(2))
    assert graphfix.run(after, "bool-cast").changed
    given_ = {**feeds(np.zeros(len(x), np.float32)), "i": x}
    np.testing.assert_array_equal(run(after, given_), run(before, given_))


def test_the_rule_speaks_for_the_pass() -> None:
    told = [x for x in graphfix.check(model(cast("v = Mul (i, wide)"))) if x.severity == "error"]
    assert [(x.rule, x.fix) for x in told] == [("bool-cast", "bool-cast")]


LEFT = {
    "an integer": cast("v = Identity (i)"),
    "a sum of integers": cast("v = Add (i, flat)"),
    "a limit beyond 32 bits": cast("v = Min (i, most)"),
    "a size": cast("v = Shape (i)"),
    "a comparison beyond 32 bits": cast("l = Less (i, wide) v = Cast <to = 7> (l)"),
    "a bool": cast("v = Identity (c)"),
    "a truth as a float": cast("v = Cast <to = 1> (c)"),
    "a comparison as a float": cast("l = Less (x, x) v = Cast <to = 1> (l)"),
    "one minus a truth": cast("f = Cast <to = 1> (c) v = Sub (one, f)"),
    "a product of truths": cast("f = Cast <to = 1> (c) v = Mul (f, f)"),
    "another layout of a truth": cast(
        "f = Cast <to = 1> (c) u = Unsqueeze (f, axis) v = Reshape (u, flat)"
    ),
    "a choice between 0 and 1": cast("v = Where (c, zero, one)"),
    "a constant": cast("v = Identity (half)"),
    "as many ones as there are numbers": cast(
        "s = Shape (i) v = ConstantOfShape <value = float[1] {1}> (s)"
    ),
    "a cast to another type": cast(how="n = Cast <to = 6> (v) b = Cast <to = 9> (n)"),
    "a cast like another type": cast(how="b = CastLike (v, axis)"),
    "another domain's Cast": cast(how="b = my.Cast <to = 9> (v)"),
    "a comparison": cast(how="b = Greater (v, zero)"),
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    body = LEFT[case]
    after = model(body, more=', "my" : 1' if "my." in body else "")
    assert refusals(after, "bool-cast") == []


def test_equal_takes_no_floats_before_opset_11() -> None:
    after = model(cast(), opset=10)
    assert refusals(after, "bool-cast")[0] == "in opset 10 Equal takes no float"


def test_equal_takes_integers_of_any_shape_from_opset_7_on() -> None:
    """Before, a number was no tensor of one element for it."""
    m = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 6]> m (int64[N] i) => (bool[N] y)
        <int64 wide = {4294967296}, int64[N] v>
        { v = Mul <broadcast = 1> (i, wide) y = Cast <to = 9> (v) }""")
    assert refusals(m, "bool-cast") == ["in opset 6 Equal takes no int64"]


def test_the_zeros_of_many_casts_are_one() -> None:
    text = cast().replace("y = Cast", "d = Cast <to = 9> (x) e = And (b, d) y = Cast")
    after = model(text.replace("Cast <to = 7> (b)", "Cast <to = 7> (e)"))
    assert len(graphfix.run(after, "bool-cast").passes[0].changes) == 2
    zeros = {n.inputs[1] for n in after.graph if n.op_type == "Equal"}
    assert len(zeros) == 1


def test_an_output_of_the_graph_keeps_its_name() -> None:
    after = ir.from_onnx_text(
        HEAD.format(opset=17, more="")
        + "m (float[N] x) => (bool[N] y) { [truth] y = Cast <to = 9> (x) }"
    )
    report = graphfix.run(after, "bool-cast")
    assert after.graph.outputs[0].name == "y"
    assert after.graph.outputs[0].producer().op_type == "Not"
    assert report.passes[0].changes[0].at == "truth"


def test_in_a_branch_too() -> None:
    after = ir.from_onnx_text(
        HEAD.format(opset=17, more="")
        + """m (float[N] x, bool p) => (bool[N] y) {
            y = If (p) <then_branch = t () => (bool[N] a) { a = Cast <to = 9> (x) },
                        else_branch = e () => (bool[N] b) { f = Neg (x) b = Cast <to = 9> (f) }>
        }"""
    )
    assert len(graphfix.run(after, "bool-cast").passes[0].changes) == 2
    x = np.array(EDGES, np.float32)
    for p in (True, False):
        got = run(after, {"x": x, "p": np.array(p)})
        np.testing.assert_array_equal(got, x != 0)

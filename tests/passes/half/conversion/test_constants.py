"""float16: weights wherever a model has them, and numbers that float16 does not hold."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import UsageError
from graphfix.graph.walks import graphs_of
from graphfix.passes.half.conversion import constants
from graphfix.passes.half.float16 import Float16
from tests.passes.half.test_float16 import (
    FLOAT,
    HALF,
    add,
    agree,
    f,
    halved,
    parse,
    run,
    same_numbers,
)

__all__ = ["same_numbers"]  # a fixture

RNG = np.random.default_rng(11)


def floats(model: ir.Model) -> dict[str, ir.DataType]:
    """The type of each tensor of floats that a model holds, however it holds it."""
    found = {}
    for graph in graphs_of(model.graph):
        held = [(x.name, x.const_value) for x in graph.initializers.values()]
        held += [
            (x.outputs[0].name, x.attributes["value"].as_tensor())
            for x in graph
            if x.op_type == "Constant" and "value" in x.attributes
        ]
        found |= {name: x.dtype for name, x in held if x.dtype in (FLOAT, HALF)}
    return found


def text_of(array: np.ndarray) -> str:
    return ", ".join(f"{x:.6g}" for x in array.reshape(-1))


def test_weights_in_branches_become_float16_where_they_are() -> None:
    w, v = f(8, 8), f(8, 8)
    before = parse(
        "(bool c, float[B, 8] x, float[8, 8] o) => (float[B, 8] y)",
        f"""h = MatMul (x, o)
        z = If (c) <then_branch = yes () => (float[B, 8] a)
            <float[8, 8] w = {{{text_of(w)}}}> {{ a = MatMul (h, w) }},
            else_branch = no () => (float[B, 8] b)
            {{ v = Constant <value = float[8, 8] {{{text_of(v)}}}> () b = MatMul (h, v) }}>
        y = MatMul (z, o)""",
    )
    before = add(before, o=f(8, 8, scale=0.3))
    after = halved(before)
    assert floats(after) == {"o": HALF, "w": HALF, "v": HALF}
    for taken in (True, False):
        agree(before, after, {"x": f(3, 8), "c": np.array(taken)})


def test_weights_in_local_functions_become_float16() -> None:
    w = f(8, 8)
    before = parse(
        "(float[B, 8] x, float[8, 8] o) => (float[B, 8] y)",
        "h = MatMul (x, o) y = local.layer (h)",
        extra=f"""<domain: "local", opset_import: ["" : 17]>
        layer (a) => (c) {{
            w = Constant <value = float[8, 8] {{{text_of(w)}}}> ()
            c = MatMul (a, w)
        }}""",
    )
    before = add(before, o=f(8, 8, scale=0.3))
    after = halved(before)
    assert set(floats(after).values()) == {HALF}
    assert len(floats(after)) == 2
    agree(before, after, {"x": f(3, 8)})


def test_one_weight_of_two_layers_stays_one() -> None:
    before = add(
        parse(
            "(int64[B, T] ids, float[40, 40] w) => (float[B, T, 40] y)",
            "e = Gather (w, ids) t = Transpose <perm = [1, 0]> (w) y = MatMul (e, t)",
        ),
        w=f(40, 40),
    )
    after = halved(before)
    assert floats(after) == {"w": HALF}
    agree(before, after, {"ids": np.array([[1, 5, 39]])})


def test_numbers_that_become_0_are_counted_and_named() -> None:
    w = f(40, 40)
    w[0, :3] = 1e-9
    model = add(
        parse("(float[B, 40] x, float[40, 40] w) => (float[B, 40] y)", "y = MatMul (x, w)"), w=w
    )
    what = "3 of 1,600 elements of 'w' are too small for float16 and become 0"
    found = graphfix.get_pass("float16").findings(model.clone())
    assert [x.at for x in found if x.message == what] == ["w"]
    report = graphfix.run(model, "float16")
    assert report.passes[0].changes[0].note.endswith(what)


def test_a_stored_weight_is_float16_in_the_file_and_float32_behind_a_cast() -> None:
    before = add(
        parse(
            "(float[B, 40] x, float[40, 40] w, float[40, 40] v) => (float[B, 40] y)",
            "h = MatMul (x, w) g = Tanh (h) y = MatMul (g, v)",
        ),
        w=f(40, 40),
        v=f(40, 40),
    )
    kept = halved(before, "float16:keep=h")
    assert floats(kept) == {"w": FLOAT, "v": HALF}
    after = halved(before, "float16:keep=h:store=w")
    assert floats(after) == {"w": HALF, "v": HALF}
    taken = next(x for x in after.graph if x.outputs[0].name == "h").inputs
    assert [x.dtype for x in taken] == [FLOAT, FLOAT]
    assert taken[1].producer().inputs[0].name == "w"
    feeds = {"x": f(3, 40)}
    agree(before, after, feeds)
    # Rounded it is: the Cast does not bring back what is lost.
    rounded = before.clone()
    value = rounded.graph.initializers["w"]
    value.const_value = ir.tensor(value.const_value.numpy().astype(np.float16).astype(np.float32))
    graphfix.run(rounded, "float16:keep=h")
    np.testing.assert_array_equal(run(rounded, feeds)["y"], run(after, feeds)["y"])


def test_a_weight_to_store_that_is_not_there_is_refused() -> None:
    model = add(
        parse("(float[B, 40] x, float[40, 40] w) => (float[B, 40] y)", "y = MatMul (x, w)"),
        w=f(40, 40),
    )
    with pytest.raises(UsageError, match="no constant 'v' to store"):
        graphfix.run(model, Float16(store="v"))


def test_a_weight_has_two_dims_and_more_than_a_thousand_elements() -> None:
    for shape, is_weight in (((33, 32), True), ((32, 32), False), ((2000,), False)):
        dims = ", ".join(map(str, shape))
        text = f"(float[B, 8] x, float[{dims}] w) => (float[B, 8] y, float[{dims}] z)"
        model = add(parse(text, "y = Relu (x) z = Relu (w)"), w=f(*shape))
        node = next(x for x in model.graph if x.outputs[0].name == "z")
        assert constants.has_weights(node) == is_weight
        (value,) = model.graph.initializers.values()
        assert not constants.is_weight_input(value)
        assert constants.is_constant(value)
        # Listed among the inputs it is a setting, or a weight that nobody feeds.
        model.graph.inputs.append(value)
        assert constants.is_weight_input(value) == is_weight
        assert constants.is_constant(value) == is_weight
        assert [x.name for x, _ in constants.constants_of(model.graph)] == ["w"] * is_weight


def test_what_is_fed_or_computed_is_no_constant() -> None:
    model = parse("(float[B, 8] x) => (float[B, 8] y)", "h = Relu (x) y = Relu (h)")
    assert not constants.is_constant(None)
    for value in (*model.graph.inputs, *(x.outputs[0] for x in model.graph)):
        assert not constants.is_constant(value)
        assert not constants.is_weight_input(value)


@pytest.mark.parametrize(
    ("node", "numbers"),
    [
        ("Constant <value_float = 2.5> ()", [2.5]),
        ("Constant <value_floats = [2.5, 3.0]> ()", [2.5, 3.0]),
        ("Constant <value = float[1] {4}> ()", [4.0]),
        ("Constant <value_int = 2> ()", None),
        ("ConstantOfShape <value = float[1] {5}> (size)", [5.0]),
        ("ConstantOfShape (size)", None),
    ],
)
def test_constants_in_nodes(node: str, numbers: list[float] | None) -> None:
    model = parse("(int64[1] size) => (y)", f"y = {node}")
    found = [(x.name, tensor.numpy().reshape(-1).tolist()) for x, tensor in
             constants.constants_of(model.graph)]  # fmt: skip
    assert found == ([] if numbers is None else [("y", numbers)])
    assert constants.is_constant(model.graph[0].outputs[0]) == node.startswith("Constant <")

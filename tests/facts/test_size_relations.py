"""Sizes that must be equal for a model to run, and who wants it."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import infer
from graphfix.facts.size_relations import GraphRelations, relations_of
from graphfix.graph.walks import opset_of

F = "float[2, T, C] x"


def relations(
    body: str, inputs: str = F, constants: str = "", opset: int = 17
) -> tuple[GraphRelations, ir.Model]:
    values = f"<{constants}>" if constants else ""
    imports = f'["" : {opset}, "com.microsoft" : 1]'
    model = ir.from_onnx_text(
        f"<ir_version: 8, opset_import: {imports}> m ({inputs}) => (y) {values} {{ {body} }}"
    )
    return relations_of(model.graph, infer(model), opset_of(model)), model


def told(
    body: str, inputs: str = F, constants: str = "", opset: int = 17
) -> list[tuple[str, str, bool, str]]:
    """Return the sizes of what always holds, whether either may be 1, and who wants it."""
    found, _ = relations(body, inputs, constants, opset)
    return [(str(x.a), str(x.b), x.broadcasts, x.source) for x in found.always]


def weights(name: str, *shape: int) -> str:
    count = 1
    for size in shape:
        count *= size
    dims = ", ".join(map(str, shape))
    return f"float[{dims}] {name} = {{{', '.join(['1'] * count)}}}"


# What broadcasts


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y = Add (x, w)", [("C", "3", True, "w")]),
        ("y = Add (w, x)", [("3", "C", True, "w")]),
        # Between tensors, from the last dim on; a size of 1 wants nothing, nor do equal sizes.
        ("y = Add (x, z)", [("C", "D", True, "Add 'y'"), ("T", "S", True, "Add 'y'")]),
        ("y = Add (x, x)", []),
        ("y = Add (x, o)", []),
        ("y = Add (o, x)", []),
        ("y = Neg (x)", []),
        # Each with each.
        (
            "y = Max (x, w, v)",
            [("C", "3", True, "w"), ("C", "3", True, "v")],
        ),
        ("y = PRelu (x, w)", [("C", "3", False, "w")]),
        ("y = PRelu (x, z)", [("C", "D", True, "PRelu 'y'"), ("T", "S", True, "PRelu 'y'")]),
        ("y = com.microsoft.BiasGelu (x, w)", [("C", "3", False, "w")]),
    ],
)
def test_what_broadcasts(body: str, found: list[object]) -> None:
    constants = ", ".join([weights("w", 3), weights("v", 3), weights("o", 1, 1)])
    assert told(body, f"{F}, float[2, S, D] z", constants) == found


def test_a_named_node_is_told_by_its_name() -> None:
    assert told("[sum] y = Add (x, z)", f"{F}, float[2, T, D] z")[0][3] == "Add 'sum'"


def test_a_weight_may_lie_behind_what_moves_it() -> None:
    constants = f"{weights('w', 3, 1)}, int64[1] at = {{1}}"
    assert told("v = Squeeze (w, at)  y = Add (x, v)", F, constants)[0][3] == "w"
    body = "h = Cast <to = 10> (w)  f = Cast <to = 1> (h)  v = Squeeze (f, at)  y = Add (x, v)"
    assert told(body, F, constants)[0][3] == "w"
    constant = "k = Constant <value = float[3] {1, 2, 3}> ()  y = Add (x, k)"
    assert told(constant)[0][3] == "k"
    # What is computed of a weight is none, nor is one that is far away.
    assert told("v = Squeeze (w, at)  e = Exp (v)  y = Add (x, e)", F, constants)[0][3] == "Add 'y'"
    for steps, name in ((6, "w"), (7, "Add 'y'")):
        names = ["w", *(f"i{n}" for n in range(steps))]
        chain = "  ".join(f"{b} = Cast <to = 1> ({a})" for a, b in itertools.pairwise(names))
        body = f"{chain}  v = Squeeze ({names[-1]}, at)  y = Add (x, v)"
        assert told(body, F, constants)[0][3] == name


# What takes weights


@pytest.mark.parametrize(
    ("body", "constants", "found"),
    [
        ("y = LayerNormalization (x, w)", weights("w", 3), [("C", "3", False, "w")]),
        ("y = LayerNormalization (x, w)", weights("w", 1), []),
        (
            "y = LayerNormalization <axis = 1> (x, w)",
            weights("w", 4, 3),
            [("C", "3", False, "w"), ("T", "4", False, "w")],
        ),
        ("y = InstanceNormalization (x, w, w)", weights("w", 3), [("T", "3", False, "w")]),
        ("y = BatchNormalization (x, w, w, w, w)", weights("w", 3), [("T", "3", False, "w")]),
        ("y = MatMul (x, w)", weights("w", 3, 5), [("C", "3", False, "w")]),
        ("y = MatMul (x, x)", "", [("C", "T", False, "MatMul 'y'")]),
        (
            "y = MatMul (x, z)",
            weights("z", 7, 3, 5),
            [("C", "3", False, "z"), ("2", "7", True, "MatMul 'y'")],
        ),
        ("y = Conv (x, w)", weights("w", 5, 3, 1), [("T", "3", False, "w")]),
        ("y = Conv <group = 2> (x, w)", weights("w", 4, 3, 1), [("T", "6", False, "w")]),
        ("y = ConvTranspose (x, w)", weights("w", 3, 5, 1), [("T", "3", False, "w")]),
        (
            "y = GRU <hidden_size = 2> (x, w, r)",
            f"{weights('w', 1, 6, 3)}, {weights('r', 1, 6, 2)}",
            [("C", "3", False, "w")],
        ),
        (
            "y = com.microsoft.Attention <num_heads = 1> (x, w)",
            weights("w", 3, 9),
            [("C", "3", False, "w")],
        ),
        ("y = com.microsoft.MultiHeadAttention <num_heads = 1> (x, x, x)", "", []),
    ],
)
def test_what_weights_want(body: str, constants: str, found: list[object]) -> None:
    assert told(body, constants=constants) == found


def test_the_state_of_a_recurrence_is_as_its_weights() -> None:
    constants = f"{weights('w', 1, 6, 3)}, {weights('r', 1, 6, 2)}"
    inputs = "float[T, B, 3] x, float[D, B, H] h"
    node = "y = GRU <hidden_size = 2{0}> (x, w, r, , , h)"
    hidden, layers = ("H", "2", False, "r"), ("D", "1", False, "w")
    assert told(node.replace("{0}", ""), inputs, constants) == [hidden, layers]
    assert told(node.replace("{0}", ", layout = 0"), inputs, constants) == [hidden, layers]
    # With the batch first the state begins with it.
    rows = ("T", "D", False, "GRU 'y'")
    assert told(node.replace("{0}", ", layout = 1"), inputs, constants) == [hidden, rows]
    assert told("y = GRU (x, w, r, , , h)", inputs, constants) == [layers]


def test_a_recurrence_has_as_many_rows_in_its_states_and_lengths_as_in_its_data() -> None:
    constants = f"{weights('w', 1, 8, 3)}, {weights('r', 1, 8, 2)}"
    inputs = "float[T, B, 3] x, float[1, N, 2] h, float[1, M, 2] c, int32[L] sizes"
    node = "y = LSTM <hidden_size = 2> (x, w, r, , sizes, h, c)"
    pairs = [(a, b) for a, b, *_ in told(node, inputs, constants)]
    assert pairs == [("B", "N"), ("B", "M"), ("B", "L")]


@pytest.mark.parametrize(
    ("query", "keys", "width"), [("q", "k, v", "32"), ("q", ", ", "64")], ids=["apart", "packed"]
)
def test_a_cache_has_the_heads_of_what_is_new(query: str, keys: str, width: str) -> None:
    inputs = f"""float[B, S, {width}] q, float[B, S, 16] k, float[B, S, 16] v,
        float[R, G, P, D] pk, float[R, G, P, D] pv, int32[B] last, int32 total"""
    node = f"""y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
        ({query}, {keys}, pk, pv, last, total)"""
    pairs = {(a, b) for a, b, *_ in told(node, inputs)}
    assert {("B", "R"), ("G", "2")} <= pairs
    assert (width, "4*D" if width == "32" else "8*D") in pairs


def test_a_packed_product_says_what_it_sums() -> None:
    node = "y = com.microsoft.MatMulNBits <K = {0}, N = 5, bits = 4, block_size = 16> (x, w, s)"
    constants = "float[5] s = {1, 1, 1, 1, 1}"
    inputs = f"{F}, uint8[5, 2, 8] w"
    found = told(node.replace("{0}", "32"), inputs, constants)
    assert [x[:3] for x in found] == [("C", "32", False)]
    assert told(node.replace("K = {0}, ", ""), inputs, constants) == []


@pytest.mark.parametrize(
    ("equation", "found"),
    [
        ("btc,cd->btd", [("C", "3", True, "w")]),
        ("btc,td->btd", [("T", "3", True, "w")]),
        ("bbc,cd->d", [("2", "T", True, "Einsum 'y'"), ("C", "3", True, "w")]),
        ("btc,qd->btd", []),
    ],
)
def test_each_letter_has_one_size(equation: str, found: list[object]) -> None:
    body = f'y = Einsum <equation = "{equation}"> (x, w)'
    assert told(body, constants=weights("w", 3, 5)) == found


def test_a_letter_of_size_one_wants_nothing() -> None:
    body = 'y = Einsum <equation = "c,c,c->c"> (o, x, w)'
    assert told(body, "float[C] x", f"{weights('o', 1)}, {weights('w', 3)}") == [
        ("C", "3", True, "w")
    ]
    body = 'y = Einsum <equation = "c,c->c"> (x, o)'
    assert told(body, "float[C] x", weights("o", 1)) == []


# What moves elements


def test_what_is_joined_is_alike_on_other_axes() -> None:
    inputs = f"{F}, float[2, S, D] z"
    label = "Concat 'y'"
    assert told("y = Concat <axis = 1> (x, z)", inputs) == [("C", "D", False, label)]
    assert told("y = Concat <axis = 2> (x, z)", inputs) == [("T", "S", False, label)]
    assert told("y = Concat <axis = 2> (x, z, x)", inputs) == [
        ("T", "S", False, label),
        ("S", "T", False, label),
    ]


def test_parts_add_up() -> None:
    constants = "int64[2] parts = {2, 3}"
    assert told("a, y = Split <axis = 2> (x, parts)", constants=constants) == [
        ("C", "5", False, "Split 'a'")
    ]
    # Without sizes they are equal, unless their number says otherwise.
    found = told("a, y = Split <axis = 2> (x)")
    assert [x[0] for x in found] == ["C"]
    assert "2" in found[0][1]
    assert told("y = Split <axis = 2> (x)") == []
    assert told("a, y = Split <axis = 2, num_outputs = 2> (x)", opset=18) == []
    assert told("a, y = Split <axis = 2> (x, s)", f"{F}, int64[2] s") == []
    assert told("a, y = Split <axis = 0> (x)") == []


def test_elements_are_kept() -> None:
    constants = "int64[2] shape = {4, 5}"
    ((a, b, broadcasts, _),) = told("y = Reshape (x, shape)", constants=constants)
    assert (b, broadcasts) == ("20", False)
    assert {*"TC"} <= {*a}


def test_what_is_squeezed_is_one() -> None:
    assert told("y = Squeeze (x, at)", constants="int64[1] at = {1}") == [
        ("T", "1", False, "Squeeze 'y'")
    ]
    assert told("y = Squeeze (x, at)", "float[2, 1] x", "int64[1] at = {1}") == []


def test_what_is_expanded_is_one_or_alike() -> None:
    found = told("y = Expand (x, shape)", constants="int64[3] shape = {2, 7, 1}")
    assert [x[:3] for x in found] == [("T", "7", True)]


@pytest.mark.parametrize(
    ("scale", "attributes", "found"),
    [
        (weights("w", 3), "", [("T", "3", False, "w")]),
        (weights("w", 3), "<axis = 2>", [("C", "3", False, "w")]),
        (weights("w", 1), "", []),
        ("float w = {1}", "", []),
        (weights("w", 2, 3, 1), "<axis = 2, block_size = 4>", []),
        (weights("w", 3), "<axis = 2, block_size = 4>", []),
    ],
)
def test_a_scale_for_each_channel(scale: str, attributes: str, found: list[object]) -> None:
    opset = 21 if "block" in attributes else 17
    assert told(f"y = QuantizeLinear {attributes} (x, w)", F, scale, opset) == found


def test_channels_and_pictures_divide_into_blocks() -> None:
    inputs = "float[1, C, H, W] x"
    depth = told("y = DepthToSpace <blocksize = 2> (x)", inputs)
    assert [(x[0], "4" in x[1]) for x in depth] == [("C", True)]
    space = told("y = SpaceToDepth <blocksize = 3> (x)", inputs)
    assert [(x[0], "3" in x[1]) for x in space] == [("H", True), ("W", True)]
    assert told("y = DepthToSpace <blocksize = 1> (x)", inputs) == []
    assert told("y = SpaceToDepth <blocksize = 2> (x)", "float[1, 4, 4, 4] x") == []


# What nobody knows

MATRIX = weights("w", 3, 5)
STACK = f"{weights('w', 1, 6, 3)}, {weights('r', 1, 6, 2)}"


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        ("LayerNormalization ({0}, {1})", weights("w", 3)),
        ("QuantizeLinear ({0}, {1})", weights("w", 3)),
        ("MatMul ({0}, {1})", MATRIX),
        ("Conv ({0}, {1})", weights("w", 5, 3, 1)),
        ("GRU <hidden_size = 2> ({0}, {1}, r)", STACK),
        ("com.microsoft.Attention <num_heads = 1> ({0}, {1})", weights("w", 3, 9)),
        ("Add ({0}, {1})", weights("w", 3)),
        ("PRelu ({0}, {1})", weights("w", 3)),
        ("Concat <axis = 1> ({0}, {1})", weights("w", 2, 3, 5)),
        ('Einsum <equation = "btc,cd->btd"> ({0}, {1})', MATRIX),
        ("Expand ({0}, p)", weights("w", 3)),
        ("Reshape ({0}, p)", weights("w", 3)),
        ("Squeeze ({0}, at)", weights("w", 3)),
        ("Split <axis = 1> ({0})", weights("w", 3)),
        ("DepthToSpace <blocksize = 2> ({0})", weights("w", 3)),
    ],
)
def test_of_a_shape_that_is_not_known_nothing_is_wanted(node: str, constants: str) -> None:
    inputs, constants = f"{F}, int64[P] p", f"{constants}, int64[1] at = {{1}}"
    y = f"y = {node}" if not node.startswith("Split") else f"z, y = {node}"
    data = f"u = Reshape (x, p)  {y.replace('{0}', 'u').replace('{1}', 'w')}"
    weight = f"u = Reshape (w, p)  {y.replace('{0}', 'x').replace('{1}', 'u')}"
    reshapes = [x for x in (data, weight) if "{1}" in node or x is data]
    for body in reshapes:
        found, model = relations(body, inputs, constants)
        assert [x for x in found.always if x.node is model.graph[-1]] == []


def test_other_ranks_are_left_to_the_checker() -> None:
    assert told("y = GRU <hidden_size = 2> (x, w, r)", "float[T, C] x", STACK) == []
    node = "y = com.microsoft.Attention <num_heads = 1> (x, w)"
    assert told(node, constants=weights("w", 3)) == []
    assert told("y = DepthToSpace <blocksize = 2> (x)", "float[1, C, H] x") == []
    inputs, constants = f"{F}, float[2, S] z", weights("w", 3)
    assert told("y = Concat <axis = 1> (x, z)", inputs, constants) == []


# Bodies


BODY = "then_branch = t () => (p) {{ p = Add (x, {0}) }}, else_branch = e () => (q) {{ q = {1} }}"


def test_branches_are_apart() -> None:
    constants = f"{weights('w', 3)}, {weights('v', 4)}"
    body = f"y = If (c) <{BODY.format('w', 'Add (x, v)')}>"
    found, _ = relations(body, f"{F}, bool c", constants)
    assert found.always == found.wishes == ()
    ((then, other),) = found.branches
    assert [str(x.b) for x in then.always] == ["3"]
    assert [str(x.b) for x in other.always] == ["4"]
    assert [str(x.b) for x in found.in_branches()] == ["3", "4"]
    assert [str(x.b) for x in found.all_relations()] == ["3", "4"]


LOOP = """y = Loop ({0}) <body = b (int64 i, bool k, float s) => (bool m, float r) {
    m = Identity (k)  a = Add (x, w)  t = ReduceSum <keepdims = 0> (a)  r = Add (s, t) }>"""


@pytest.mark.parametrize(
    ("operands", "surely"),
    [
        ("n, yes, f", True),
        ("none, yes, f", False),
        ("n, no, f", False),
        ("count, yes, f", False),
        ("n, go, f", False),
        ("n, , f", True),
        (", yes, f", True),
    ],
)
def test_a_loop_wants_what_its_rounds_want(operands: str, surely: bool) -> None:
    numbers = "int64 n = {1}, int64 none = {0}, bool yes = {1}, bool no = {0}, float f = {0}"
    inputs, constants = f"{F}, int64 count, bool go", f"{weights('w', 3)}, {numbers}"
    found, _ = relations(LOOP.replace("{0}", operands), inputs, constants)
    always, wishes = ([str(x.b) for x in y] for y in (found.always, found.wishes))
    assert ("3" in always, "3" in wishes) == (surely, not surely)


def test_what_a_loop_carries_is_wished_to_keep_its_shape() -> None:
    body = """y = Loop (n, yes, x) <body = b (int64 i, bool k, float[2, T, C] s) => (bool m, z) {
        m = Identity (k)  z = Add (s, w) }>"""
    constants = f"{weights('w', 3)}, int64 n = {{1}}, bool yes = {{1}}"
    found, _ = relations(body, F, constants)
    assert [str(x.b) for x in found.always] == []
    assert [str(x.b) for x in found.wishes] == ["3"]


def test_a_scan_runs_its_body() -> None:
    body = """y = Scan <num_scan_inputs = 1, body = b (float[2, C] s) => (float[2, C] r) {
        r = Add (s, w) }> (z)"""
    found, _ = relations(body, "float[T, 2, C] z", weights("w", 3))
    assert [str(x.b) for x in found.always] == ["3"]

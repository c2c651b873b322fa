"""What the walk over a graph asks and refuses, each check by itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

import onnx_ir as ir
import pytest

from graphfix.lengths import analysis
from graphfix.lengths.analysis import Analysis, analyse, find_poison_only
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    ZERO,
    ShiftedFactor,
    Tail,
    TensorState,
    TimeFactor,
)
from tests.lengths.sites import FOUR, ROWS, TIME, site_of, size

if TYPE_CHECKING:
    from graphfix.lengths.rule_site import RuleSite

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'


FRAMES = TensorState((ROWS, TIME, FOUR), (None, FINITE, None))
NUMBER = TensorState((), ())
PLACES = TensorState((), (), places=FRAMES)
SHIFTED = TensorState((ROWS, (ShiftedFactor(size("T"), size("T - 1")),)), (None, None))


def state(**facts: Any) -> TensorState:
    return dataclasses.replace(NUMBER, **facts)


def site(node: str, **facts: Tail | dict[str, Any]) -> RuleSite:
    inputs = (
        "float[B, T, 4] x, float[B, T, 4] z, float[4] w, int64[T] k, float[] any, int64[N] open, "
        "float[B, T] rows, int64 n, bool[B, T] c, float[M] other"
    )
    return site_of(node, inputs=inputs, constants="int64[1] one = {1}, float five = {5}", **facts)


def walk(text: str, source: str = "", axis: str = "x.1") -> tuple[ir.Model, Analysis]:
    model = ir.from_onnx_text(HEAD + text)
    return model, analyse(model, find_length_source(model, axis, source))


def states(found: Analysis) -> dict[str, TensorState | None]:
    return {value.name or "": x for value, x in found.states.items()}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (FRAMES, None),
        (NUMBER, None),
        (TensorState(None), None),
        (state(counts_padding=True), "is a size that counts the padding in"),
        (PLACES, "holds indices that depend on the padded length"),
        (SHIFTED, "holds positions that move when the clip is padded"),
        (state(moving=True), "holds positions that move when the clip is padded"),
        (state(capped_at=size("T")), "holds numbers that are cut to the padded length"),
        (
            TensorState(((TimeFactor(size("T - 5*floor(T/5)")),),), (FINITE,)),
            "long, which is less for some longer clip",
        ),
        (
            TensorState(((TimeFactor(size("T"), reversed=True),),), (FINITE,)),
            "runs backwards, its padding in front",
        ),
        (TensorState(((*ROWS, *TIME),), (FINITE,)), "holds batch and time in one axis"),
        (TensorState(((*ROWS, *FOUR),), (None,)), None),
        (TensorState(((*ROWS, *FOUR), TIME), (None, FINITE)), "holds batch and time in one axis"),
        (TensorState(((*FOUR, *TIME),), (FINITE,)), "holds time several times over in one axis"),
        (TensorState((ROWS, (*TIME, *FOUR)), (None, FINITE)), "holds time several times over"),
    ],
)
def test_what_an_output_may_be(given: TensorState, fault: str | None) -> None:
    found = analysis._output_fault(given)
    assert (found is None) is (fault is None)
    assert fault is None or fault in (found or "")


@pytest.mark.parametrize(
    ("accepts", "behind", "refused"),
    [
        (AcceptedInputs(0), 0, True),
        (AcceptedInputs(0), 1, True),
        (AcceptedInputs.SIZES, 0, False),
        (AcceptedInputs.SIZES, 1, False),
        (AcceptedInputs.SIZES_BEHIND, 0, True),
        (AcceptedInputs.SIZES_BEHIND, 1, False),
        (AcceptedInputs.PLACES, 1, True),
    ],
)
def test_a_padded_size_is_no_data(accepts: AcceptedInputs, behind: int, refused: bool) -> None:
    given = site("y = Clip (x, , n)")
    given.states[2 * behind] = state(counts_padding=True)
    rule = PaddingRule(lambda _: NUMBER, accepts)
    if refused:
        with pytest.raises(RefusedError, match="it computes with the padded length"):
            analysis._check_sizes(given, rule)
    else:
        analysis._check_sizes(given, rule)


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        (FRAMES, False),
        (NUMBER, True),
        (TensorState(None), False),
        (None, False),
        (PLACES, False),
    ],
)
def test_a_result_has_the_rank_of_its_shape(result: TensorState | None, refused: bool) -> None:
    if refused:
        with pytest.raises(RefusedError, match="its result is of rank 3, and its rule makes 0"):
            analysis._check_ranks(site("y = Relu (x)"), [result])
    else:
        analysis._check_ranks(site("y = Relu (x)"), [result])
    analysis._check_ranks(site("y = Reshape (x, open)"), [result])  # who knows its rank


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        (TensorState((FOUR,), (None,)), True),
        (TensorState((FOUR,), (None,), counts_padding=True), False),
        (None, False),
    ],
)
def test_a_result_of_an_unknown_size(result: TensorState | None, refused: bool) -> None:
    text = "m = NonZero (c) s = Shape <start = 1> (m) y = ConstantOfShape (s)"
    given = site(text, s={"counts_padding": True})
    if refused:
        with pytest.raises(RefusedError, match="it is made to a padded size that is not known"):
            analysis._check_known_sizes(given, [result])
    else:
        analysis._check_known_sizes(given, [result])
    analysis._check_known_sizes(site(text), [result])  # of no padded size
    known = site("s = Shape <start = 1, end = 2> (x) y = ConstantOfShape (s)",
                 s={"counts_padding": True})  # fmt: skip
    analysis._check_known_sizes(known, [result])
    both = site("m = NonZero (c) y = Gather (m, n)", n={"counts_padding": True})
    analysis._check_known_sizes(both, [result])  # that unknown size is one of its data


@pytest.mark.parametrize(
    ("axes", "facts", "refused"),
    [
        ((ROWS, TIME, FOUR), {}, False),
        ((ROWS, FOUR, FOUR), {}, True),
        ((ROWS, FOUR, FOUR), {"counts_padding": True}, False),
        ((ROWS, FOUR, FOUR), {"places": FRAMES}, False),
        (None, {}, False),
    ],
)
def test_what_grows_with_the_padding_is_time(
    axes: Any, facts: dict[str, Any], refused: bool
) -> None:
    result = TensorState(axes, **facts)
    if refused:
        with pytest.raises(RefusedError, match="its result grows with the padding"):
            analysis._check_growth(site("y = Relu (x)"), [result])
    else:
        analysis._check_growth(site("y = Relu (x)"), [result])
    analysis._check_growth(site("y = Relu (x)"), [None])
    analysis._check_growth(site("y = Relu (w)"), [TensorState((FOUR,), (None,))])


@pytest.mark.parametrize(
    ("text", "endless"),
    [("T", True), ("Min(3, T)", False), ("T - floor(T/2)", True), ("5*B", False), ("T*B", True)],
)
def test_what_goes_on_growing(text: str, endless: bool) -> None:
    assert analysis._is_endless(size(text), site("y = Relu (x)")) is endless


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ([FRAMES, NUMBER], False),
        ([TensorState(((TimeFactor(size("T - 5*floor(T/5)")),),), (FINITE,))], True),
        (
            [NUMBER, TensorState((ROWS, (TimeFactor(size("T - 5*floor(T/5)")),)), (None, ZERO))],
            True,
        ),
        ([TensorState(None)], False),
    ],
)
def test_what_shrinks_has_no_room(given: list[TensorState], refused: bool) -> None:
    if refused:
        with pytest.raises(RefusedError, match=r"it reads what is .* long, which is less for some"):
            analysis._check_room(given)
    else:
        analysis._check_room(given)


@pytest.mark.parametrize(
    ("given", "moves"),
    [
        ([{"counts_padding": True}, {"fixed": True}], True),
        ([{"counts_padding": True}, {}], False),
        ([{"fixed": True}, {"fixed": True}], False),
        ([{"counts_padding": True}, {"counts_padding": True}], True),
        ([{"counts_padding": True, "axes": (TIME,), "tails": (FINITE,)}, {"fixed": True}], False),
    ],
)
def test_nodes_that_move_sizes(given: list[dict[str, Any]], moves: bool) -> None:
    sized = site("s = Shape <start = 1, end = 2> (x) y = Add (s, one)")
    found = [state(**x) for x in given]
    assert analysis._moves_sizes(sized, found) is moves
    assert not analysis._moves_sizes(site("y = Add (w, five)"), found)


@pytest.mark.parametrize(
    ("given", "informative"),
    [
        ([state(sign=1)], True),
        ([state(fill=0.0)], True),
        ([state(length=size("T"))], True),
        ([state(), state(sign=1)], True),
        ([state()], False),
        ([TensorState(None, sign=1)], False),
        ([TensorState(None), state(sign=1)], False),
        ([], False),
    ],
)
def test_what_a_rule_may_learn(given: list[TensorState], informative: bool) -> None:
    assert analysis._is_informative(given) is informative


RULE = PaddingRule(lambda _: NUMBER)


@pytest.mark.parametrize(
    ("node", "rule", "given", "needed"),
    [
        ("Relu (x)", RULE, [FRAMES], True),
        ("Relu (x)", None, [FRAMES], True),
        ("Relu (x)", RULE, [NUMBER], False),
        ("Relu (x)", RULE, [state(sign=1)], True),
        ("Relu (x)", None, [state(sign=1)], False),
        ("Relu (x)", None, [state(counts_padding=True)], True),
        ("Relu (x)", None, [PLACES], True),
        ("Relu (x)", None, [SHIFTED], True),
        ("Relu (x)", None, [state(moving=True)], True),
        ("Shape (x)", None, [NUMBER], True),
        ("Expand (x, open)", None, [NUMBER], True),
        ("ConstantOfShape (open)", None, [NUMBER], True),
        ("Range (n, n, n)", None, [NUMBER], True),
    ],
)
def test_which_nodes_need_a_rule(
    node: str, rule: PaddingRule | None, given: list[TensorState], needed: bool
) -> None:
    assert analysis._needs_rule(site(f"y = {node}").node, rule, given) is needed


@pytest.mark.parametrize(
    ("node", "given", "bodies", "reason"),
    [
        ("my.Own (x)", [FRAMES], False, "there is no rule that says what padding does to my.Own"),
        ("com.microsoft.Rfft (x)", [FRAMES], False, "to com.microsoft.Rfft; run ilens-mask before"),
        ("my.Own (x)", [SHIFTED], False, "it computes with positions that move"),
        ("my.Own (x)", [FRAMES, SHIFTED], True, "it computes with positions that move"),
        ("my.Own (x)", [FRAMES], True, "the bodies of my.Own use what carries time"),
    ],
)
def test_why_a_node_is_refused(
    node: str, given: list[TensorState], bodies: bool, reason: str
) -> None:
    found = analysis._reason_without_rule(site(f"y = {node}").node, given, has_bodies=bodies)
    assert reason in found
    assert ("; run ilens-mask" in found) is ("com.microsoft" in reason)


def test_places_of_a_mask_move_and_are_not_computed_with() -> None:
    moved = site("y = Transpose (k)", k={"places": FRAMES})
    assert analysis._keep_places(moved) is moved.states[0]
    with pytest.raises(RefusedError, match="it computes with the places of a mask"):
        analysis._keep_places(site("y = Add (k, n)", k={"places": FRAMES}))
    with pytest.raises(RefusedError, match="it computes with the places of a mask"):
        analysis._keep_places(site("y = Transpose (k)"))


def test_numbers_that_are_cut_to_a_size_move() -> None:
    rule = PaddingRule(lambda given: given.input_state(0))
    for node in ("Cast <to = 6> (k)", "Unsqueeze (k, one)"):
        moved = site(f"y = {node}", k={"capped_at": size("T")})
        assert analysis._keep_cap(moved, rule).capped_at == size("T")
    for node, given in (
        ("Cast <to = 1> (k)", rule),
        ("Neg (k)", rule),
        ("Cast <to = 6> (k)", PaddingRule(lambda _: [NUMBER])),
    ):
        with pytest.raises(RefusedError, match="cut to the padded length"):
            analysis._keep_cap(site(f"y = {node}", k={"capped_at": size("T")}), given)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("y = CastLike (x, w)", ["x"]),
        ("y = Cast <to = 1> (x)", ["x"]),
        ("y = Add (x, w)", ["x", "w"]),
        ("p = NonZero (c) i = Transpose (p) y = ScatterND (rows, i, five)", ["rows", "i"]),
        ("y = ScatterND (rows, open, w)", ["rows", "open", "w"]),
    ],
)
def test_inputs_whose_elements_matter(text: str, names: list[str]) -> None:
    assert [x and x.name for x in analysis._inputs_read(site(text).node)] == names


PLAIN = "m (float[B, T, 4] x{}) => (float[B, T, 4] y) {{ y = Relu (x) }}"


@pytest.mark.parametrize(
    ("extra", "source", "sign", "valid_fill", "length"),
    [
        (", int64[B, T] mask", "mask", 1, 1.0, "T"),
        (", int64[B] lengths", "lengths", 1, None, "T"),
    ],
)
def test_the_input_of_lengths_is_known(
    extra: str, source: str, sign: int, valid_fill: float | None, length: str
) -> None:
    text = PLAIN.format(extra).replace("Relu (x)", f"Mul (x, f) u = Cast <to = 1> ({source})")
    text = text.replace("{ y", "{ f = Constant <value_float = 2.0> () y")
    _, found = walk(text, source)
    given = states(found)[source]
    assert given is not None
    assert (given.sign, given.valid_fill) == (sign, valid_fill)
    assert given.length == size(length)
    assert all(x is None or x == ZERO for x in given.tails)
    data = states(found)["x"]
    assert data is not None
    assert (data.sign, data.length, data.tails) == (0, None, (None, ANY, None))


def test_inputs_and_constants_without_a_shape_or_numbers() -> None:
    text = """m (float[B, T, 4] x, float[] any, float[4] w) => (float[B, T, 4] y)
        <float[4] w = {1, 1, 1, 1}, float[2] k = {1, 2}> { c = Identity (any) d = Identity (k)
          e = ReduceSum <keepdims = 0> (d) z = Mul (x, e) y = Add (z, w) }"""
    _, found = walk(text)
    named = states(found)
    assert named["any"] is not None
    assert named["any"].axes is None
    assert "w" not in named or named["w"] is not None
    assert found.refusals == []


def test_zeros_in_inputs_are_the_first_repair() -> None:
    text = """m (float[B, T, 4] x, float[B, T, 4] z, float[B, T, 4] unread, float[4] fixed)
        => (float[B, 4] y) { s = Shape (unread) a = Add (x, z) b = Add (a, fixed)
        y = ReduceSum <keepdims = 0> (b, k) }"""
    text = text.replace("=> (float[B, 4] y)", "=> (float[B, 4] y) <int64[1] k = {1}>")
    model, found = walk(text)
    assert [x.leak for x in found.repairs][:2] == ["poisoned input", "poisoned input"]
    inputs = [x.value.name for x in found.repairs if x.leak == "poisoned input"]  # type: ignore[attr-defined]
    assert inputs == ["x", "z"]
    assert len(found.repairs) == 3
    nodes = [x.node for x in found.repairs]
    assert nodes[0] is nodes[1]
    poison = find_poison_only(model, found)
    assert {x.leak for x in poison if hasattr(x, "leak")} == {"poisoned input"}


def test_finite_garbage_may_need_zeros_too() -> None:
    text = """m (float[B, T, 4] x) => (float[B, 4] y) <int64[1] k = {1}>
        { y = ReduceSum <keepdims = 0> (x, k) }"""
    model, found = walk(text)
    assert [x.leak for x in found.repairs] == ["poisoned input"]
    assert find_poison_only(model, found) == []  # those zeros are needed


def test_a_refusal_of_garbage_alone_is_one_of_poison() -> None:
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y) { a = Log (x) y = my.Own (a) }"""
    model, found = walk(text.replace("my.Own", "NonMaxSuppression").replace("(a)", "(a, a)"))
    assert len(found.refusals) == 1
    poison = find_poison_only(model, found)
    assert [x for x in poison if hasattr(x, "reason")] == []


def test_bodies_that_read_what_carries_time() -> None:
    text = """m (bool c, float[B, T, 4] x, float[4] w) => (float[B, T, 4] y) {
        k = If (c) <then_branch = a () => (p) { p = Neg (%s) },
                    else_branch = b () => (q) { q = Abs (%s) }>
        y = Add (x, k) }"""
    _, found = walk(text % ("x", "x"))
    assert [x.reason for x in found.refusals] == ["the bodies of If use what carries time"]
    _, found = walk(text % ("w", "w"))
    assert found.refusals == []


def test_an_output_that_no_rule_knows_is_refused_where_it_is_read() -> None:
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y) <float[4] s = {1, 1, 1, 1}>
        { a, b, c = LayerNormalization (x, s) y = Add (a, %s) }"""
    assert walk(text % "s")[1].refusals == []
    found = walk(text % "b")[1]
    assert all("output 1 of it" in x.reason for x in found.refusals)
    added = site("y = Add (k, n)", k={"places": FRAMES})
    with pytest.raises(RefusedError, match="it computes with the places of a mask"):
        analysis._PaddingWalk._infer_outputs(cast("Any", None), added, [])

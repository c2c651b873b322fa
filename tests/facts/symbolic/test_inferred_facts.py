"""What is noted of sizes, and what follows from it; each note by itself, without an inference."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import sympy
from onnx_shape_inference import ShapeInferenceContext

from graphfix.facts.symbolic import inferred
from graphfix.facts.symbolic.expressions import array_of_exprs
from graphfix.facts.symbolic.inferred import Facts
from tests.facts.symbolic.bodies import size_of

MODEL = """<ir_version: 10, opset_import: ["" : 17]>
    m (bool c, float[B, T] x, int64[3] three, int64[64] most, int64[65] many, int64[N] n,
       int64[2, 2] square, int64 scalar, float[2] f)
    => (y, z) <int64[2] two = {3, -4}, float[2] halves = {0.5, 1.5}>
    { y = Neg (x) z = If (c) <then_branch = a () => (p) { p = Neg (x) },
      else_branch = b () => (q) { q = Abs (x) }> }"""


class Case:
    """Facts of a small model, and a context to name new sizes in."""

    def __init__(self, *, usual: bool = False, positive: tuple[str, ...] = ()) -> None:
        self.model = ir.from_onnx_text(MODEL)
        self.facts = Facts(self.model.graph, positive=[*map(size_of, positive)], usual=usual)
        self.ctx = ShapeInferenceContext({"": 17})
        self.node = self.model.graph[0]
        self.values = {x.name: x for x in self.model.graph.inputs}
        self.values.update(self.model.graph.initializers)

    def new_unknown(self) -> sympy.Expr:
        return self.facts.new_unknown(self.ctx)

    def inner_node(self) -> ir.Node:
        return self.model.graph[1].attributes["then_branch"].as_graph()[0]

    def contents(self, name: str) -> list[str] | None:
        array = self.facts.read_contents(self.ctx, self.values[name])
        return None if array is None else [*map(str, array.flat)]


def dim(text: str | int) -> int | ir.SymbolicDim:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 5, 5),
        (5, 1, 5),
        (1, "T", "T"),
        ("T", 1, "T"),
        (5, "T", 5),
        ("T", 5, 5),
        ("T", "T", "T"),
        ("T", "Min(T, 5)", "T"),
        ("Min(T, 5)", "T", "T"),
        ("Min(T, S)", "S", "S"),
        ("Min(50, S + T) - S", "T", "T"),
    ],
)
def test_two_sizes_broadcast_to_the_one_that_is_not_1(
    a: str | int, b: str | int, expected: str | int
) -> None:
    case = Case()
    assert case.facts.broadcast_dim(case.ctx, dim(a), dim(b)) == dim(expected)


def test_two_symbols_broadcast_to_one_third() -> None:
    case = Case()

    def join(a: str, b: str) -> str:
        return str(case.facts.broadcast_dim(case.ctx, dim(a), dim(b)))

    both = join("S", "T")
    assert both not in ("S", "T")
    assert join("T", "S") == both
    assert join("S", "U") not in (both, "S", "U")
    assert join(both, "U") == join(join("S", "U"), "T")  # of all three, in any order


def test_in_a_usual_run_two_sizes_are_one_if_no_run_has_them_apart() -> None:
    even = dim("2*floor(T/2)")
    for usual in (True, False):
        case = Case(usual=usual)
        for a, b in ((dim("T"), even), (even, dim("T"))):
            assert (str(case.facts.broadcast_dim(case.ctx, a, b)) == "T") is usual


@pytest.mark.parametrize(
    ("a", "b", "positive"),
    [
        ("T", "Min(4, T)", ["5 - T"]),
        ("Min(4, T)", "T", ["5 - T"]),
        ("P + T", "Min(4, P + T)", ["-P - T + 5", "5 - P", "5 - T"]),
        ("T - 1", "Min(4, T - 1)", ["6 - T"]),
        ("T", "Min(4, S)", []),
        ("T", 4, []),
        (4, "T", []),
    ],
)
def test_a_size_that_is_capped_is_all_of_it(
    a: str | int, b: str | int, positive: list[str]
) -> None:
    case = Case(usual=True)
    heard: list[str] = []
    case.facts.must_be_positive = lambda _, x: heard.append(str(x))  # type: ignore[method-assign]
    case.facts.must_fill_broadcast(case.node, dim(a), dim(b))
    assert [*map(sympy.sympify, heard)] == [*map(sympy.sympify, positive)]


def resolved(case: Case, expr: sympy.Expr) -> str:
    return str(case.facts.resolve_dim(ir.SymbolicDim(str(expr))))


@pytest.mark.parametrize(
    ("left", "right", "value"),
    [
        ("u", "T", "T"),
        ("T", "u", "T"),
        ("2*u", "4*T", "2*T"),
        ("4*u", "2*T", None),  # half a T is maybe no size
        ("u + 1", "T", "T - 1"),
        ("2*u + 2", "4*T", "2*T - 1"),
        ("u**2", "T", None),
        ("u**2 + u", "T", None),
        ("B*u", "B*T", None),  # B may be 0
        ("B*u", "0*B", None),
        ("u", "u + T", None),
        ("u", "2*u", None),
    ],
)
def test_an_equality_says_what_a_new_size_is(left: str, right: str, value: str | None) -> None:
    case = Case()
    unknown = case.new_unknown()
    sides = [size_of(text).subs(size_of("u"), unknown) for text in (left, right)]
    case.facts.must_equal(case.node, *sides)
    assert resolved(case, unknown) == (value or str(unknown))
    assert resolved(case, size_of("T")) == "T"
    assert case.facts.resolve_dim(3) == 3


@pytest.mark.parametrize(
    ("usual", "is_size", "positive", "solved"),
    [
        (True, True, (), True),
        (True, False, (), False),
        (False, True, (), False),
        (False, True, ("B",), True),
        (False, True, ("T",), False),
    ],
)
def test_a_size_that_no_run_has_as_0_is_divided_out(
    usual: bool, is_size: bool, positive: tuple[str, ...], solved: bool
) -> None:
    case = Case(usual=usual, positive=positive)
    if is_size:
        case.facts.dims_as_sizes(ir.Shape(["B"]))
    unknown = case.new_unknown()
    case.facts.must_equal(case.node, size_of("B") * unknown, size_of("B") * size_of("T"))
    assert (resolved(case, unknown) == "T") is solved
    case = Case(usual=usual, positive=positive)
    if is_size:
        case.facts.dims_as_sizes(ir.Shape(["B"]))
    unknown = case.new_unknown()
    case.facts.must_equal(case.node, size_of("B") * unknown + size_of("B"), size_of("B*T + 2*B"))
    assert (resolved(case, unknown) == "T + 1") is solved


def test_equalities_are_solved_together() -> None:
    case = Case()
    u, v, w = (case.new_unknown() for _ in range(3))
    case.facts.must_equal(case.node, u + v, size_of("T"))
    case.facts.must_equal(case.node, w, v + 1)
    case.facts.must_equal(case.node, v, size_of("S"))
    assert (resolved(case, u), resolved(case, v)) == ("-1*S + T", "S")
    assert resolved(case, 2 * w) == "2*S + 2"
    assert str(case.facts.resolve_dim(ir.SymbolicDim(None))) == "None"


def test_what_a_branch_needs_says_nothing_of_other_runs() -> None:
    case = Case()
    unknown = case.new_unknown()
    inner = case.inner_node()
    case.facts.must_equal(inner, unknown, size_of("T"))
    case.facts.must_be_positive(inner, size_of("T - 3"))
    assert resolved(case, unknown) == str(unknown)
    assert case.facts.never_empty == set()
    assert [*case.facts.inner_graphs] == [inner.graph]
    case.facts.must_be_positive(case.node, size_of("T - 3"))
    assert case.facts.never_empty == {"T - 3"}


def test_what_is_positive_is_noted_once_and_no_number() -> None:
    case = Case()
    for text in ("T", "T", "2*B"):
        case.facts.must_be_positive(case.node, size_of(text))
    case.facts.must_be_positive(case.node, sympy.Integer(3))
    case.facts.must_be_positive(case.node, case.new_unknown())
    assert case.facts.knowledge == (3, 0)
    assert {"T", "B"} < case.facts.never_empty
    assert [*map(str, case.facts.lasting_positives)] == ["T", "2*B"]  # in sizes of the inputs alone
    case.facts.dims_as_sizes(ir.Shape(["B", 4, "T + 1"]))
    assert case.facts.knowledge == (3, 2)


@pytest.mark.parametrize(
    ("text", "least", "positive", "expected"),
    [
        ("T", 1, (), True),
        ("T", 2, (), False),
        ("T", 4, ("T - 3",), True),
        ("T", 5, ("T - 3",), False),
        ("2*T", 8, ("T - 3",), True),
        ("2*T", 9, ("T - 3",), False),
        ("T", 4, ("S - 3",), False),
        ("S + T", 5, ("T - 3",), True),
        ("T - S", 1, ("T - S",), True),
        ("floor(T/2)", 4, ("T - 7",), True),
        ("floor(T/2)", 4, ("T - 6",), False),
        ("floor(T/2)", 5, ("T - 7",), False),
        ("floor(T/2)", 2, ("floor(T/2) - 1",), True),
    ],
)
def test_what_follows_from_what_is_positive(
    text: str, least: int, positive: tuple[str, ...], expected: bool
) -> None:
    case = Case(positive=positive)
    assert case.facts.is_at_least(case.ctx, size_of(text), least) is expected
    assert (case.facts.undecided, case.facts.doubts) == (not expected, int(not expected))


def test_a_number_is_compared_and_an_unknown_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(positive=("T - 3",))
    assert case.facts.is_at_least(case.ctx, sympy.Integer(3), 3)
    assert not case.facts.is_at_least(case.ctx, sympy.Integer(2), 3)
    assert (case.facts.undecided, case.facts.doubts) == (False, 0)
    unknown = case.new_unknown()
    assert not case.facts.is_at_least(case.ctx, unknown, 0)
    assert (case.facts.undecided, case.facts.doubts) == (False, 1)
    case.facts.dims_as_sizes(ir.Shape([str(unknown)]))  # now it is a size, and not negative
    assert case.facts.is_at_least(case.ctx, unknown, 0)
    assert case.facts.doubts == 1
    monkeypatch.setattr(inferred, "MAX_TRIES", 1)
    assert case.facts.is_at_least(case.ctx, size_of("T"), 4)
    assert not case.facts.is_at_least(case.ctx, size_of("T"), 4)  # that was one more


@pytest.mark.parametrize(
    ("name", "contents"),
    [("two", ["3", "-4"]), ("halves", ["1/2", "3/2"]), ("three", None)],
)
def test_what_the_file_says_is_known(name: str, contents: list[str] | None) -> None:
    assert Case().contents(name) == contents
    case = Case()
    assert case.facts.read_contents(case.ctx, None) is None


@pytest.mark.parametrize(
    ("array", "known"),
    [
        (np.zeros(64, np.int64), True),
        (np.zeros(65, np.int64), False),
        (np.zeros(2, np.int32), True),
        (np.zeros(2, np.bool_), True),
        (np.zeros(2, np.float64), True),
        (np.zeros(2, np.float16), False),
        (np.zeros(2, np.uint8), False),
        (np.array([1, np.inf], np.float32), False),
    ],
)
def test_small_constants_of_the_types_of_sizes_are_read(array: np.ndarray, known: bool) -> None:
    case = Case()
    value = ir.Value(
        name="k",
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        const_value=ir.tensor(array, name="k"),
    )
    case.model.graph.register_initializer(value)
    contents = case.facts.read_contents(case.ctx, value)
    assert (contents is not None) is known
    assert contents is None or contents.shape == array.shape


def test_what_a_constant_node_holds_is_read_from_any_attribute() -> None:
    case = Case()
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 17]> m () => (int64[2] y)
        { y = Constant <value_ints = [5, 6]> () }"""
    )
    contents = case.facts.read_contents(case.ctx, model.graph.outputs[0])
    assert contents is not None
    assert [*contents] == [5, 6]


@pytest.mark.parametrize(
    ("name", "guess", "contents"),
    [
        ("three", [2, "T", 3], ["2", "T", "3"]),
        ("scalar", ["T"], ["T"]),
        ("square", ["T"], None),
        ("f", [1, 2], None),
    ],
)
def test_what_the_library_knows_of_a_list_of_integers(
    name: str, guess: list[int | str], contents: list[str] | None
) -> None:
    case = Case()
    case.ctx.set_symbolic_value(case.values[name], [*map(dim, guess)])
    assert case.contents(name) == contents
    case.values[name].shape = None
    assert case.contents(name) is None


@pytest.mark.parametrize(
    ("name", "count"),
    [("three", 3), ("most", 64), ("many", None), ("n", None), ("square", None), ("scalar", None)],
)
def test_of_a_shape_of_known_length_each_element_is_some_number(
    name: str, count: int | None
) -> None:
    case = Case()
    elements = case.facts.elements_or_unknowns(case.ctx, case.values[name])
    assert (None if elements is None else len({*map(str, elements)})) == count
    assert case.facts.elements_or_unknowns(case.ctx, None) is None
    known = case.facts.elements_or_unknowns(case.ctx, case.values["two"])
    assert known is not None
    assert [*known] == [3, -4]


@pytest.mark.parametrize(
    ("dtype", "number", "kept"),
    [
        (ir.DataType.INT64, 2**63 - 1, True),
        (ir.DataType.INT64, 2**63, False),
        (ir.DataType.INT64, -(2**63), True),
        (ir.DataType.INT64, -(2**63) - 1, False),
        (ir.DataType.INT32, 2**31 - 1, True),
        (ir.DataType.INT32, 2**31, False),
        (ir.DataType.INT32, -(2**31) - 1, False),
    ],
)
def test_a_number_beyond_its_type_is_not_known(dtype: ir.DataType, number: int, kept: bool) -> None:
    case = Case()
    value = ir.Value(name="v", type=ir.TensorType(dtype))
    numbers = [sympy.Integer(number), size_of("T")]
    case.facts.write_contents(case.ctx, value, array_of_exprs(numbers, [2]))
    first, second = case.facts.contents[value]
    assert (first == number) is kept
    assert str(second) == "T"
    assert value.shape == ir.Shape([2])


def test_what_is_not_known_or_too_much_takes_back_the_guess_of_the_library() -> None:
    case = Case()
    value = case.values["three"]
    for array in (None, array_of_exprs([size_of("T")] * 65, [65])):
        case.ctx.set_symbolic_value(value, [1, 2, 3])
        case.facts.contents[value] = array_of_exprs([size_of("T")], [1])
        case.facts.write_contents(case.ctx, value, array)
        assert value not in case.facts.contents
        guess = case.ctx.get_symbolic_value(value)
        assert len({*map(str, guess)} - {"1", "2", "3"}) == 3
    case.facts.write_contents(case.ctx, value, array_of_exprs([size_of("T")] * 64, [64]))
    assert len(case.facts.contents[value]) == 64
    case.facts.write_float_contents(value, None)
    case.facts.write_float_contents(value, array_of_exprs([size_of("S")] * 65, [65]))
    assert len(case.facts.contents[value]) == 64
    case.facts.write_float_contents(value, array_of_exprs([size_of("S")] * 64, [64]))
    assert str(case.facts.contents[value][0]) == "S"


def test_long_contents_have_one_name() -> None:
    case = Case()
    long = size_of(f"{'T' * 121}")
    case.facts.write_contents(case.ctx, case.values["three"], array_of_exprs([long, long], [2]))
    first, second = case.facts.contents[case.values["three"]]
    assert first == second != long


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        (f"{'T' * 120}", False),
        (f"{'T' * 121}", True),
        ("T**6", False),
        ("T**7", True),
        ("T**6 + S**6", False),
        ("S**4*T**4", False),  # each keeps its own
        ("T**4*(T + 1)**3", True),
        ("T**3*(T + 1)**3", False),
        ("(S*T)**7", True),
        ("2**T", True),  # who knows how steep that is
    ],
)
def test_a_size_that_is_long_or_steep_gets_a_name(text: str, shortened: bool) -> None:
    case = Case()
    short = case.facts.shorten_dim(case.ctx, dim(text))
    assert (short != dim(text)) is shortened
    assert case.facts.shorten_dim(case.ctx, dim(text)) == short
    assert case.facts.shorten_dim(case.ctx, dim(f"{text}*T**9")) != short
    assert case.facts.shorten_dim(case.ctx, 5) == 5
    unknown = ir.SymbolicDim(None)
    assert case.facts.shorten_dim(case.ctx, unknown) is unknown

"""skew-gather: which rows are looked up, what is left alone, and that every number stays."""

from __future__ import annotations

import itertools
import random

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.graph.constants import const_of
from graphfix.job import planning
from tests.passes.models import opened, ops

WIDTH = 3
CONSTANTS = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
    int64[1] rest = {-1}, int64[1] end = {9223372036854775807}"""


def table(window: int) -> str:
    """A row for each distance up to the window, in whole numbers, so that sums are exact."""
    count = 2 * window + 1
    rows = np.random.default_rng(window).integers(-9, 9, count * WIDTH)
    return f"float[1, {count}, {WIDTH}] table = {{{', '.join(map(str, rows))}}}"


def joined(*parts: str) -> str:
    return f"Concat <axis = 0> ({', '.join(parts)})"


def cut(name: str, window: int, style: str) -> str:
    """The table's 2 * T - 1 rows about distance 0, as one of the exporters writes them."""
    after = f"""{name}_after = Constant <value_ints = [{window + 1}]> ()
        {name}_less = Sub (t, {name}_after)"""
    pads = joined("zero", f"{name}_by", "zero", "zero", f"{name}_by", "zero")
    if style == "torchscript":  # traced with a T that is longer than the window
        return f"""{after} {name}_by = Identity ({name}_less) {name}_pads = {pads}
            {name} = Pad (table, {name}_pads)"""
    return f"""{after} {name}_by = Max (zero, {name}_less) {name}_pads = {pads}
        {name}_long = Pad (table, {name}_pads) {name}_more = Sub ({name}_after, t)
        {name}_from = Max (zero, {name}_more) {name}_to = Add ({name}_from, wide)
        {name} = Slice ({name}_long, {name}_from, {name}_to, one)"""


def pads(lead: int, axis: int, front: str = "zero", back: str = "zero", *, of: int) -> str:
    """The pads of one of the last axes, of which there are ``of``."""
    around = [front if x == axis else "zero" for x in range(of)]
    behind = [back if x == axis else "zero" for x in range(of)]
    return joined(*["zero"] * lead, *around, *["zero"] * lead, *behind)


def skew(x: str, y: str, lead: int) -> str:
    """``y[i, j] = x[i, j - i + T - 1]``, as VITS does it."""
    last = {1: ("one", "two"), 2: ("two", "three")}[lead]
    return f"""{y}_behind = {pads(lead, 1, back="one", of=2)} {y}_longer = Pad ({x}, {y}_behind)
        {y}_line = {joined("n", "rest")} {y}_flat = Reshape ({y}_longer, {y}_line)
        {y}_few = {pads(lead, 0, back="less", of=1)} {y}_filled = Pad ({y}_flat, {y}_few)
        {y}_sizes = {joined("n", "more", "wide")} {y}_turned = Reshape ({y}_filled, {y}_sizes)
        {y}_top = Slice ({y}_turned, zero, t, {last[0]})
        {y} = Slice ({y}_top, less, end, {last[1]})"""


def unskew(x: str, y: str, lead: int) -> str:
    """``y[i, r] = x[i, r + i - T + 1]``, and 0 where there is none."""
    last = ("one", "two", "three")[lead]
    return f"""{y}_behind = {pads(lead, 1, back="less", of=2)} {y}_longer = Pad ({x}, {y}_behind)
        {y}_line = {joined("n", "rest")} {y}_flat = Reshape ({y}_longer, {y}_line)
        {y}_front = {pads(lead, 0, front="t", of=1)} {y}_filled = Pad ({y}_flat, {y}_front)
        {y}_sizes = {joined("n", "t", "twice")} {y}_turned = Reshape ({y}_filled, {y}_sizes)
        {y} = Slice ({y}_turned, one, end, {last})"""


def layer(name: str, window: int, style: str, lead: int) -> str:
    """An attention with relative keys and values, except what is not relative in it."""
    return f"""{cut(f"{name}_k", window, style)}
        {name}_columns = Transpose <perm = [0, 2, 1]> ({name}_k)
        {name}_x = MatMul (q, {name}_columns) {skew(f"{name}_x", f"{name}_scores", lead)}
        {cut(f"{name}_v", window, style)} {unskew(f"{name}_scores", f"{name}_z", lead)}
        {name} = MatMul ({name}_z, {name}_v)"""


def text(
    body: str, window: int = 2, lead: tuple[str, ...] = ("N",), opset: int = 17, outputs: str = ""
) -> str:
    dims = ", ".join((*lead, "T"))
    count = len(lead)
    sizes = f"""shape = Shape (q) start = Constant <value_ints = [0]> ()
        to = Constant <value_ints = [{count}]> () next = Constant <value_ints = [{count + 1}]> ()
        n = Slice (shape, start, to) t = Slice (shape, to, next)
        less = Sub (t, one) more = Add (t, one) wide = Add (t, less) twice = Add (t, t)"""
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[{dims}, {WIDTH}] q, float[{dims}, T] p) => ({outputs or "float y"})
        <{CONSTANTS}, {table(window)}> {{ {sizes} {body} }}"""


def both(source: str) -> tuple[ir.Model, ir.Model, graphfix.Report]:
    before, after = ir.from_onnx_text(source), ir.from_onnx_text(source)
    return before, after, graphfix.run(after, "skew-gather")


def feeds(lead: tuple[int, ...], size: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(size)
    shapes = {"q": (*lead, size, WIDTH), "p": (*lead, size, size)}
    return {k: numbers.integers(-9, 9, v).astype(np.float32) for k, v in shapes.items()}


def agree(before: ir.Model, after: ir.Model, lead: tuple[int, ...], sizes: range) -> None:
    first, second = opened(before), opened(after)
    given = {x.name for x in first.get_inputs()}
    for size in sizes:
        feed = {k: v for k, v in feeds(lead, size).items() if k in given}
        for want, got in zip(first.run(None, feed), second.run(None, feed), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("style", ["torchscript", "dynamo"])
@pytest.mark.parametrize("lead", [(3,), (1,), (2, 3), (1, 1)])
@pytest.mark.parametrize("window", [1, 2, 4, 13])
def test_relative_keys_and_values_in_two_layers(
    style: str, lead: tuple[int, ...], window: int
) -> None:
    body = f"{layer('a', window, style, len(lead))} {layer('b', window, style, len(lead))}"
    source = text(f"{body} y = Add (a, b)", window, ("N", "H")[: len(lead)])
    before, after, report = both(source)
    assert len(report.passes[0].changes) == 4, report.passes[0]
    assert not {"Reshape", "Max"} & {*ops(after)}
    assert ops(after).count("CumSum") == 1  # the layers share their indices
    assert ops(after).count("Expand") == 2
    agree(before, after, lead, range(1, 13))


@pytest.mark.parametrize("opset", [12, 13, 15, 18, 21])
def test_in_each_opset(opset: int) -> None:
    before, after, report = both(text(layer("y", 2, "dynamo", 1), opset=opset))
    assert len(report.passes[0].changes) == 2, report.passes[0]
    agree(before, after, (2,), range(1, 6))


def test_below_opset_12_is_a_near_miss() -> None:
    _, after, report = both(text(layer("y", 2, "torchscript", 1), opset=11))
    assert not report.changed
    assert "take opset 12" in report.passes[0].skips[0][1]
    assert "Reshape" in ops(after)


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        pytest.param(
            np.float64,
            marks=pytest.mark.skipif(
                ort.__version__.startswith("1.24."),
                reason="fuses a Transpose into a FusedMatMul of float64, which it has no kernel of",
            ),
        ),
    ],
)
def test_in_other_types(dtype: type) -> None:
    name = "float16" if dtype is np.float16 else "double"
    source = text(layer("y", 2, "dynamo", 1))
    head, rest = source.split("<int64", 1)
    models = []
    for _ in range(2):
        m = ir.from_onnx_text(head.replace("float", name) + "<int64" + rest)
        weights = m.graph.initializers["table"]
        array = const_of(weights)
        assert array is not None
        weights.const_value = ir.tensor(array.astype(dtype), name="table")
        weights.dtype = weights.const_value.dtype
        models.append(m)
    before, after = models
    assert len(graphfix.run(after, "skew-gather").passes[0].changes) == 2
    feed = {k: v.astype(dtype) for k, v in feeds((2,), 5).items() if k == "q"}
    feed["p"] = np.zeros((2, 5, 5), dtype)
    np.testing.assert_array_equal(
        opened(after).run(None, feed)[0], opened(before).run(None, feed)[0]
    )


def shifted(x: str, y: str) -> str:
    """``y[i, j] = x[i, j - i + T - 1]`` as Transformer-XL and Conformer do it."""
    return f"""{y}_one = {joined("n", "t", "one")} {y}_zero = ConstantOfShape ({y}_one)
        {y}_longer = Concat <axis = -1> ({y}_zero, {x})
        {y}_sizes = {joined("n", "twice", "t")} {y}_turned = Reshape ({y}_longer, {y}_sizes)
        {y}_rest = Slice ({y}_turned, one, end, two) {y}_shape = Shape ({x})
        {y}_back = Reshape ({y}_rest, {y}_shape) {y} = Slice ({y}_back, zero, t, three)"""


WIDE = "p_less = Slice (p, one, end, three) x = Concat <axis = -1> (p, p_less)"


def test_a_conformers_shift_in_two_layers() -> None:
    body = f"{WIDE} {shifted('x', 'a')} x2 = Neg (x) {shifted('x2', 'b')} y = Sub (a, b)"
    before, after, report = both(text(body, lead=("B", "H")))
    assert len(report.passes[0].changes) == 2, report.passes[0]
    assert "Reshape" not in ops(after)
    agree(before, after, (2, 3), range(1, 9))
    counted = planning.count_kernels(before, after)
    assert counted is not None
    assert counted["before"] is not None
    assert counted["after"] is not None
    for where in ("all", "directml", "copies", "recompiled"):
        assert counted["after"][where] <= counted["before"][where]


def test_positions_that_are_cut_from_a_table_are_taken_to_be_in_it() -> None:
    """As FastSpeech 2 and fairseq's Conformer cut 2 * T - 1 of them out of thousands."""
    body = f"""five = Constant <value_ints = [5]> () four = Constant <value_ints = [4]> ()
        begin = Sub (five, t) last = Add (four, t) near = Slice (table, begin, last, one)
        columns = Transpose <perm = [0, 2, 1]> (near) x = MatMul (q, columns)
        {shifted("x", "a")} x2 = Neg (x) {shifted("x2", "b")} y = Sub (a, b)"""
    before, after, report = both(text(body, 4, lead=("B", "H")))
    notes = [x.note for x in report.passes[0].changes]
    assert notes == ["takes it that no clip is longer than the table of positions"] * 2
    assert "Reshape" not in ops(after)
    agree(before, after, (2, 3), range(1, 6))


KEYS = layer("y", 2, "dynamo", 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y_z_flat, y_z_front", "y_z_flat, y_z_front, half"),  # other padding than 0
        ("y_z_longer = Pad", 'y_z_longer = Pad <mode = "wrap">'),
        ("Slice (y_z_turned, one,", "Slice (y_z_turned, zero,"),
        ("y_v_from, y_v_to", "y_v_from, y_v_to, one, two) unused = Identity (y_v_long"),
        ("y_v_by = Max (zero, y_v_less)", "y_v_by = Add (zero, t)"),
    ],
)
def test_what_is_not_moved_back_by_a_table_is_left_alone(old: str, new: str) -> None:
    assert old in KEYS
    half = "half0 = Constant <value_float = 0.5> () half = Identity (half0)"
    source = text(f"{half} {KEYS.replace(old, new)}")
    _, after, report = both(source)
    changed = [x.tensor for x in report.passes[0].changes]
    assert "y" not in changed
    assert "y_z" in {x.name for node in after.graph for x in node.outputs}


def test_what_was_cut_off_before_zeros_were_put_in_its_place_is_not_read() -> None:
    """As far as places go it is the same as moving by T at once; the first number is 0, though."""
    plain = unskew("p", "z", 1)
    crop = f"""off = {joined("zero", "rest", "zero", "zero")} cropped = Pad (z_flat, off)
        more_by = {joined("zero", "more", "zero", "zero")}"""
    body = plain.replace(
        "z_filled = Pad (z_flat, z_front)", f"{crop} z_filled = Pad (cropped, more_by)"
    )
    assert body != plain
    before, after, report = both(text(f"{cut('e', 2, 'dynamo')} {body} y = MatMul (z, e)"))
    agree(before, after, (2,), range(1, 7))
    assert not report.changed


def test_distances_that_are_cut_off_are_not_put_back() -> None:
    """Only the keys that come after are asked for, and the table has rows for those before."""
    body = f"""{cut("e", 4, "dynamo")} {unskew("p", "z", 1)} less_z = Slice (z, less, end, two)
        less_e = Slice (e, less, end, one) y = MatMul (less_z, less_e)"""
    before, after, report = both(text(body, 4))
    agree(before, after, (2,), range(1, 7))
    assert not report.changed
    assert "other distances" in report.passes[0].skips[0][1]


def test_a_table_that_is_cut_before_zeros_are_put_on_is_cut() -> None:
    body = f"""{cut("e", 2, "dynamo")} {unskew("p", "z", 1)}
        off = {joined("zero", "rest", "zero", "zero", "rest", "zero")} few = Pad (table, off)
        by = Add (t, rest) less_by = Add (by, rest) on = Add (less_by, one)
        pads = {joined("zero", "by", "zero", "zero", "by", "zero")} rows0 = Pad (few, pads)
        rows = Slice (rows0, one, end, one) rows1 = Slice (rows0, zero, wide, one)
        w = MatMul (z, rows1) v = MatMul (z, e) y = Sub (w, v)"""
    before, after, _ = both(text(body))
    agree(before, after, (2,), range(1, 7))


@pytest.mark.parametrize(
    ("given", "rank", "name"), [("z_flat", 2, "z_front"), ("p", 3, "z_behind")]
)
def test_zeros_before_zeros_are_zeros(given: str, rank: int, name: str) -> None:
    old = f"= Pad ({given}, {name})"
    body = unskew("p", "z", 1)
    assert old in body
    none = f"none = {joined(*['zero'] * 2 * rank)} same = Pad ({given}, none)"
    before_pad, after_pad = body.split(old)
    start = before_pad.rindex(" z_" if rank == 2 else "z_longer")
    body = f"{before_pad[:start]} {none} {before_pad[start:]}= Pad (same, {name}){after_pad}"
    before, after, report = both(text(f"{cut('e', 2, 'dynamo')} {body} y = MatMul (z, e)"))
    agree(before, after, (2,), range(1, 7))
    assert report.changed


def test_a_back_that_is_read_otherwise_is_a_near_miss() -> None:
    _, _, report = both(text(f"{unskew('p', 'z', 1)} r = Transpose (p) y = MatMul (z, r)"))
    assert not report.changed
    body = f"{unskew('p', 'z', 1)} w = Transpose <perm = [0, 2, 1]> (z) y = MatMul (z, w)"
    _, _, report = both(text(body))
    assert "not multiplied with the rows of a table" in report.passes[0].skips[0][1]


def test_a_number_of_rows_that_is_fixed_is_left_to_constant_folding() -> None:
    _, _, report = both(text(KEYS).replace("[N, T,", "[N, 6,"))
    assert not report.changed


@pytest.mark.parametrize("name", ["scores", "z"])
def test_what_else_reads_a_tensor_still_has_it(name: str) -> None:
    outputs = f"float y, float y_{name}, float y_x"
    before, after, report = both(text(KEYS, outputs=outputs))
    assert report.changed
    agree(before, after, (2,), range(1, 7))


def test_a_nan_far_from_a_key_no_longer_shows() -> None:
    """The manual says so: it was multiplied by 0."""
    before, after, _ = both(
        text(f"{cut('e', 1, 'dynamo')} {unskew('p', 'z', 1)} y = MatMul (z, e)", 1)
    )
    feed = {k: v for k, v in feeds((1,), 6).items() if k == "p"}
    feed["q"] = np.zeros((1, 6, WIDTH), np.float32)
    feed["p"][0, 0, 5] = np.nan
    assert np.isnan(opened(before).run(None, feed)[0]).any()
    assert not np.isnan(opened(after).run(None, feed)[0]).any()


@pytest.mark.parametrize(("row", "repaired"), [(0.0, True), (np.inf, False), (np.nan, False)])
def test_an_infinity_in_a_row_that_is_not_read_is_not_multiplied(
    row: float, repaired: bool
) -> None:
    """At a T below the window it would be multiplied by 0, which is NaN."""
    source = text(f"{cut('e', 4, 'dynamo')} {unskew('p', 'z', 1)} y = MatMul (z, e)", 4)
    before = ir.from_onnx_text(source)
    weights = before.graph.initializers["table"]
    rows = np.array(weights.const_value.numpy())
    rows[0, 0] = row
    weights.const_value = ir.tensor(rows, name="table")
    after = before.clone()
    report = graphfix.run(after, "skew-gather")
    assert bool(report.changed) == repaired
    assert repaired or "a 0 does not take out" in report.passes[0].skips[0][1]
    agree(before, after, (1,), range(1, 4))


def random_skew(pick: random.Random, name: str) -> str:
    """Pads, Reshapes and Slices as in a skew, some of them with another number."""

    def one_of(right: str, *others: str) -> str:
        return pick.choice([*[right] * 3 * len(others), *others])

    front, back = one_of("zero", "one", "t"), one_of("one", "zero")
    ahead, rows = one_of("zero", "one", "less", "t"), one_of("more", "t")
    cols, top, left = (
        one_of("wide", "twice", "t"),
        one_of("zero", "one"),
        one_of("less", "t", "one"),
    )
    return f"""{name}_a = {pads(1, 1, front, back, of=2)} {name}_b = Pad ({name}_x, {name}_a)
        {name}_line = {joined("n", "rest")} {name}_c = Reshape ({name}_b, {name}_line)
        {name}_shape = Shape ({name}_c) {name}_have = Slice ({name}_shape, one, two)
        {name}_want = Mul ({rows}, {cols}) {name}_left = Sub ({name}_want, {name}_have)
        {name}_less = Sub ({name}_left, {ahead})
        {name}_d = {joined("zero", ahead, "zero", f"{name}_less")}
        {name}_e = Pad ({name}_c, {name}_d) {name}_sizes = {joined("n", rows, cols)}
        {name}_f = Reshape ({name}_e, {name}_sizes) {name}_to = Add ({top}, t)
        {name}_g = Slice ({name}_f, {top}, {name}_to, one) {name}_end = Add ({left}, t)
        {name} = Slice ({name}_g, {left}, {name}_end, two)"""


def random_back(pick: random.Random) -> str:
    """The way back, times a table that is cut, some of it with another number."""

    def one_of(right: str, *others: str) -> str:
        return pick.choice([*[right] * 3 * len(others), *others])

    back, ahead, first = (
        one_of("less", "t", "one"),
        one_of("t", "less", "more"),
        one_of("one", "zero"),
    )
    cols, before = one_of("twice", "wide"), one_of("e_by", "zero", "t", "less")
    return f"""{cut("e", 2, pick.choice(["dynamo", "torchscript"]))}
        a = {pads(1, 1, back=back, of=2)} b = Pad (p, a) line = {joined("n", "rest")}
        c = Reshape (b, line) have0 = Shape (c) have = Slice (have0, one, two)
        want = Mul (t, {cols}) left = Sub (want, have) rest0 = Sub (left, {ahead})
        d = {joined("zero", ahead, "zero", "rest0")} f = Pad (c, d)
        sizes = {joined("n", "t", cols)} g = Reshape (f, sizes) till = Add ({first}, wide)
        z = Slice (g, {first}, till, two)
        by = {joined("zero", before, "zero", "zero", "twice", "zero")} long = Pad (table, by)
        rows = Slice (long, zero, wide, one) y = MatMul (z, {pick.choice(["e", "rows"])})"""


def stays(source: str) -> bool:
    """Whether it is repaired; if so, that it runs and that every number stays."""
    before, after, report = both(source)
    if not report.changed:
        assert not report.passes[0].left
        return False
    first, second, ran = opened(before), opened(after), 0
    given = {x.name for x in first.get_inputs()}
    for size in range(1, 6):
        feed = {k: v for k, v in feeds((2,), size).items() if k in given}
        try:
            want = first.run(None, feed)[0]
        except ort.capi.onnxruntime_pybind11_state.Fail:
            continue
        ran += 1
        np.testing.assert_array_equal(second.run(None, feed)[0], want)
    return ran > 0


def test_whatever_the_numbers_are_what_is_repaired_stays_the_same() -> None:
    pick = random.Random(0)
    skews = [random_skew(pick, "a") for _ in range(30)]
    backs = [random_back(pick) for _ in range(30)]
    x = "a_x = Concat <axis = 2> (p, p_less) b_x = Neg (a_x)"
    repaired = [0, 0]
    for chain in skews:
        again = chain.replace("a_", "b_").replace(" a =", " b =")
        body = f"p_less = Slice (p, one, end, two) {x} {chain} {again} y = Add (a, b)"
        repaired[0] += stays(text(body))
    for chain in backs:
        repaired[1] += stays(text(chain))
    assert min(repaired) >= 3, repaired


def test_windows_and_sizes_as_they_come() -> None:
    for window, style, number in itertools.product((0, 3), ("torchscript", "dynamo"), (1, 2)):
        body = " ".join(layer(f"y{i}", window, style, 1) for i in range(number))
        outputs = ", ".join(f"float y{i}" for i in range(number))
        before, after, report = both(text(body, window, outputs=outputs))
        assert len(report.passes[0].changes) == 2 * number
        agree(before, after, (3,), range(1, 13))

"""Sizes at which a model runs, and the arrays of the cases there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError, ModelError
from graphfix.feeds import case_search
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import _asks_for_others, make_cases, search_cases
from graphfix.runtime.run_errors import RunError
from tests.feeds.small_models import ADDITIVE, CONV, TOKENS, model

if TYPE_CHECKING:
    from graphfix.feeds.signature import Signature

ZOO = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[3] / "shared" / "zoo"))


def test_lengths_one_and_two_odd_and_longer_and_ragged_batches():
    cases = make_cases(model(ADDITIVE))
    assert [(c.dims["B"], c.dims["T"]) for c in cases] == [(1, 7), (1, 1), (2, 2), (2, 23), (3, 40)]
    assert [c.is_ragged for c in cases] == [False, False, True, True, True]
    assert not cases.dropped


def test_the_same_seed_makes_the_same_arrays():
    one, two, other = (make_cases(model(TOKENS), seed=s)[-1].feeds["a"] for s in (0, 0, 1))
    assert (one == two).all()
    assert (one != other).any()


@pytest.mark.parametrize(("channels", "longest"), [(4, 3200), (2048, 576)])
def test_images_grow_as_far_as_the_work_is_small(channels: int, longest: int) -> None:
    text = f"""images (float[B, 1, H, W] x) => (float[B, {channels}, I, J] y)
        <int64[4] first = {{1, 1, 450, 1}}, int64[4] second = {{{channels}, {channels}, 1, 1}}>
        {{
            v = ConstantOfShape (first)
            w = ConstantOfShape (second)
            h = Conv <kernel_shape = [450, 1]> (x, v)
            g = Concat <axis = 1> ({", ".join(["h"] * channels)})
            y = Conv <kernel_shape = [1, 1]> (g, w)
        }}"""
    ran: list[int] = []

    def run(case: Case) -> None:
        height = case.feeds["x"].shape[2]
        if height < 450:
            raise RunError("too short")
        ran.append(height)

    search_cases(model(text), run)
    assert len(set(ran)) >= 3
    assert max(ran) == longest


VOLUME = "volume (float[B, D, H, W] x) => (float[B, D, H, W] y) { y = Relu (x) }"


def test_a_model_that_refuses_every_size_is_soon_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_search, "_MOST_DRAWN", 1 << 18)
    drawn: list[int] = []

    def refuse(case: Case) -> None:
        drawn.append(case.element_count)
        raise RunError("no size is right")

    with pytest.raises(
        FeedError, match=r"size is right\. From B=. D=\d+ .* on the inputs are too large to try"
    ):
        search_cases(model(VOLUME), refuse)
    assert max(drawn) <= 1 << 18


def test_sizes_too_large_to_try_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_search, "_MOST_DRAWN", 1 << 16)

    def run(case: Case) -> None:
        if case.dims["D"] > 1:
            raise RunError("too long")

    cases = search_cases(model(VOLUME), run)
    assert [x.split()[1] for x in cases.left_out] == ["D=32"]


def test_a_model_of_fixed_shape():
    cases = make_cases(model("m (float[1, 3] x) => (float[1, 3] y) { y = Relu (x) }"))
    assert len(cases) >= 3
    assert len({c.name for c in cases}) == len(cases)
    assert (cases[0].feeds["x"] != cases[1].feeds["x"]).any()


@pytest.mark.parametrize("dtype", ["float16", "float", "double", "bool", "uint8", "int32"])
def test_every_dtype(dtype: str):
    text = f"m ({dtype}[T] x) => ({dtype}[T] y) {{ y = Identity (x) }}"
    assert make_cases(model(text))[0].feeds["x"].dtype == np.dtype(
        {"float": "float32", "double": "float64"}.get(dtype, dtype)
    )


LONG = """m (float[B, N] x) => (float[B, F] y)
    <int64[1] b = {399}, int64[1] e = {9999999}, int64[1] ax = {1}, int64[1] two = {2}>
    { s = Slice (x, b, e, ax)  n = Shape <start = 1, end = 2> (s)  one = Sign (n)
      h = Constant <value_ints = [5]> ()  z = Sub (one, h)  i = Div (z, one)
      v = Neg (i)  t = Sub (v, v)  q = Gather <axis = 1> (s, t)  y = Relu (s) }"""


def test_sizes_that_do_not_run_are_dropped_with_a_reason():
    cases = make_cases(model(CONV))
    assert {c.dims["N"] for c in cases} >= {7, 23, 40}
    assert {x.name for x in cases.dropped} >= {"B=1 N=1", "B=2 N=2"}
    assert all("Conv" in x.reason for x in cases.dropped)


def test_a_model_of_waves_with_a_minimum_meets_every_residue_of_3_and_5() -> None:
    text = """wave (float[B, T] x) => (float[B, 1, J] y)
        <int64[1] one = {1}, int64[3] kernel = {1, 1, 40}>
        { u = Unsqueeze (x, one) w = ConstantOfShape (kernel) y = Conv (u, w) }"""

    def run(case: Case) -> None:
        if case.dims["T"] < 40:
            raise RunError("too short")

    cases = search_cases(model(text), run, cover=True)
    lengths = {case.dims["T"] for case in cases}
    assert min(lengths) >= 40
    for modulus in (2, 3, 5):
        assert {n % modulus for n in lengths} == set(range(modulus))


def test_larger_sizes_are_tried_for_a_model_with_a_minimum():
    cases = make_cases(model(LONG))
    assert len({c.dims["N"] for c in cases}) >= 3
    assert min(c.dims["N"] for c in cases) >= 400


def test_given_dims_replace_the_usual_ones():
    cases = make_cases(model(ADDITIVE), dims={"T": [5, 9, 12]})
    assert [c.dims["T"] for c in cases] == [5, 9, 12]
    assert [c.dims["B"] for c in cases] == [1, 2, 3]


def test_a_dim_that_does_not_exist():
    with pytest.raises(FeedError, match=r"no input has a dim named 'X'.*: B, T"):
        make_cases(model(TOKENS), dims={"X": [3]})


def test_nothing_runs():
    with pytest.raises(FeedError, match=r"tried.*B=1 N=1.*Conv.*--feeds.*--dims N="):
        make_cases(model(CONV), dims={"N": [1, 2]})


def test_an_input_that_cannot_be_made_up():
    text = "m (string[T] x) => (string[T] y) { y = Identity (x) }"
    with pytest.raises(FeedError, match=r"'x' cannot be made up: its type is .*--feeds"):
        make_cases(model(text))


def test_a_dim_that_is_an_expression_of_another():
    m = model("m (float[T] x, float[U] z) => (float[T] y, float[U] v) { y=Relu (x) v=Relu (z) }")
    m.graph.inputs[1].shape = ir.Shape(["T - 3"])
    cases = make_cases(m)
    assert all(c.feeds["z"].size == c.feeds["x"].size - 3 for c in cases)
    assert any("T=1" in x.name and "no size" in x.reason for x in cases.dropped)


def test_a_number_of_valid_steps():
    text = """m (float[T] s, int64 a) => (float[T] y) <int64 zero = {0}, int64 one = {1}>
        { n = Shape (s)  k = Squeeze (n)  r = Range (zero, k, one)  l = Less (r, a)
          f = Cast <to = 1> (l)  y = Mul (s, f) }"""
    case = make_cases(model(text))[-1]
    assert case.valid["T"] == (int(case.feeds["a"]),)
    assert case.is_ragged


def test_images_have_a_height_and_a_width():
    text = """m (uint8[B, 1, H, W] x) => (float[B, 1, H, W] y) <float[1, 1, 1, 1] w = {2}>
        { f = Cast <to = 1> (x)  y = Conv (f, w) }"""
    cases = make_cases(model(text))
    assert cases.input_roles["x"].kind == "data"
    assert {(c.dims["H"], c.dims["W"]) for c in cases} >= {(7, 5), (40, 22)}


def test_a_model_that_does_not_load():
    with pytest.raises(ModelError, match="Frobnicate"):
        make_cases(model("m (float[T] x) => (float[T] y) { y = Frobnicate (x) }"))


def zoo(status: str) -> list[str]:
    if not (ZOO / "models.jsonl").exists():
        return []
    rows = map(json.loads, (ZOO / "models.jsonl").read_text().splitlines())
    return [row["name"] for row in rows if (row["status"] == "ok") == (status == "ok")]


@pytest.mark.skipif(not zoo("ok"), reason="no zoo; set GRAPHFIX_ZOO")
def test_every_real_export_runs_at_three_lengths():
    few = {}
    for name in zoo("ok"):
        cases = make_cases(ZOO / "models" / f"{name}.onnx")
        if len({tuple(c.dims.values()) for c in cases}) < 3:
            few[name] = [c.name for c in cases]
    assert not few


@pytest.mark.skipif(not zoo("broken"), reason="no zoo; set GRAPHFIX_ZOO")
def test_a_real_export_that_does_not_load_is_refused_with_a_reason():
    for name in zoo("broken"):
        with pytest.raises(ModelError, match=r"Type Error|ShapeInferenceError"):
            make_cases(ZOO / "models" / f"{name}.onnx")


@pytest.mark.parametrize(
    ("sizes", "asks"),
    [
        ({}, False),
        ({"B": [2]}, False),
        ({"B": [2, 3]}, True),
        ({"T": [5]}, False),  # what the graph surely wants is no wish
        ({"T": [4], "B": [3]}, True),
        ({"F": [3]}, False),
    ],
)
def test_a_user_may_ask_for_other_sizes_than_a_graph_wishes(
    sizes: dict[str, list[int]], asks: bool
) -> None:
    forced = {"T": SimpleNamespace(size=4, sure=True), "B": SimpleNamespace(size=2, sure=False)}
    signature = cast("Signature", SimpleNamespace(forced=forced))
    assert _asks_for_others(signature, sizes) is asks

"""Ties of dims: by the graph, by caches, and in each of the ways that are tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds import dim_groups
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role
from graphfix.feeds.signature import Signature
from tests.feeds.small_models import model

APART = """m (float[B, R, 2] a, float[B, S, 2] b, float[B, T, 2] c)
    => (float[B, R, 2] x, float[B, S, 2] y, float[B, T, 2] z)
    { x = Neg (a) y = Neg (b) z = Neg (c) }"""


def groups(text: str, tie: Any = "graph") -> Signature:
    return Signature(model(text)).with_tie(tie)


def together(signature: Signature, *names: str) -> bool:
    return len({signature.group_of(x) for x in names}) == 1


@pytest.mark.parametrize(
    ("tie", "joined", "apart"),
    [
        ("graph", [], [("R", "S"), ("S", "T"), ("B", "S")]),
        ("one-time", [("R", "S", "T")], [("B", "R")]),
        ("rows", [("B", "S", "T")], [("B", "R")]),
        ("past", [], [("R", "S"), ("S", "T")]),
    ],
)
def test_times_that_nothing_relates(tie: str, joined: Any, apart: Any) -> None:
    signature = groups(APART, tie)
    assert all(together(signature, *names) for names in joined)
    assert not any(together(signature, *names) for names in apart)


def test_data_come_before_masks_and_caches_last() -> None:
    text = """m (bool[B, M] mask, float[B, 2, P, 4] past_key, float[B, 2, P, 4] past_value,
               int64[B, S] ids, float[B, T, 4] x)
        => (float[B, T, 4] y, float[B, 2, Q, 4] present_key, float[B, 2, Q2, 4] present_value,
            float[B, S, 2] e, bool[B, M] n) <float[3, 2] t = {0,1,2,3,4,5}>
        { y = Neg (x) n = Not (mask) e = Gather (t, ids)
          s = Unsqueeze (e, one) one = Constant <value_ints = [1]> ()
          present_key = Identity (past_key) present_value = Identity (past_value) }"""
    text = text.replace("s = Unsqueeze (e, one) one = Constant <value_ints = [1]> ()", "")
    signature = groups(text)
    assert [*signature.times][:2] == ["T", "S"]
    assert set(signature.times) >= {"T", "S", "P"}


CACHED = """m (float[B, 2, T, 4] q, float[B, 2, P, 4] past_key, float[B, 2, Q, 4] past_value)
    => (float[B, 2, T, 4] y, float[B, 2, U, 4] present_key, float[B, 2, V, 4] present_value)
    { present_key = Concat <axis = 2> (past_key, q)
      present_value = Concat <axis = 2> (past_value, q) y = Neg (q) }"""


def test_keys_and_values_of_one_kind_are_one_length() -> None:
    signature = groups(CACHED)
    assert together(signature, "P", "Q")
    assert signature.group_of("P") in signature.past
    other = groups(CACHED.replace("[B, 2, Q, 4]", "[B, 2, Q, 5]").replace(
        "present_value = Concat <axis = 2> (past_value, q)", "present_value = Neg (past_value)"
    ))  # fmt: skip
    assert not together(other, "P", "Q")  # of another size, another kind


@pytest.mark.parametrize(("tie", "derived"), [("graph", False), ("past", True)])
def test_a_mask_as_long_as_cache_and_new_tokens(tie: str, derived: bool) -> None:
    text = """m (int64[B, T] ids, int64[B, M] attention_mask, float[B, 2, P, 4] past_key,
               float[B, 2, P, 4] past_value)
        => (float[B, T, 4] y, float[B, 2, U, 4] present_key, float[B, 2, V, 4] present_value,
            int64[B] n) <float[3, 4] t = {0,1,2,3,4,5,6,7,8,9,0,1}, int64[1] one = {1}>
        { y = Gather (t, ids) e = Unsqueeze (y, one)
          present_key = Concat <axis = 2> (past_key, e)
          present_value = Concat <axis = 2> (past_value, e)
          n = ReduceSum <keepdims = 0> (attention_mask, one) }"""
    signature = groups(text, tie)
    assert ("M" in signature.derived) is derived
    if derived:
        assert sorted(str(signature.derived["M"]).replace(" ", "").split("+")) == ["P", "T"]


def item(
    kind: Any = "data", dims: Any = ("B", 2, "P", 4), time: int | None = 2, name: str = "x"
) -> Input:
    symbolic = tuple(x if isinstance(x, int) else ir.SymbolicDim(x) for x in dims)
    return Input(name, np.float32, symbolic, Role(kind, "a use"), rows=0, time=time)


@pytest.mark.parametrize(
    ("given", "grows", "kind"),
    [
        (item(), False, ("float32", 2, None, 2, None, 4)),
        (item("mask"), False, None),
        (item(time=None), False, None),
        (item(dims=("B", "P", 4), time=1), False, None),
        (item(dims=("B", "P", 4), time=1), True, ("float32", 1, None, None, 4)),
        (item(dims=("B", "P"), time=1), True, None),
    ],
)
def test_kinds_of_caches(given: Input, grows: bool, kind: Any) -> None:
    assert dim_groups._cache_kind(given, grows=grows) == kind


@pytest.mark.parametrize(
    ("body", "continued"),
    [
        ("y = Concat <axis = 1> (x, z)", True),
        ("y = Concat <axis = 1> (z, x)", False),
        ("g = Gather (x, at) y = Concat <axis = 1> (g, z)", True),
        ("g = Neg (x) y = Concat <axis = 1> (g, z)", False),
        ("g = Gather (z, at) y = Neg (x)", False),
        ("y = Neg (x)", False),
    ],
)
def test_what_is_continued(body: str, continued: bool) -> None:
    text = f"m (float[B, T] x, float[B, S] z, int64[B] at) => (y) {{ {body} }}"
    assert dim_groups._is_continued(model(text), "x") is continued


def test_symbols_of_masks_alone() -> None:
    inputs = [item(), item("mask", ("B", "M")), item("tokens", ("B", "T"))]
    assert dim_groups._mask_only_symbols(inputs) == {"M"}
    assert dim_groups._mask_only_symbols([]) == set()


def test_a_mask_describes_what_its_name_is_most_like() -> None:
    text = """m (float[B, S, 2] audio, bool[B, M] audio_mask, float[B, T, 2] video,
               bool[B, N] video_mask, bool[B, O] other)
        => (float[B, S, 2] w, bool[B, M] x, float[B, T, 2] y, bool[B, N] z, bool[B, O] v)
        { w = Neg (audio) x = Not (audio_mask) y = Neg (video) z = Not (video_mask)
          v = Not (other) }"""
    signature = groups(text)
    assert together(signature, "S", "M")
    assert together(signature, "T", "N")
    assert together(signature, "T", "O")  # names say nothing: the one before it
    assert not together(signature, "S", "T")


def test_the_batch_is_tied_under_all_its_names() -> None:
    text = """m (float[B1, T, 2] a, float[B2, S, 2] b) => (float[B1, T, 2] y, float[B2, S, 2] z)
        { y = Neg (a) z = Neg (b) }"""
    signature = groups(text)
    assert together(signature, "B1", "B2")
    assert signature.batch == signature.group_of("B2")
    assert not together(signature, "T", "S")

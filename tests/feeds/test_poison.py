"""Garbage lies in the padding and nowhere else."""

from __future__ import annotations

import numpy as np

from graphfix.feeds.case_search import make_cases
from graphfix.feeds.poison import poison_padding
from tests.feeds.small_models import CONV, LENGTHS, model


def test_poison_is_put_beyond_the_valid_length_only():
    m = model(LENGTHS % ("int64", 7, 7))
    cases = make_cases(m)
    clean = cases[-1]
    kinds = {p.poison: p for p in poison_padding(clean, cases.signature)}
    assert set(kinds) == {"NaN", "large values"}
    for spoiled in kinds.values():
        assert spoiled.base == clean.name
        for row, length in enumerate(clean.valid["T"]):
            a, b = clean.feeds["s"][row], spoiled.feeds["s"][row]
            assert (a[:length] == b[:length]).all()
            assert not np.isclose(a[length:], b[length:]).any()
    assert np.isnan(kinds["NaN"].feeds["s"]).any()
    assert np.abs(kinds["large values"].feeds["s"]).max() > 1000


def test_poisoned_token_ids_are_other_valid_ids():
    text = """m (int64[B, T] a, int64[B, T] b) => (float[B, T, 1] y)
        <float[5, 1] t = {0,1,2,3,4}, int64[1] ax = {2}>
        { e = Gather (t, a)  f = Cast <to = 1> (b)  u = Unsqueeze (f, ax)  y = Mul (e, u) }"""
    cases = make_cases(model(text))
    (spoiled,) = poison_padding(cases[-1], cases.signature)
    assert spoiled.poison == "other ids"
    assert (spoiled.feeds["a"] != cases[-1].feeds["a"]).any()
    assert (spoiled.feeds["a"] < 5).all()
    assert (spoiled.feeds["b"] == cases[-1].feeds["b"]).all()


def test_without_a_mask_there_is_nothing_to_poison():
    cases = make_cases(model(CONV))
    assert all(not case.valid and not poison_padding(case, cases.signature) for case in cases)

"""Words for what is told."""

from __future__ import annotations

import pytest

from graphfix.wording import plural, with_article


def test_one_and_several() -> None:
    assert [plural(n, "repair") for n in (0, 1, 2)] == ["0 repairs", "1 repair", "2 repairs"]
    assert plural(2, "axis", "axes") == "2 axes"


@pytest.mark.parametrize(
    "told",
    [
        *("an Add", "a Mul", "an If", "an IsNaN", "an Unsqueeze", "a Unique", "a NonZero"),
        *("an LSTM", "a GRU", "an STFT", "a DFT", "an RMSNormalization", "a QLinearMatMul"),
    ],
)
def test_an_operator_with_its_article(told: str) -> None:
    assert with_article(told.split()[1]) == told

"""The proof through a session: what it compares, and what a quantized model is allowed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from graphfix.probing.unpadded import Clip
from graphfix.proof.compare import Tolerance
from graphfix.proof.own_rounding import OwnRounding
from graphfix.shipping import end_to_end
from graphfix.shipping.end_to_end import compare_outputs, prove_end_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN = OwnRounding({"other last bits": 0.01}, rms=0.01, runs=2)


@pytest.mark.parametrize(
    ("factor", "own", "ok"),
    [(1.0, None, True), (1.005, None, False), (1.005, OWN, True), (1.1, OWN, False)],
)
def test_a_quantized_model_is_allowed_what_it_differs_from_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    factor: float,
    own: OwnRounding | None,
    ok: bool,
) -> None:
    array = np.linspace(-1, 1, 40, dtype=np.float32)
    clips = [Clip(n, {}, {"y": array}) for n in (3, 5)]

    @contextmanager
    def session(_: Path) -> Iterator[object]:
        yield lambda *_: {"y": array * np.float32(factor)}

    monkeypatch.setattr(end_to_end, "open_isolated_session", session)
    proof = prove_end_to_end(tmp_path, clips, Tolerance(), lambda: own)
    assert proof.ok is ok
    assert (str(OWN) in str(proof)) is (ok and own is not None)
    assert proof.to_json()["clips"] == 2


@pytest.mark.parametrize("lengths", [(), (3, 5)])
def test_what_need_not_be_allowed_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    """Where all is equal, and where nothing was compared."""
    array = np.linspace(-1, 1, 40, dtype=np.float32)

    @contextmanager
    def session(_: Path) -> Iterator[object]:
        yield lambda *_: {"y": array}

    def measure() -> OwnRounding:
        raise AssertionError("nothing differs")

    monkeypatch.setattr(end_to_end, "open_isolated_session", session)
    clips = [Clip(n, {}, {"y": array}) for n in lengths]
    assert prove_end_to_end(tmp_path, clips, Tolerance(), measure).ok is bool(lengths)


def test_each_clip_must_be_within_what_is_allowed() -> None:
    array = np.linspace(-1, 1, 40, dtype=np.float32)
    pairs = [("y", f"clip of {n}", array, array * np.float32(x)) for n, x in ((3, 1.005), (5, 1.1))]
    proof = compare_outputs(pairs, Tolerance(), lambda: OWN)
    assert (proof.ok, [x.ok for x in proof.diffs]) == (False, [True, False])
    assert str(OWN) not in str(proof)

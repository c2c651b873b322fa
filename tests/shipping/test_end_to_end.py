"""The proof through a session: what it compares, and what a quantized model is allowed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from graphfix.probing.unpadded import Clip
from graphfix.proof.by_channel import ChannelRule, OutputPair
from graphfix.proof.own_rounding import OwnRounding
from graphfix.shipping import end_to_end
from graphfix.shipping.end_to_end import compare_outputs, prove_end_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from graphfix.proof.noise import Noise

OWN = OwnRounding({"other last bits": 0.01}, rms=0.01, channel=100.0, runs=2)


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
    proof = prove_end_to_end(tmp_path, clips, ChannelRule(), lambda: own)
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
    assert prove_end_to_end(tmp_path, clips, ChannelRule(), measure).ok is bool(lengths)


@pytest.mark.parametrize(("noise", "ok"), [(0.0, False), (1e-3, True)])
def test_a_small_output_beside_large_ones_is_held_to_its_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: float, ok: bool
) -> None:
    array = np.random.default_rng(0).uniform(0.5, 1, (20, 2)).astype(np.float32) * [640, 1]
    asked: list[str] = []

    @contextmanager
    def session(_: Path) -> Iterator[object]:
        yield lambda *_: {"y": np.add(array, [0, 1e-3])}

    def measure(number: str, scales: object) -> Noise:
        asked.append(number)
        return {"y": [np.full(array.shape, noise)]}

    monkeypatch.setattr(end_to_end, "open_isolated_session", session)
    clips = [Clip(n, {}, {"y": array}) for n in (3, 5)]
    assert prove_end_to_end(tmp_path, clips, ChannelRule(measure_noise=measure)).ok is ok
    assert asked == ["0", "1"]


def test_each_clip_must_be_within_what_is_allowed() -> None:
    array = np.linspace(-1, 1, 40, dtype=np.float32)
    pairs = [
        OutputPair("y", f"clip of {n}", array, array * np.float32(x))
        for n, x in ((3, 1.005), (5, 1.1))
    ]
    proof = compare_outputs(pairs, ChannelRule(), lambda: OWN)
    assert (proof.ok, [x.ok for x in proof.diffs]) == (False, [True, False])
    assert str(OWN) not in str(proof)

"""How far a model differs from itself, in a case and from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.by_channel import scales_of
from graphfix.proof.noise import NoiseSource, count_runs
from graphfix.runtime.local_session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from graphfix.proof.noise import Outputs
    from graphfix.runtime.port import Array, Feeds

MODEL = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, 4] x) => (float[B, 4] y, int64[B] n)
    { s = Exp (x) y = Sub (s, x) n = ArgMax <axis = 1, keepdims = 0> (x) }""")
FEEDS = {"x": np.linspace(-3, 3, 24, dtype=np.float32).reshape(6, 4)}


def outputs_of(feeds: Feeds) -> Outputs:
    with Session(MODEL, optimize=False) as session:
        return session.run(feeds)


def test_floats_differ_in_the_last_bits_in_each_run() -> None:
    expected = outputs_of(FEEDS)
    scales = scales_of(expected.items())
    noise = NoiseSource(MODEL, MODEL).measure_case(FEEDS, expected, scales, 60)
    assert {*noise} == {"y"}
    # Some copies with other last bits, and the session that a user opens.
    assert len(noise["y"]) == count_runs(scales, expected) + 1
    assert all(0 < x.max() < 1e-4 for x in noise["y"][:-1])
    alone = NoiseSource(MODEL, MODEL, as_used=False).measure_case(FEEDS, expected, scales, 60)
    assert len(alone["y"]) == count_runs(scales, expected)
    np.testing.assert_array_equal(alone["y"], noise["y"][:-1])


def test_last_bits_may_be_those_of_float16() -> None:
    expected = outputs_of(FEEDS)
    scales = scales_of(expected.items())
    fine, coarse = (
        NoiseSource(MODEL, MODEL, in_half=x, as_used=False).measure_case(FEEDS, expected, scales, 9)
        for x in (False, True)
    )
    assert np.max(coarse["y"]) > 100 * np.max(fine["y"])


def test_nothing_begins_when_the_time_is_over() -> None:
    assert NoiseSource(MODEL, MODEL).measure_case(FEEDS, outputs_of(FEEDS), {}, -1) == {}


def test_a_step_is_given_what_the_one_before_made() -> None:
    def play(
        run: Callable[[Feeds], Outputs], change: Callable[[Array], Array]
    ) -> Iterator[Outputs]:
        first = run({"x": change(FEEDS["x"])})
        yield first
        yield run({"x": first["y"]})

    first = outputs_of(FEEDS)
    expected = [first, outputs_of({"x": first["y"]})]
    one, other = NoiseSource(MODEL, MODEL, as_used=False).measure_steps(play, expected, 3, 60)
    assert np.max(other["y"]) > np.max(one["y"]) > 0


@pytest.mark.parametrize(("shape", "runs"), [((12, 2), 3), ((3, 2), 4), ((1, 2), 8)])
def test_few_samples_take_more_runs(shape: tuple[int, ...], runs: int) -> None:
    array = np.ones(shape, np.float32)
    array[:, 0] = 100
    assert count_runs(scales_of([("y", array)]), {"y": array}) == runs

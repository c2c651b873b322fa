"""Pairs of models that differ in one subtle way: it is found, or the verdict names what is untried.

Each file in ``pairs/`` holds two graphs in ONNX text, ``A`` and ``B`` with ``---`` between them.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PAIRS = {path.stem: path for path in sorted((Path(__file__).parent / "pairs").glob("*.txt"))}
# Not found; what the verdict names instead as not tried.
NAMED = {
    "cast_through_int32": "'x' beyond 13,000",
    "least_integer": "'x' beyond -16,777,219 to 16,777,217",
    "length_from_a_table": "some remainders of sizes modulo 4, 6 and more",
    "mask_times_scores": "'mask' other than 0 and 1",
    "no_frames_another_shape": "sizes of 0",
    "no_rows_another_shape": "sizes of 0",
    "relu_of_nan": "NaN or infinity in 'x'",
    "seconds_through_float": "'stamp' over 2^31",
    "the_twentieth_trip": "more trips of Loop 'y'",
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_subtle_difference_is_found_or_named(name: str) -> None:
    before, after = map(ir.from_onnx_text, (HEAD + x for x in _texts_of(name)))
    verdict = verify(before, after, locate=False)
    assert verdict.ok == (name in NAMED), str(verdict)
    if name in NAMED:
        assert NAMED[name] in verdict.not_tried


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_is_the_same_as_itself(name: str) -> None:
    """In particular where it is fed ties, NaN and large numbers."""
    before, after = (ir.from_onnx_text(HEAD + _texts_of(name)[0]) for _ in range(2))
    verdict = verify(before, after)
    assert verdict.ok, str(verdict)
    assert verdict.worst is not None
    assert verdict.worst.max_abs == 0


def test_no_pair_goes_unseen() -> None:
    assert len(PAIRS) > 90
    assert {*NAMED} <= {*PAIRS}


def _texts_of(name: str) -> list[str]:
    return PAIRS[name].read_text(encoding="utf-8").split("---\n")

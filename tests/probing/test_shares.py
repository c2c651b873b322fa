"""A share of the longest row: in a container n / L, behind ilens-mask what it is for the clip."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.feeds.roles import roles_of
from graphfix.probing.padded import padded
from tests.lengths.padding import session
from tests.shares import CUT, SHARES, model

DIMS = {"T": [9, 20, 33], "B": [1, 3]}


def repaired(name: str) -> ir.Model:
    made = ir.from_proto(model(name))
    graphfix.run(made, "ilens-mask")
    return made


@pytest.mark.parametrize("name", [x for x in SHARES if x != "strided"])
def test_in_a_container_a_share_is_one_of_it(name: str) -> None:
    verdict = padded(ir.from_proto(model(name)), dims=DIMS, container=[34, 64])
    assert (verdict.ok, verdict.told) == (True, ("wav_lens",)), str(verdict)


def test_a_share_at_which_a_slice_ends_is_one() -> None:
    made = ir.from_onnx_text(CUT)
    assert roles_of(made)["wav_lens"].kind == "relative-lengths"
    verdict = padded(made, dims={"T": [9, 20]}, container=[32, 64])
    assert (verdict.ok, verdict.told) == (True, ("wav_lens",)), str(verdict)


def test_a_speed_is_no_share() -> None:
    """It says how many frames there will be, not how many there are."""
    made = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, T, 4] x, float[1] speed) => (float[1, S, 4] y)
        <int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i4 = {4}>
        { size = Shape <start = 1, end = 2> (x)  long = Cast <to = 1> (size)
          n = Mul (speed, long)  near = Ceil (n)  end = Cast <to = 7> (near)
          all = Concat <axis = 0> (i1, end, i4)  y = Resize <mode = "nearest"> (x, , , all) }""")
    assert roles_of(made)["speed"].kind == "data"


def test_a_number_of_frames_beside_a_share_is_none() -> None:
    """What ends a Slice is not what was multiplied with a size."""
    made = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, T, 4] x, float[1] keep) => (float[1, S, 4] y, float[1] z)
        <int64[1] i0 = {0}, int64[1] i1 = {1}>
        { size = Shape <start = 1, end = 2> (x)  long = Cast <to = 1> (size)
          z = Mul (keep, long)  end = Cast <to = 7> (keep)  y = Slice (x, i0, end, i1) }""")
    assert roles_of(made)["keep"].kind == "data"


@pytest.mark.parametrize("name", SHARES)
def test_behind_ilens_mask_it_is_one_of_the_valid_length(name: str) -> None:
    made = repaired(name)
    assert roles_of(made)["wav_lens"].kind == "relative-lengths"
    for original in (None, ir.from_proto(model(name))):
        verdict = padded(made, dims=DIMS, container=[34, 64], original=original)
        assert (verdict.ok, verdict.told) == (True, ("ilens", "wav_lens")), str(verdict)


@pytest.mark.parametrize("name", SHARES)
def test_a_clip_with_a_share_below_one_is_what_it_is_alone(name: str) -> None:
    alone, together = session(model(name)), session(ir.to_proto(repaired(name)))
    rng = np.random.default_rng(7)
    for lengths in ([3], [8, 5], [21, 13, 4]):
        for more in (0, 1, 6, 40):
            x = np.full((len(lengths), max(lengths) + more, 4), np.nan, np.float32)
            shares = rng.uniform(0.5, 1.0, len(lengths)).astype(np.float32)
            wanted = []
            for row, n in enumerate(lengths):
                x[row, :n] = rng.standard_normal((n, 4))
                feeds = {"x": x[row : row + 1, :n], "wav_lens": shares[row : row + 1]}
                wanted.append(alone.run(None, feeds)[0][0])
            found = together.run(None, {"x": x, "wav_lens": shares, "ilens": np.array(lengths)})[0]
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_reads_a_share_wrong_is_seen() -> None:
    """The graph of a container that takes the share of itself leaks: both are not one thing."""
    made = repaired("rounded")
    wrong = ir.from_proto(model("rounded"))
    wrong.metadata_props.update(made.metadata_props)
    wrong.graph.inputs.append(ir.Value(name="ilens", type=ir.TensorType(ir.DataType.INT64)))
    wrong.graph.inputs[-1].shape = ir.Shape(["B"])
    verdict = padded(wrong, dims=DIMS, container=[34], original=ir.from_proto(model("rounded")))
    assert not verdict.ok


def test_the_models_are_valid() -> None:
    for text in (*SHARES.values(), CUT):
        onnx.checker.check_model(onnx.parser.parse_model(text), full_check=True)

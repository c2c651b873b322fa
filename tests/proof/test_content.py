"""A mask over a cache and what is new: which rows are content, and what float16 is held to."""

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case import Case
from graphfix.feeds.case_search import search_cases
from graphfix.feeds.signature import Signature
from graphfix.proof.compare import HALF_GATE
from graphfix.proof.content import ContentMasks, infer_dims_from_shapes
from graphfix.proof.verify import Verdict, verify
from graphfix.runtime.local_session import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
# A query of padding sees nothing: its row of weights is NaN, and the guard makes it 0.
DECODER = """
decoder (int64[B, S] ids, int64[B, M] mask, float[B, P, 4] past_key)
    => (float[B, S, 4] y, float[B, N, 4] present_key)
<float[9, 4] table = {0.1, 0.7, -0.4, 0.9, -1.1, 0.3, 0.2, -0.8, 0.6, -0.5, 1.2, 0.4, -0.9, 1.1,
  0.8, -0.2, 0.5, -0.7, 1.3, 0.6, -0.3, 0.9, -1.2, 0.1, 0.4, 0.8, -0.6, 1.0, -1.0, 0.2, 0.7, -0.1,
  0.3, -0.9, 0.5, 1.4}, int64[2] query = {1, 2}, int64[1] key = {1}, int64 zero = {0},
  int64 step = {1}, int64 one = {1}, float none = {0.0}, float low = {LOW}, float scale = {SCALE}>
{
    x = Gather (table, ids)
    present_key = Concat <axis = 1> (past_key, x)
    whole = Shape <start = 1, end = 2> (mask)
    new = Shape <start = 1, end = 2> (ids)
    end = Squeeze (whole)
    length = Squeeze (new)
    start = Sub (end, length)
    places = Range (zero, end, step)
    own = Range (start, end, step)
    at = Unsqueeze (own, key)
    seen = LessOrEqual (places, at)
    kept = Cast <to = 9> (mask)
    there = Unsqueeze (kept, key)
    both = And (seen, there)
    addend = Where (both, none, low)
    keys = Transpose <perm = [0, 2, 1]> (present_key)
    raw = MatMul (x, keys)
    scores = Add (raw, addend)
    weights = Softmax <axis = -1> (scores)
    nothing = IsNaN (weights)
    guarded = Where (nothing, none, weights)
    mean = MatMul (guarded, present_key)
    y = Mul (mean, scale)
}
"""


def decoder(low: str = "-inf", scale: float = 1.0, after: str = "") -> ir.Model:
    text = DECODER.replace("LOW", "-9e9" if low == "-inf" else low).replace("SCALE", str(scale))
    model = ir.from_onnx_text(HEAD + text)
    if low == "-inf":
        model.graph.initializers["low"].const_value = ir.tensor(np.float32(-np.inf), name="low")
    model.graph.inputs[1].shape = ir.Shape(["B", "P+S"])
    return model


def padded_on_the_left() -> Case:
    model = decoder()
    with Session(model, optimize=False) as session:
        cases = search_cases(model, lambda case: session.run(case.feeds), cover=True)
    return next(x for x in cases if x.side == "left")


def compared_on_the_left(verdict: Verdict) -> dict[str, int]:
    return {
        x.output: x.compared
        for name, diffs in verdict.cases.items()
        if "padded on the left" in name
        for x in diffs
    }


def test_what_is_new_is_padded_as_the_mask_over_all_says():
    left = padded_on_the_left()
    assert left.dims["P"] == 0
    assert left.valid == {"S": tuple(int(row.sum()) for row in left.feeds["mask"])}
    assert left.is_ragged


def test_rows_that_are_padding_are_not_compared_and_those_of_content_are():
    finite = decoder("-1e4")
    verdict = verify(decoder(), finite, safety="valid-rows")
    assert verdict.ok, verdict.reason or verdict.failed
    left = padded_on_the_left()
    content = 4 * sum(left.valid["S"])
    assert compared_on_the_left(verdict) == {"y": content, "present_key": content}
    assert not verify(decoder(), finite, safety="exact").ok
    assert not verify(decoder(), decoder("-1e4", 1.01), safety="valid-rows").ok


def test_an_axis_of_a_cache_and_what_is_new_is_told_from_its_sizes():
    seen = [((2, 7), {"B": 2, "P": 4, "S": 3}), ((1, 9), {"B": 1, "P": 1, "S": 8})]
    seen.append(((3, 5), {"B": 3, "P": 0, "S": 5}))
    dims = infer_dims_from_shapes(seen, {"S"})
    assert dims is not None
    assert dims[1].free_symbols() == {"P", "S"}
    assert infer_dims_from_shapes([*seen, ((2, 9), {"B": 2, "P": 4, "S": 4})], {"S"}) is None


@pytest.mark.parametrize(("gate", "ok"), [(HALF_GATE, True), (None, False)])
def test_float16_is_not_held_to_caches_larger_than_the_models_own(gate: object, ok: bool) -> None:
    """What is lost of a cache beyond 10 is no fault of float16's; of another pass it is."""
    before, after = decoder("-1e4"), decoder("-1e4")
    least = ir.node("Clip", [after.graph.inputs[2], *clamps(after)])
    concat = next(x for x in after.graph if x.op_type == "Concat")
    after.graph.insert_before(concat, least)
    concat.replace_input_with(0, least.outputs[0])
    verdict = verify(before, after, safety="valid-rows", tolerance=gate)
    assert verdict.ok is ok
    assert any("float16 is not held" in x for x in verdict.notes) is ok
    assert any("over 1e" in name for name in verdict.cases) is not ok


def clamps(model: ir.Model) -> list[ir.Value]:
    values = [
        ir.Value(name=name, const_value=ir.tensor(np.float32(x), name=name))
        for name, x in (("least", -10.0), ("most", 10.0))
    ]
    for value in values:
        model.graph.register_initializer(value)
    return values


def test_an_axis_of_one_element_is_no_batch() -> None:
    """Its valid length is known; in a batch it would be flattened into the rows."""
    content = ContentMasks(
        Signature(ir.from_onnx_text(HEAD + "m (float[T] x) => (float[T] y) { y = Neg (x) }"))
    )
    case = Case("one frame", {"T": 1}, {}, {"T": (1,)})
    mask = content.mask_for_dims([ir.SymbolicDim("T")], (1,), case)
    assert mask is not None
    assert mask.tolist() == [True]


def test_dims_that_are_inferred_are_not_read_off_shapes() -> None:
    """In cases whose batch and frames are as many each axis could be either."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 2] x, int64[N] to) => (float[B, T, 2] y, float[A, C] z)
        { y = Neg (x) z = Reshape (x, to) }"""
    content = ContentMasks(Signature(ir.from_onnx_text(text)))
    runs = [
        (
            Case(f"of {n}", {"B": n, "T": n, "N": 2}, {}, {"T": (n,)}),
            {"y": np.zeros((n, n, 2)), "z": np.zeros((n, 2 * n))},
        )
        for n in (2, 3, 5)
    ]
    content.learn_dims(runs)
    assert [str(x) for x in content.dims["y"] or ()] == ["B", "T", "2"]

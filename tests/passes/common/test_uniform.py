"""Which tensors hold one number, whatever moved or computed them."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.lookup import FoldView
from graphfix.passes.common.uniform import UniformTensors
from tests.passes.models import model


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("y = Identity (fives)", 5),
        ("y, z = Split <axis = 0, num_outputs = 2> (fives)", 5),
        ("y = ReverseSequence (fives, rows)", 5),
        ("y = DepthToSpace <blocksize = 2> (blocks)", 1.0),
        ("y = Compress (fives, kept)", None),
        ("y = Xor (yes, no)", True),
        ("y = Xor (yes, yes)", False),
        ("y = Not (yes)", False),
        ("y = Where (kept2, fives, fives)", None),
        ("y = Where (yes, fives, x)", 5),
        ("y = Dropout (fives)", None),
    ],
)
def test_uniform_number(steps: str, expected: float | None) -> None:
    m = model(
        f"""m (int64[2, 2] x, bool[2] kept, bool[2, 2] kept2, int64[2] rows, int64[2] size) =>
        (float y) <int64 five = {{5}}, int64[4] four = {{1, 4, 1, 1}}, bool t = {{1}}> {{
        fives = Expand (five, size) ones = ConstantOfShape <value = float[1] {{1.0}}> (four)
        blocks = Identity (ones) yes = Expand (t, size) no = Not (yes) {steps} }}"""
    )
    tensors = UniformTensors(FoldView(View(m)))
    number = tensors.uniform_number(m.graph[-1].outputs[0])
    assert number == expected
    assert type(number) is type(expected)

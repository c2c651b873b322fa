"""How much a model computes at given sizes, told from its shapes."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.feeds.case_search import search_cases
from graphfix.feeds.run_cost import RunCost
from graphfix.feeds.signature import Signature

# Weights of a shape, whatever is in them.
WEIGHT = "shape = Constant <value_ints = [{}]> ()  w = ConstantOfShape (shape)"
PRODUCTS = {
    "a Conv": ("[N, 6, 20]", f"{WEIGHT.format('8, 3, 5')}  y = Conv <group = 2> (x, w)", 16 * 120),
    "with a stride": (
        "[N, 6, 21]",
        f"{WEIGHT.format('8, 6, 5')}  y = Conv <strides = [4]> (x, w)",
        5 * 240,
    ),
    "turned round": (
        "[N, 6, 20]",
        f"{WEIGHT.format('6, 8, 5')}  y = ConvTranspose <strides = [2]> (x, w)",
        120 * 40,
    ),
    "a MatMul": ("[N, 6, 20]", f"{WEIGHT.format('20, 7')}  y = MatMul (x, w)", 6 * 20 * 7),
    "a Gemm": ("[N, 20]", f"{WEIGHT.format('20, 7')}  y = Gemm (x, w)", 20 * 7),
    "the other way": (
        "[20, N]",
        f"{WEIGHT.format('20, 7')}  y = Gemm <transA = 1> (x, w)",
        20 * 7,
    ),
    "not the other way": (
        "[N, 20]",
        f"{WEIGHT.format('20, 7')}  y = Gemm <transA = 0> (x, w)",
        20 * 7,
    ),
    "a FusedMatMul the other way": (
        "[20, N]",
        f"{WEIGHT.format('20, 7')}  y = com.microsoft.FusedMatMul <transA = 1> (x, w)",
        20 * 7,
    ),
    "whole numbers": (
        "[N, 6, 20]",
        f"{WEIGHT.format('20, 7')}  q = Cast <to = 3> (x)  v = Cast <to = 3> (w)"
        "  i = MatMulInteger (q, v)  y = Cast <to = 1> (i)",
        6 * 20 * 7,
    ),
    "an Einsum": (
        "[N, 6, 20]",
        f'{WEIGHT.format("20, 7")}  y = Einsum <equation = "nab, bc -> nac"> (x, w)',
        6 * 20 * 7,
    ),
    "an Einsum with dots": (
        "[N, 6, 20]",
        f'{WEIGHT.format("20, 7")}  y = Einsum <equation = "...b, bc -> ...c"> (x, w)',
        0,
    ),
    "an Einsum of dots": ("[N, 6, 20]", 'y = Einsum <equation = "...,..."> (x, x)', 0),
    "nothing of the kind": ("[N, 20]", "y = Relu (x)", 0),
    "a size that is not known": (
        "[N, 20]",
        "n = NonZero (x)  f = Cast <to = 1> (n)  t = Transpose (f)  y = MatMul (f, t)",
        0,
    ),
}


def model(dims: str, body: str) -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        f" m (float{dims} x) => (float y) {{ {body} }}"
    )


@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("rows", [1, 3])
def test_multiplications(case: str, rows: int) -> None:
    dims, body, each = PRODUCTS[case]
    signature = Signature(model(dims, body))
    groups = dict.fromkeys(
        [*([signature.batch] if signature.batch else []), *signature.times], rows
    )
    assert RunCost(signature).multiplications_at(groups) == rows * each


def rows_of(dims: str) -> list[int]:
    """The rows of each case, of a model of 26 milliards of multiplications a row, or a share."""
    made = model(dims, f"{WEIGHT.format('512, 64, 7, 7')}  y = Conv <pads = [3, 3, 3, 3]> (x, w)")
    return [case.dims["N"] for case in search_cases(made, lambda case: None, cover=True)]


def test_a_model_that_computes_much_gets_cases_of_few_rows() -> None:
    small, large = rows_of("[N, 64, 16, 16]"), rows_of("[N, 64, 128, 128]")
    assert max(small) == 9
    assert sum(small) >= 40
    assert large[:3] == [1, 2, 3]
    assert max(large) == 3
    assert sum(large) < 16
    assert len(large) > 6  # each way to fill has its row all the same


def test_it_says_which_cases_would_cost_too_much() -> None:
    made = model("[N, 64, 256, 256]", f"{WEIGHT.format('512, 64, 7, 7')}  y = Conv (x, w)")
    found = search_cases(made, lambda case: None, cover=True)
    assert found.left_out

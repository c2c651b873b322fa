"""convtranspose-2d: which attribute sets are repaired, which are left alone, that the sums stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import execute, opened, ops, refusals

HEAD = '<ir_version: 8, opset_import: ["" : {opset}{more}]>\n'


def model(attributes: str, *, opset: int = 17, group: int = 1, rank: int = 3, bias: bool = True,
          kernel: int = 4, more: str = "", domain: str = "") -> ir.Model:  # fmt: skip
    """A ConvTranspose from 4 to 6 channels; the weight is an input."""
    dims = "TUV"[: rank - 2]
    text = f"""m (float[B, 4, {", ".join(dims)}] x,
        float[4, {6 // group}, {", ".join([str(kernel)] * (rank - 2))}] w, float[6] b)
        => (float[{", ".join("IJKLM"[:rank])}] y)
        {{ [up] y = {domain}ConvTranspose <{attributes}> ({"x, w, b" if bias else "x, w"}) }}"""
    return ir.from_onnx_text(HEAD.format(opset=opset, more=more) + text)


def feeds(m: ir.Model, b: int = 2, t: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(t)
    shapes = {x.name: [{"B": b}.get(str(d), t) if not isinstance(d, int) else d for d in x.shape]
              for x in m.graph.inputs}  # fmt: skip
    # Small integers: their sums are exact, in whatever order a machine adds them.
    return {k: rng.integers(-8, 9, shape).astype(np.float32) for k, shape in shapes.items()}


def run(m: ir.Model, given: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, given)[0]


REPAIRED = {
    "stride": "strides = [2], output_padding = [1]",
    "pads": "strides = [2], pads = [1, 1], output_padding = [1]",
    "uneven pads": "strides = [3], pads = [2, 0], output_padding = [2]",
    "dilation": "strides = [2], dilations = [2], pads = [1, 1], output_padding = [1]",
    "output_shape": "strides = [2], output_shape = [13], output_padding = [1]",
    "kernel_shape": "strides = [2], kernel_shape = [4], output_padding = [1]",
    "no padding": 'strides = [2], auto_pad = "VALID", output_padding = [1]',
    "auto_pad with a length": 'strides = [2], auto_pad = "SAME_LOWER", output_shape = [10], '
    "output_padding = [1]",
}


@pytest.mark.parametrize("case", REPAIRED)
@pytest.mark.parametrize(
    ("opset", "group", "bias"), [(17, 1, True), (11, 2, False), (12, 1, True), (22, 2, True)]
)
def test_repairs(case: str, opset: int, group: int, bias: bool) -> None:
    attributes = f"{REPAIRED[case]}, group = {group}"
    before, after = (model(attributes, opset=opset, group=group, bias=bias) for _ in range(2))
    report = graphfix.run(after, "convtranspose-2d")
    assert ops(after) == ["Unsqueeze", "Unsqueeze", "ConvTranspose", "Squeeze"]
    assert report.passes[0].changes[0].at == "up"
    for b, t in ((1, 5), (2, 5), (1, 5)):
        given = feeds(before, b, t)
        np.testing.assert_allclose(run(after, given), run(before, given), atol=1e-5)


@pytest.mark.parametrize("t", [1, 2, 9, 40])
def test_every_length(t: int) -> None:
    before, after = (model(REPAIRED["pads"]) for _ in range(2))
    graphfix.run(after, "convtranspose-2d")
    given = feeds(before, 1, t)
    np.testing.assert_allclose(run(after, given), run(before, given), atol=1e-5)


def test_an_output_padding_of_0_is_not_written() -> None:
    before, after = (model("strides = [2], pads = [1, 1], output_padding = [0]") for _ in range(2))
    assert graphfix.run(after, "convtranspose-2d").changed
    (node,) = after.graph
    assert sorted(node.attributes) == ["pads", "strides"]
    assert node.name == "up"
    given = feeds(before)
    np.testing.assert_array_equal(run(after, given), run(before, given))


LEFT = {
    "no output_padding": ("strides = [2], pads = [1, 1]", 3, None),
    "no attributes": ("group = 1", 3, None),
    "output_shape alone": ("strides = [2], output_shape = [13]", 3, None),
    "dilation alone": ("dilations = [2]", 3, None),
    "VALID": ('strides = [2], auto_pad = "VALID"', 3, None),
    "auto_pad without stride": ('auto_pad = "SAME_UPPER"', 3, None),
    "auto_pad, length": ('auto_pad = "SAME_UPPER", strides = [2], output_shape = [10]', 3, None),
    "2-D": ("strides = [2, 2], output_padding = [1, 1]", 4, None),
    "2-D with 0": ("strides = [2, 2], output_padding = [0, 0]", 4, None),
    "3-D": ("strides = [2, 2, 2], output_padding = [1, 1, 1]", 5, None),
    "auto_pad with stride": ('auto_pad = "SAME_UPPER", strides = [2]', 3, "auto_pad=SAME"),
    "auto_pad with stride and output_padding": (
        'auto_pad = "SAME_LOWER", strides = [2], output_padding = [1]',
        3,
        "auto_pad=SAME",
    ),
    "output_padding without one": ("dilations = [2], output_padding = [1]", 3, "output_padding is"),
    "auto_pad in 2-D": ('auto_pad = "SAME_UPPER", strides = [1, 2]', 4, "auto_pad=SAME"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    attributes, rank, reason = LEFT[case]
    after = model(attributes, rank=rank)
    found = refusals(after, "convtranspose-2d")
    assert (found == []) if reason is None else found[0].startswith(reason)


def test_another_domain_is_left_alone() -> None:
    after = model(REPAIRED["pads"], more=', "my" : 1', domain="my.")
    assert not graphfix.run(after, "convtranspose-2d").changed


def test_attributes_that_a_call_decides_are_left_alone() -> None:
    text = """m (float[B, 4, T] x, float[4, 6, 4] w) => (float[B, 6, U] y)
        { y = f.up <more = [1]> (x, w) }
        <domain: "f", opset_import: ["" : 17]>
        up <more> (x, w) => (y)
        { y = ConvTranspose <strides = [2], output_padding: ints = @more> (x, w) }"""
    after = ir.from_onnx_text(HEAD.format(opset=17, more=', "f" : 1') + text)
    assert refusals(after, "convtranspose-2d")[0].startswith("its attributes are parameters")


@pytest.mark.parametrize(("opset", "repaired"), [(11, False), (13, False), (17, True)])
def test_a_function_of_another_opset_is_left_alone(opset: int, repaired: bool) -> None:
    """ONNX Runtime would take an Unsqueeze with axes for one of the model's opset."""
    text = f"""m (float[B, 4, T] x, float[4, 6, 4] w) => (float[B, 6, U] y) {{ y = f.up (x, w) }}
        <domain: "f", opset_import: ["" : {opset}]>
        up (x, w) => (y) {{ y = ConvTranspose <strides = [2], output_padding = [1]> (x, w) }}"""
    after = ir.from_onnx_text(HEAD.format(opset=17, more=', "f" : 1') + text)
    report = graphfix.run(after, "convtranspose-2d")
    assert bool(report.changed) == repaired
    assert repaired or f"is of opset {opset}" in report.passes[0].skips[0][1]
    assert opened(after)


def test_a_weight_is_never_copied_and_unsqueezed_once() -> None:
    text = """m (float[B, 4, T] x) => (float[B, 6, U] y, float[B, 6, V] z)
        <float[4, 6, 2] w = {%s}> {
            y = ConvTranspose <strides = [2], output_padding = [1]> (x, w)
            z = ConvTranspose <strides = [3], output_padding = [2]> (x, w)
        }"""
    text %= ", ".join(["1.0"] * 48)
    before, after = (ir.from_onnx_text(HEAD.format(opset=17, more="") + text) for _ in range(2))
    graphfix.run(after, "convtranspose-2d")
    assert sorted(x.const_value.size for x in after.graph.initializers.values()) == [1, 48]
    kernels = {n.inputs[1] for n in after.graph if n.op_type == "ConvTranspose"}
    assert len(kernels) == 1
    given = {"x": np.ones((1, 4, 5), np.float32)}
    np.testing.assert_array_equal(run(after, given), run(before, given))


@settings(max_examples=50, deadline=None)
@given(
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    padding=st.integers(0, 2),
    group=st.sampled_from([1, 2]),
    kernel=st.integers(1, 4),
    t=st.integers(1, 8),
)
def test_all_that_runs_before_runs_after(
    stride: int, dilation: int, pads: tuple[int, int], padding: int, group: int, kernel: int, t: int
) -> None:
    attributes = f"""strides = [{stride}], dilations = [{dilation}], pads = [{pads[0]}, {pads[1]}],
        output_padding = [{padding}], group = {group}"""
    before, after = (model(attributes, group=group, kernel=kernel) for _ in range(2))
    given = feeds(before, 1, t)
    try:
        want = run(before, given)
    except Exception:
        return
    assert graphfix.run(after, "convtranspose-2d").changed == (padding < stride)
    np.testing.assert_allclose(run(after, given), want, atol=1e-5)

"""The one axis that can be time, or what a user is asked where there is none, or several."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.errors import UsageError
from graphfix.facts.shapes import infer
from graphfix.lengths.dim_aliases import DimAliases
from graphfix.lengths.padded_axis import find_time_axis, parse_axes


def model(inputs: str, body: str = "y = Relu (x)") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m ({inputs}) => (y) {{ {body} }}'
    )


def find(inputs: str, body: str = "y = Relu (x)", length_input: str = "") -> str:
    """Return the axis as ``input.axis``."""
    m = model(inputs, body)
    shapes = infer(m, usual=True)
    length = next((x for x in m.graph.inputs if x.name == length_input), None)
    value, axis = find_time_axis(m, shapes, length, DimAliases(m, shapes))
    return f"{value.name}.{axis}"


def refusal(inputs: str, body: str = "y = Relu (x)") -> str:
    with pytest.raises(UsageError) as error:
        find(inputs, body)
    return str(error.value)


@pytest.mark.parametrize(
    ("inputs", "axis"),
    [
        ("float[B, T, 4] x", "x.1"),
        ("float[T, 4] x", "x.0"),
        ("float[B, T] x", "x.1"),
        ("float[1, 4, T] x", "x.2"),
        # Lengths of the batch, and what else is the batch's.
        ("float[B, T, 4] x, int64[B] n", "x.1"),
        ("float[B, T, 4] x, float[B, 8] speaker", "x.1"),
        # An image whose height is fixed is a line of text.
        ("float[B, 3, 48, W] x", "x.3"),
    ],
)
def test_the_only_axis_that_can_be_time(inputs: str, axis: str) -> None:
    assert find(inputs) == axis


def test_dims_that_the_graph_equates_are_one_axis() -> None:
    assert find("float[B, T, 4] x, float[B, S, 4] z", "y = Add (x, z)") == "x.1"


def test_the_length_input_is_no_candidate() -> None:
    assert find("float[B, T, 4] x, int64[B, S] mask", length_input="mask") == "x.1"
    assert "several dims may be time" in refusal("float[B, T, 4] x, int64[B, S] mask")


def test_nothing_may_vary() -> None:
    assert "every dim of every input is fixed" in refusal("float[1, 8, 4] x")


def test_only_the_batch_may_vary() -> None:
    message = refusal("float[B, 8, 4] x")
    assert "no dim besides the batch, x.0 (B), may vary (x.1 is 8, x.2 is 4)" in message
    assert message.endswith("name it: -p ilens-mask:axis=x.0")


def test_several_may_be_time() -> None:
    message = refusal("float[B, T, 4] x, int64[B, S] mask", "y = Relu (x)")
    assert "x.1 (T), mask.1 (S); if they are of one size, name them together" in message
    assert "-p ilens-mask:axis=x.1+mask.1" in message
    assert "name it: -p ilens-mask:axis=x.1 (T), -p ilens-mask:axis=mask.1 (S)" in message
    assert "if mask is 1 for what is valid and 0 behind it: " in message
    assert message.endswith("-p ilens-mask:axis=x.1:from=mask")


@pytest.mark.parametrize(
    ("partner", "body", "meaning"),
    [
        ("int64[B, S] attention", "y = Relu (x)", "is 1 for what is valid and 0 behind it"),
        ("float[B, S] the_mask", "y = Relu (x)", "is 1 for what is valid and 0 behind it"),
        ("float[B, S] curve", "y = Relu (x)", None),
        # Tokens are looked up.
        ("int64[B, S] ids", "e = Gather (x, ids) y = Relu (x)", None),
        ("int64[N] n", "y = Relu (x)", "is how much is valid of each row"),
        ("float[N] n", "y = Relu (x)", None),
    ],
)
def test_what_another_input_may_tell(partner: str, body: str, meaning: str | None) -> None:
    message = refusal(f"float[B, T, 4] x, {partner}", body)
    name = partner.split()[-1]
    assert (f"if {name} " in message) == (meaning is not None)
    assert meaning is None or f"if {name} {meaning}: " in message


def test_two_axes_of_one_input_are_not_named_together() -> None:
    message = refusal("float[B, T, F] x")
    assert "several dims may be time" in message
    assert "name them together" not in message


@pytest.mark.parametrize(
    ("dims", "reason"),
    [
        ("B, 3, 224, 224", "only the batch may vary, and rows of a batch are no time"),
        ("B, 224, 224, 3", "only the batch may vary"),
        ("B, 3, H, W", "both sides may vary.*fix-dims:H=48,ilens-mask:axis=x.3"),
        ("B, H, W, 1", "both sides may vary.*fix-dims:H=48,ilens-mask:axis=x.2"),
        ("3, H, W", "both sides may vary"),
    ],
)
def test_an_image_is_no_clip(dims: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"x is .*, as images are: {reason}"):
        find(f"float[{dims}] x")


def test_an_image_is_shown_as_the_model_names_it() -> None:
    assert "x is [B, 3, H, W], as images are" in refusal("float[B, 3, H, W] x")


def test_axes_are_read_as_they_are_named() -> None:
    m = model("float[B, T, 4] x, float[B, S] z")
    x, z = m.graph.inputs
    assert parse_axes(m, "x.1") == [(x, 1)]
    assert parse_axes(m, "x.-2+z.1") == [(x, 1), (z, 1)]


def test_a_name_with_a_plus_is_one_name() -> None:
    m = model("float[B, T, 4] x")
    m.graph.inputs[0].name = "a+b"
    assert parse_axes(m, "a+b.1") == [(m.graph.inputs[0], 1)]


@pytest.mark.parametrize(
    ("inputs", "advice"),
    [
        # A mask or lengths of the rows of another input.
        ("float[B, T, 4] x, int64[B, S] mask", "if mask is 1 for what is valid"),
        # No input tells of itself, and one of a single axis has no rows.
        ("int64[B, T, S] x, int64[B, U] mask", "if mask is 1 for what is valid"),
        ("float[B, T, S] mask", None),
        ("float[T] x, int64[S] lens", None),
    ],
)
def test_what_may_tell_the_lengths_of_rows(inputs: str, advice: str | None) -> None:
    message = refusal(inputs, "y = Relu (x)" if " x" in inputs else "y = Relu (mask)")
    assert ("from=" in message) == (advice is not None)
    assert (advice or "") in message

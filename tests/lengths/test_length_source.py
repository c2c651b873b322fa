"""Which axis is time, which the batch, and whose valid lengths are taken."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.errors import UsageError
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_source import LengthSource, find_length_source


def model(inputs: str, body: str = "y = Relu (x)", constants: str = "") -> ir.Model:
    values = f"<{constants}>" if constants else ""
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m ({inputs}) => (y) {values} {{ {body} }}'
    )


def parts(source: LengthSource) -> tuple[str, str, str | None, str]:
    return source.axis_spec, source.symbol, source.batch, source.kind


@pytest.mark.parametrize(
    ("inputs", "axis", "expected"),
    [
        ("float[B, T, 4] x", "", ("x.1", "T", "B", "lengths")),
        ("float[T, B, 4] x", "x.0", ("x.0", "T", "B", "lengths")),
        ("float[B, 4, T] x", "", ("x.2", "T", "B", "lengths")),
        ("float[B, 4, T] x", "x.-1", ("x.2", "T", "B", "lengths")),
        ("float[1, T, 4] x", "", ("x.1", "T", None, "lengths")),
        ("float[1, C, T] x", "x.2", ("x.2", "T", None, "lengths")),
        # A matrix with one symbolic dim is frames by features.
        ("float[T, 4] x", "", ("x.0", "T", None, "lengths")),
        ("float[2, 4, T] x", "", ("x.2", "T", None, "lengths")),
    ],
)
def test_the_axis_and_the_batch(
    inputs: str, axis: str, expected: tuple[str, str, str | None, str]
) -> None:
    assert parts(find_length_source(model(inputs), axis)) == expected


@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        ("int64[N] m", "lengths"),
        ("int64[N, S] m", "mask"),
        ("int64[N, 1, S] m", "mask"),
        ("int64[N, 1, 1, S] m", "mask"),
    ],
)
def test_a_length_input_has_the_names_of_what_it_counts(mask: str, kind: str) -> None:
    source = find_length_source(model(f"float[B, T, 4] x, {mask}"), "x.1", "m")
    assert source.kind == kind
    assert source.length_input is not None
    dims = [str(x) for x in source.shapes.dims(source.length_input) or () if x != 1]
    assert dims == (["B", "T"] if kind == "mask" else ["B"])
    assert source.symbols == {"B", "T"}


@pytest.mark.parametrize("mask", ["int64[1, S] m", "int64[1, 1, S] m", "int64[N, 1] m"])
def test_a_mask_may_be_of_one_row_or_frame(mask: str) -> None:
    source = find_length_source(model(f"float[B, T, 4] x, {mask}"), "x.1", "m")
    assert (source.kind, source.symbols) == ("mask", {"B", "T"})


def test_axes_named_together_are_of_one_size() -> None:
    m = model("float[B, T, 4] x, float[N, S, 2] z", "y = Relu (x) u = Relu (z)")
    assert find_length_source(m, "x.1").symbols == {"B", "T", "N", "S"}
    assert find_length_source(m, "x.1+z.1").symbols == {"B", "T"}


def test_names_that_the_graph_equates_are_one() -> None:
    m = model("float[B, T, 4] x, float[N, S, 4] z", "y = Add (x, z)")
    source = find_length_source(m)
    assert (source.axis_spec, source.symbols) == ("x.1", {"B", "T"})


def test_an_earlier_repair_says_it_again() -> None:
    m = model("float[B, T, 4] x, float[B, S, 4] z, int64[B] ilens", "y = Relu (x) u = Relu (z)")
    LengthInput("ilens", "x.1", "lengths").write_metadata(m)
    source = find_length_source(m)
    assert parts(source) == ("x.1", "T", "B", "lengths")
    assert source.length_input is m.graph.inputs[2]
    assert find_length_source(m, "z.1").axis_spec == "z.1"


@pytest.mark.parametrize(
    ("inputs", "axis", "source", "reason"),
    [
        ("float[B, T, 4] x", "x.2", "", "x.2 is fixed at 4; only an axis whose size may vary"),
        ("float[B, T, 4] x", "x", "", "axis=x names no axis; write INPUT.AXIS, as in audio.2"),
        ("float[B, T, 4] x", "x.a", "", "axis=x.a names no axis"),
        ("float[B, T, 4] x", "x.3", "", "input 'x' has 3 axes, there is no axis 3"),
        ("float[B, T, 4] x", "x.-4", "", "input 'x' has 3 axes, there is no axis -4"),
        ("float[B, T, 4] x", "z.1", "", "axis=z: the model has no such input; it has 'x'"),
        ("float[B, T, 4] x", "", "z", "from=z: the model has no such input; it has 'x'"),
        ("float[B, T, 4] x, int64[B, T, 2] m", "x.1", "m", "from=m: it has 3 dims that are not 1"),
    ],
)
def test_what_is_no_time(inputs: str, axis: str, source: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        find_length_source(model(inputs), axis, source)

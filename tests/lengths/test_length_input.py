"""The input of valid lengths, as the metadata of a model names it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.lengths.length_input import KEY, LengthInput


def model_with(text: str | None) -> ir.Model:
    header = '<ir_version: 8, opset_import: ["" : 17]> g'
    model = ir.from_onnx_text(f"{header} (float[B, T] x, int64[B] ilens) => (y) {{ y = Cos (x) }}")
    model.graph.inputs[0].name = "a.b"
    if text is not None:
        model.metadata_props[KEY] = text
    return model


def test_it_is_read_as_it_was_written() -> None:
    model = model_with(None)
    assert LengthInput.from_metadata(model) is None
    written = LengthInput("ilens", "a.b.1", "mask")
    written.write_metadata(model)
    assert LengthInput.from_metadata(model) == written
    assert written.padded_place == ("a.b", 1)
    assert hash(written) == hash(LengthInput("ilens", "a.b.1", "mask"))


def test_lengths_are_the_usual_kind() -> None:
    read = LengthInput.from_metadata(model_with('{"input": "ilens", "axis": "a.b.1"}'))
    assert read == LengthInput("ilens", "a.b.1", "lengths")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is malformed"),
        ("[]", "is malformed"),
        ('{"input": "ilens"}', "is malformed"),
        ('{"input": "ilens", "axis": 3}', "is malformed"),
        ('{"input": "ilens", "axis": "a.b.x"}', "is malformed"),
        ('{"input": "ilens", "axis": "a.b.1", "kind": "rows"}', "has kind 'rows', not lengths"),
        ('{"input": "other", "axis": "a.b.1"}', "names an input 'other'"),
        ('{"input": "ilens", "axis": "other.1"}', "names an input 'other'"),
    ],
)
def test_what_it_must_not_say(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        LengthInput.from_metadata(model_with(text))

"""Models that are written as text: what is read, and what is said of the rest."""

from __future__ import annotations

import codecs
import warnings
from pathlib import Path

import onnx
import pytest

from graphfix.errors import ModelError
from graphfix.model import io

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
m (float[N] x) => (float[N] y)
{
    y = Relu (x)
}
"""


def written(folder: Path, text: str | bytes, name: str = "m.onnxtxt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8], ids=["plain", "mark"])
def test_what_editors_write(tmp_path: Path, mark: bytes, end: str) -> None:
    path = written(tmp_path, mark + TEXT.replace("\n", end).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # onnx.load has one that says nothing to a user
        assert [x.op_type for x in io.load(path).graph] == ["Relu"]


@pytest.mark.parametrize(
    ("name", "form"), [("m.json", "json"), ("m.pbtxt", "textproto"), ("m.txtpb", "textproto")]
)
def test_other_texts_with_a_mark(tmp_path: Path, name: str, form: str) -> None:
    proto = onnx.parser.parse_model(TEXT)
    path = tmp_path / name
    onnx.save(proto, path, form)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert io.is_text(path)
    assert [x.op_type for x in io.load(path).graph] == ["Relu"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TEXT.replace("Relu (", "Re<lu ("),
            r"text: line 4, column \d+: y = Re<lu \(x\) Expected",
        ),
        (TEXT.replace("8", "9" * 40), "text: a number in it is too large$"),
        (TEXT.encode("utf-16"), "text: it is not in UTF-8$"),
        (TEXT + TEXT, r"text: line 6, column \d+: "),
        ("\n", r"text: line \d+, column \d+: Identifier expected"),
    ],
    ids=["syntax", "number", "UTF-16", "twice", "nothing"],
)
def test_where_it_is_wrong(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ModelError, match=said) as caught:
        io.load(path)
    assert str(caught.value).startswith(f"{path}: not a model as text: ")
    assert "b'" not in str(caught.value)


@pytest.mark.parametrize("said", ["stoll", "stoll: out of range", "stoll argument out of range"])
def test_a_number_that_is_too_large_on_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def raises(text: str) -> None:
        raise IndexError(said)

    monkeypatch.setattr(onnx.parser, "parse_model", raises)
    with pytest.raises(ModelError, match=r"text: a number in it is too large$"):
        io.load(written(tmp_path, TEXT))


def test_json_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model as text: "):
        io.load(written(tmp_path, "{", "m.json"))

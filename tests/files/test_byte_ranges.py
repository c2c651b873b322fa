"""Files that are written from ranges of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphfix.errors import ModelError, UsageError
from graphfix.files import byte_ranges
from graphfix.files.byte_ranges import FileStamp, refuse_overwrite, write_chunks
from graphfix.files.wire import Float16Span, Span, total_size


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(40)))
    return path


def test_bytes_and_ranges_follow_each_other(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    chunks = [b"ab", Span(str(source), 3, 4), memoryview(b"c"), Span(str(source), 0, 0), b""]
    write_chunks(target, chunks)
    assert target.read_bytes() == b"ab\x03\x04\x05\x06c"
    assert total_size(chunks) == 7


def test_long_ranges_come_in_pieces(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_ranges, "_BUFFER", 7)
    monkeypatch.setattr(byte_ranges, "PIECE", 4)
    target = tmp_path / "target"
    write_chunks(target, [Span(str(source), 1, 39)])
    assert target.read_bytes() == source.read_bytes()[1:]
    wide = np.array([0.1, 1e9, -2, 3, 4, 5, 6], np.float32)
    source.write_bytes(b"\x00" * 8 + wide.tobytes())
    write_chunks(target, [Float16Span(str(source), 8, 14), b"end"])
    with np.errstate(over="ignore"):
        assert target.read_bytes() == wide.astype(np.float16).tobytes() + b"end"


@pytest.mark.parametrize("kind", [Span, Float16Span])
def test_a_range_that_is_not_there(source: Path, tmp_path: Path, kind: type[Span]) -> None:
    span = kind(str(source), 32, 8 if kind is Span else 4)
    write_chunks(tmp_path / "target", [span])
    with pytest.raises(ModelError, match="ends before byte 44"):
        write_chunks(tmp_path / "target", [kind(str(source), 36, span.length)])


def test_a_stamp_changes_with_the_file(source: Path) -> None:
    stamp = FileStamp.of_file(source)
    assert stamp is not None
    assert stamp == FileStamp.of_file(source)
    assert stamp.size == 40
    source.write_bytes(b"x")
    assert stamp != FileStamp.of_file(source)
    assert FileStamp.of_file(source.with_name("none")) is None


def test_no_input_is_overwritten(source: Path, tmp_path: Path) -> None:
    weights, other = tmp_path / "weights", tmp_path / "other"
    weights.write_bytes(b"w")
    refuse_overwrite([source, weights], other, [None])
    other.write_bytes(b"o")
    refuse_overwrite([source, weights], other, [None, weights])
    with pytest.raises(UsageError, match="is the input itself"):
        refuse_overwrite([source, weights], source)
    with pytest.raises(UsageError, match="holds weights of the input"):
        refuse_overwrite([source, weights], tmp_path / "." / "weights")
    with pytest.raises(UsageError, match="is read for this work"):
        refuse_overwrite([source], other, [None, other])

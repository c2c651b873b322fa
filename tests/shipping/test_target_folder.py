"""Which folder may be replaced by what is shipped."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from graphfix.errors import UsageError
from graphfix.shipped.manifest import NAME, FileRecord
from graphfix.shipping.target_folder import require_replaceable
from tests.shipping.test_result import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "m.onnx"
    path.write_bytes(b"")
    return path


def shipped_folder(folder: Path) -> Path:
    folder.mkdir()
    files = (*MANIFEST.files, FileRecord("m.data", 0, 64 * "0"))
    (folder / NAME).write_text(replace(MANIFEST, files=files).to_text(), encoding="utf-8")
    for name in ("m.8.onnx", "m.data", "report.html"):
        (folder / name).write_bytes(b"")
    return folder


def test_a_new_folder_and_an_empty_one(source: Path, tmp_path: Path) -> None:
    require_replaceable(source, tmp_path / "new" / "deep")
    (tmp_path / "empty").mkdir()
    require_replaceable(source, tmp_path / "empty")


def test_a_folder_that_was_shipped(source: Path, tmp_path: Path) -> None:
    folder = shipped_folder(tmp_path / "out")
    require_replaceable(source, folder)
    for name in "abcd":
        (folder / name).write_bytes(b"")
    with pytest.raises(UsageError, match="holds a, b, c, which 'graphfix ship' did not make"):
        require_replaceable(source, folder)


def test_a_folder_of_an_earlier_schema(source: Path, tmp_path: Path) -> None:
    folder = shipped_folder(tmp_path / "out")
    earlier = {
        "schema": 1,
        "containers": [{"file": "m.8.onnx"}],
        "weights": ["m.data"],
        "stream": {"opening": {"container": {"file": "m.first.onnx"}}},
    }
    (folder / NAME).write_text(json.dumps(earlier), encoding="utf-8")
    (folder / "m.first.onnx").write_bytes(b"")
    require_replaceable(source, folder)
    (folder / NAME).write_text('{"schema": 1}', encoding="utf-8")
    with pytest.raises(UsageError, match="'graphfix ship' did not make it"):
        require_replaceable(source, folder)


def test_a_folder_that_holds_the_model(tmp_path: Path) -> None:
    folder = shipped_folder(tmp_path / "out")
    with pytest.raises(UsageError, match="holds the model itself; name another folder"):
        require_replaceable(folder / "m.8.onnx", folder)


def test_what_is_no_folder_of_ours(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a file; name a folder"):
        require_replaceable(source, source)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_bytes(b"")
    with pytest.raises(UsageError, match="is not empty, and 'graphfix ship' did not make it"):
        require_replaceable(source, tmp_path / "other")


def test_names_are_text(source: Path, tmp_path: Path) -> None:
    for path, folder in ((source.with_name("m\udcff"), tmp_path), (source, tmp_path / "o\udcff")):
        with pytest.raises(UsageError, match="the name is not in UTF-8"):
            require_replaceable(path, folder)


def test_a_folder_that_cannot_be_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    with pytest.raises(UsageError, match="is read-only; name a folder elsewhere"):
        require_replaceable(source, tmp_path / "new" / "deep")
    assert asked == [(tmp_path, os.W_OK)]

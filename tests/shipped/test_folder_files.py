"""The files of a folder lie in it, and are those that were shipped."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

import graphfix
from graphfix.errors import ModelError
from graphfix.shipped.folder_files import open_folder
from graphfix.shipped.manifest import NAME

if TYPE_CHECKING:
    from pathlib import Path

FEEDS = {"x": np.ones((1, 4, 5), np.float32), "language": np.array([2])}


@pytest.fixture
def folder(mean: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(mean[1], tmp_path / "out")


def model_in(folder: Path) -> Path:
    return folder / json.loads((folder / NAME).read_text(encoding="utf-8"))["containers"][0]["file"]


def test_a_file_with_a_changed_byte(folder: Path) -> None:
    path = model_in(folder)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"has the SHA-256 .*: it was changed; copy the folder"):
        graphfix.Session(folder)
    graphfix.Session(folder, check_files=False)


@pytest.mark.parametrize("check_files", [True, False])
def test_a_file_that_was_copied_in_part(folder: Path, check_files: bool) -> None:
    path = model_in(folder)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"has [\d,]+ bytes, and [\d,]+ by graphfix.json"):
        graphfix.Session(folder, check_files=check_files)


@pytest.mark.parametrize("check_files", [True, False])
def test_a_file_that_is_missing(folder: Path, check_files: bool) -> None:
    model_in(folder).unlink()
    with pytest.raises(ModelError, match=r"cannot be read: .*with all of its files"):
        graphfix.Session(folder, check_files=check_files)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", [NAME, ""])
def test_a_file_that_is_a_link(folder: Path, name: str, inside: bool) -> None:
    path = folder / name if name else model_in(folder)
    target = path.rename((folder if inside else folder.parent) / "elsewhere")
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("no links may be made here")
    with pytest.raises(ModelError, match="is a link, which may lead out of the folder; copy what"):
        open_folder(folder, check_hashes=False)


def test_a_folder_that_is_a_link(folder: Path, tmp_path: Path) -> None:
    try:
        (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    except OSError:
        pytest.skip("no links may be made here")
    assert len(graphfix.Session(tmp_path / "link").run(None, FEEDS)) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    path = model_in(folder)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ModelError, match="is no file; ship the model again"):
        graphfix.Session(folder)


def test_a_folder_inside_is_no_file(folder: Path) -> None:
    path = model_in(folder)
    path.unlink()
    path.mkdir()
    with pytest.raises(ModelError, match="is no file; ship the model again"):
        graphfix.Session(folder)

"""Folders that are written whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from graphfix.errors import ModelError
from graphfix.files import atomic_folder
from graphfix.files.atomic_folder import draft_folder


def write(path: Path, text: str = "new", *, keep: bool = True) -> None:
    with draft_folder(path) as draft:
        assert draft.path.is_dir()
        assert draft.path != path
        (draft.path / "file").write_text(text)
        if keep:
            draft.keep()


def names(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir() if not x.name.endswith(".lock"))


def test_a_folder_appears_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path / "out")
    assert (tmp_path / "out" / "file").read_text() == "new"
    assert names(tmp_path) == ["out"]
    if sys.platform != "win32":
        assert (tmp_path / "out").stat().st_mode & 0o700 == 0o700


def test_an_earlier_folder_is_replaced(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "more").write_text("old")
    write(tmp_path / "out")
    assert names(tmp_path / "out") == ["file"]
    assert (tmp_path / "out" / "file").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_what_is_not_kept_vanishes_with_the_folders_around_it(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    write(tmp_path / "out", keep=False)
    assert (tmp_path / "out" / "file").read_text() == "old"
    write(tmp_path / "a" / "b" / "out", keep=False)
    assert names(tmp_path) == ["out"]
    write(tmp_path / "a" / "b" / "out")
    assert (tmp_path / "a" / "b" / "out" / "file").read_text() == "new"


def test_an_error_leaves_everything_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")

    def fail() -> None:
        with draft_folder(tmp_path / "out") as draft:
            (draft.path / "file").write_text("new")
            draft.keep()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (tmp_path / "out" / "file").read_text() == "old"
    assert names(tmp_path) == ["out"]
    with pytest.raises(KeyError), draft_folder(tmp_path / "a" / "out"):
        raise KeyError
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("committed", [True, False])
def test_an_interrupt_says_whether_the_folder_is_there(
    committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"

    def interrupt(folder: Path) -> None:
        if (folder == tmp_path.resolve()) == committed:
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic_folder, "flush_to_disk", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        write(path)
    assert caught.value.args == ((str(path),) if committed else ())
    assert path.exists() == committed


def test_a_disk_that_is_full_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_folder, "flush_to_disk", fail)
    with pytest.raises(ModelError, match="out"):
        write(tmp_path / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize("has_earlier", [True, False])
def test_a_folder_that_is_in_use_stays(
    has_earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    if has_earlier:
        write(path, "old")
    rename = atomic_folder.rename_path

    def refuse(old: Path, new: Path) -> Any:
        if new == path.resolve() and "new" in old.name:
            raise OSError(13, "in use")
        return rename(old, new)

    monkeypatch.setattr(atomic_folder, "rename_path", refuse)
    with pytest.raises(ModelError, match="out: cannot be replaced: in use; close what uses it"):
        write(path)
    assert path.exists() == has_earlier
    if has_earlier:
        assert (path / "file").read_text() == "old"
    assert names(tmp_path) == ["out"] * has_earlier

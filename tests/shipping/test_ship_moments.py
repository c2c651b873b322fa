"""A shipped folder that is shipped again while somebody uses it, or while the process dies."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from graphfix.errors import ModelError
from graphfix.files import atomic_file, atomic_folder, leftovers
from graphfix.shipped.manifest import NAME
from graphfix.shipped.session import Session

Pair = tuple[Path, Path]
X = np.zeros((1, 4, 5), np.float32)
FEEDS = {"x": X, "language": np.array([1])}


def put(made: Path, folder: Path, more: str = "") -> None:
    """Give a copy of what was shipped the name ``folder``."""
    with atomic_folder.draft_folder(folder) as draft:
        shutil.copytree(made, draft.path, dirs_exist_ok=True)
        text = (made / NAME).read_text(encoding="utf-8")
        atomic_file.write_text(draft.path / NAME, text + more)
        draft.keep()


def again(made: Path, folder: Path) -> None:
    """The same with a manifest that is another."""
    put(made, folder)
    text = (folder / NAME).read_text(encoding="utf-8")
    atomic_file.write_text(folder / NAME, text.replace('"rate": null', '"rate": 7.0'))


def test_a_session_says_that_its_folder_is_another_now(mean: Pair, tmp_path: Path) -> None:
    put(mean[1], tmp_path / "out")
    session = Session(tmp_path / "out", ["CPUExecutionProvider"])
    short = session.run(None, FEEDS)
    again(mean[1], tmp_path / "out")
    assert np.array_equal(session.run(None, FEEDS)[0], short[0])  # which was made before
    long = {**FEEDS, "x": np.zeros((1, 4, 15), np.float32)}
    for _ in range(2):
        with pytest.raises(ModelError, match="was shipped again since this session was made"):
            session.run(None, long)
    assert Session(tmp_path / "out", ["CPUExecutionProvider"]).run(None, long)


def test_two_writers_at_once(mean: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(mean[1], out)
    errors = []

    def write() -> None:
        for _ in range(5):
            try:
                put(mean[1], out)
            except ModelError as error:
                errors.append(str(error))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert all("cannot be replaced" in x for x in errors)
    put(mean[1], out)
    assert [x.name for x in tmp_path.iterdir()] == ["out"]
    Session(out, ["CPUExecutionProvider"]).run(None, FEEDS)


def test_a_folder_that_was_put_aside_is_put_back(mean: Pair, tmp_path: Path) -> None:
    """As it is when the process dies between the two renames."""
    out = tmp_path / "out"
    put(mean[1], out)
    (tmp_path / ".graphfix.0123456789abcdef.lock").touch()
    out.rename(tmp_path / ".out.0123456789abcdef.old")
    (tmp_path / ".out.0123456789abcdef.new").mkdir()
    leftovers.sweep_leftovers(tmp_path)
    assert [x.name for x in tmp_path.iterdir()] == ["out"]
    Session(out, ["CPUExecutionProvider"]).run(None, FEEDS)


def test_a_link_to_a_folder_stays_one(mean: Pair, tmp_path: Path, symlink: object) -> None:
    put(mean[1], tmp_path / "real")
    symlink(tmp_path / "link", tmp_path / "real")  # type: ignore[operator]
    put(mean[1], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(x.name for x in tmp_path.iterdir()) == ["link", "real"]


def test_folders_around_it_go_with_it(tmp_path: Path) -> None:
    with atomic_folder.draft_folder(tmp_path / "a" / "b" / "out"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())

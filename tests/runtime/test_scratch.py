"""Temporary folders: each goes, with its process or with a later one, and no other does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphfix.errors import UsageError
from graphfix.files import file_lock
from graphfix.runtime import scratch
from graphfix.runtime.scratch import ScratchFolder

posix = pytest.mark.skipif(sys.platform == "win32", reason="owners and links as POSIX has them")

# One that is killed with a folder in its hands.
DIES = """
import os, sys
from graphfix.runtime.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "model.onnx").write_bytes(b"some gigabytes")
(folder.path / "inner").mkdir()
(folder.path / "inner" / "file").touch()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_swept", set())
    return tmp_path


@pytest.mark.parametrize(("system", "variable"), [("nt", "TEMP"), ("posix", "TMPDIR")])
def test_a_folder_that_is_full_is_named_with_what_names_another(
    system: str, variable: str, around: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "os", SimpleNamespace(name=system))
    with (
        pytest.raises(UsageError, match=f"No space left; .* in {variable}$") as caught,
        scratch.scratch_errors(),
    ):
        raise OSError(28, "No space left")
    assert str(caught.value).startswith(f"{around}: cannot be written")


def begun(around: Path) -> tuple[subprocess.Popen[str], Path]:
    names = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(around))
    process = subprocess.Popen(
        [sys.executable, "-c", DIES],
        env={**os.environ, **names},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(around: Path) -> Path:
    process, path = begun(around)
    process.kill()
    process.communicate()
    assert (path / "inner" / "file").exists()
    return path


def aged(path: Path) -> Path:
    then = time.time() - 1000
    os.utime(path / ".held", (then, then))
    return path


def test_it_goes_when_it_is_closed_and_with_its_process(around: Path) -> None:
    with ScratchFolder() as folder:
        (folder.path / "file").touch()
    left = ScratchFolder()
    (left.path / "inner").mkdir()
    del left
    process, path = begun(around)
    process.communicate()
    assert process.returncode == 0
    assert not path.exists()
    assert not list(around.iterdir())


def test_what_the_killed_have_left_goes_with_the_next(around: Path) -> None:
    first, second = aged(killed(around)), aged(killed(around))
    with ScratchFolder():
        assert not first.exists()
        assert not second.exists()


def test_what_is_alive_or_new_stays(around: Path) -> None:
    process, path = begun(around)
    try:
        aged(path)
        new = killed(around)
        scratch.remove_stale_folders(around)
        assert (path / "inner" / "file").exists()
        assert (new / "inner" / "file").exists()
    finally:
        process.communicate()
    scratch.remove_stale_folders(around)
    assert not path.exists()


def test_what_is_not_ours_stays(around: Path) -> None:
    other = aged(killed(around))
    renamed = other.rename(around / "graphfix-of-a-user")
    plain = around / "graphfix-12345678"
    plain.mkdir()
    (plain / "notes").touch()
    file = around / "graphfix-abcdefgh"
    file.touch()
    scratch.remove_stale_folders(around)
    assert all(x.exists() for x in (renamed / "inner" / "file", plain / "notes", file))


@posix
def test_what_is_another_user_s_stays(around: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = aged(killed(around))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    scratch.remove_stale_folders(around)
    assert (path / "inner" / "file").exists()


@posix
def test_a_folder_into_which_others_may_write_stays(around: Path) -> None:
    path = aged(killed(around))
    path.chmod(0o777)
    scratch.remove_stale_folders(around)
    assert (path / "inner" / "file").exists()


@posix
def test_no_link_is_followed(around: Path) -> None:
    mine = around / "mine"
    mine.mkdir()
    (mine / "kept").touch()
    path = aged(killed(around))
    (path / "link").symlink_to(mine)
    (path / "inner" / "link").symlink_to(mine)
    (around / "graphfix-linked_1").symlink_to(mine)
    held = aged(killed(around))
    (held / ".held").unlink()
    (held / ".held").symlink_to(mine / "kept")
    os.utime(held / ".held", (1, 1), follow_symlinks=False)
    scratch.remove_stale_folders(around)
    assert not path.exists()
    assert held.exists()
    assert (mine / "kept").exists()


def junction(at: Path, target: Path) -> None:
    """What leads to another folder on Windows, which anybody may make, as `mklink /J` does."""
    if sys.platform != "win32":
        pytest.skip("junctions are of Windows")
    import _winapi

    try:
        _winapi.CreateJunction(str(target), str(at))
    except OSError as error:
        pytest.skip(f"no junctions here: {error}")


def test_no_junction_is_followed(around: Path) -> None:
    mine = around / "mine"
    mine.mkdir()
    (mine / ".held").touch()
    aged(mine)
    (mine / "kept").touch()
    (mine / "kept").chmod(0o444)
    path = aged(killed(around))
    junction(path / "junction", mine)
    junction(path / "inner" / "junction", mine)
    junction(around / "graphfix-linked_1", mine)
    scratch.remove_stale_folders(around)
    assert not path.exists()
    assert sorted(x.name for x in mine.iterdir()) == [".held", "kept"]
    assert not os.access(mine / "kept", os.W_OK)


def test_what_leads_elsewhere_is_not_gone_into(
    around: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no junctions can be made: a folder that is said to be one."""
    path = aged(killed(around))
    with monkeypatch.context() as patch:
        patch.setattr(scratch, "is_link", lambda x: x == path)
        scratch.remove_stale_folders(around)
    monkeypatch.setattr(file_lock, "is_link", lambda x: x == path / "inner")
    scratch.remove_stale_folders(around)
    assert (path / "inner" / "file").exists()


@pytest.mark.skipif(sys.platform != "win32", reason="what is open can be removed elsewhere")
def test_what_is_in_use_goes_later(around: Path) -> None:
    folder = ScratchFolder()
    with (folder.path / "file").open("w"):
        folder.close()
        assert folder.path.exists()
    again = ScratchFolder()
    with (again.path / "file").open("w"):
        again.close()
    again.close()
    assert not again.path.exists()
    aged(folder.path)
    scratch.remove_stale_folders(around)
    assert not folder.path.exists()


def test_it_is_looked_for_once(around: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[Path] = []
    monkeypatch.setattr(scratch, "remove_stale_folders", swept.append)
    ScratchFolder().close()
    ScratchFolder().close()
    assert swept == [around]

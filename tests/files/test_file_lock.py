"""Locks that one process has at a time; what Windows refuses for a moment, or for good."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphfix.files import file_lock

INSIDE = """
import sys
from pathlib import Path
from graphfix.files import file_lock
lock = file_lock.acquire_lock(Path(sys.argv[1]))
print("inside", flush=True)
sys.stdin.read()
"""


def is_taken(path: Path) -> bool:
    lock = file_lock.acquire_lock(path)
    if lock is not None:
        file_lock.release_lock(lock, remove=True)
        assert not path.exists()
    return lock is None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_takes_no_files_is_told() -> None:
    with pytest.raises(FileNotFoundError, match="No such file"):
        file_lock.acquire_lock(Path("/proc/lock"))


@pytest.mark.parametrize("ends", ["by itself", "by force"])
def test_a_lock_goes_with_its_process(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "lock"
    assert not is_taken(path)
    with subprocess.Popen(
        [sys.executable, "-c", INSIDE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"inside"
        assert is_taken(path)
        assert not is_taken(tmp_path / "another")
        if ends == "by force":
            other.kill()
        other.communicate()
    assert not is_taken(path)


def test_what_is_looked_into_for_a_moment_gets_its_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "_SCAN", 60.0)
    (tmp_path / "new").write_text("new", encoding="utf-8")
    target = tmp_path / "name"
    target.write_text("old", encoding="utf-8")
    looks = (tmp_path / "new").open("rb")
    timer = threading.Timer(0.2, looks.close)
    timer.start()
    file_lock.rename_path(tmp_path / "new", target)
    timer.join()
    assert target.read_text(encoding="utf-8") == "new"


@pytest.mark.skipif(sys.platform != "win32", reason="an open file may be replaced elsewhere")
def test_what_stays_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "_SCAN", 0.1)
    path = tmp_path / "new"
    with path.open("wb"), pytest.raises(PermissionError):
        file_lock.rename_path(path, tmp_path / "name")
    assert path.exists()


def test_what_is_read_only_is_removed_with_its_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "old" / name).mkdir(parents=True)
        (tmp_path / "old" / name / "file").write_bytes(b"")
        (tmp_path / "old" / name / "file").chmod(0o444)
    assert file_lock.remove_file(tmp_path / "old" / "a" / "file")
    assert file_lock.remove_folder(tmp_path / "old")
    assert not (tmp_path / "old").exists()

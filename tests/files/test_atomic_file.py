"""Whoever writes, reads or dies meanwhile: a model's name stands for the old pair or the new."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest

import graphfix
from graphfix.errors import ModelError, UsageError
from graphfix.files import atomic_file, atomic_folder, io, leftovers
from tests.files.heavy import SIZE, data_of, make

if TYPE_CHECKING:
    from collections.abc import Callable

    from filelock import BaseFileLock

posix = pytest.mark.skipif(sys.platform == "win32", reason="forks; Windows has none")

# Each is a process of its own: what happens to it must not happen to the tests.
WRITER = """
import os, sys
from graphfix.files import atomic_file, io

atomic_file.GRACE = float(os.environ.get("GRACE", "0"))

def write(source, target):
    model = io.load(source)
    model.doc_string = "edited"
    io.save(model, target, external_data="separate")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "a.onnx", 1.0)
    make(tmp_path / "b.onnx", 2.0)
    (tmp_path / "out").mkdir()
    return tmp_path


def added(path: Path) -> set[float]:
    """What the model at ``path`` adds, as ONNX Runtime sees it."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {"x": np.zeros(SIZE, np.float32)})
    return {float(x) for x in np.unique(out)}


def listing(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir())


def write(source: Path, target: Path) -> None:
    model = io.load(source)
    model.doc_string = "edited"
    io.save(model, target, external_data="separate")


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file, "GRACE", 0.0)


KILLER = (
    WRITER
    + """
folder, n = sys.argv[1], 0
target = os.path.join(folder, "out", "o.onnx")

def killed_at(n):
    left = n
    def hook(event, arguments):
        nonlocal left
        if any(str(x).startswith(folder) for x in arguments):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), 9)
    return hook

while True:
    child = os.fork()
    if not child:
        sys.addaudithook(killed_at(n))
        write(os.path.join(folder, "b.onnx"), target)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(n, code, flush=True)
    if input() == "stop" or code == 0:
        break
    n += 1
"""
)


@posix
def test_killed_at_each_step(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    seen = set()
    with subprocess.Popen(
        [sys.executable, "-c", KILLER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        code = -9
        while code:
            n, code = map(int, process.stdout.readline().split())
            assert code in (0, -9)
            now = added(target)
            assert now in ({1.0}, {2.0}), f"killed at step {n}"
            seen |= now
            write(folder / "a.onnx", target)  # sweeps what the killed one has left
            assert added(target) == {1.0}
            assert listing(target.parent) == sorted(["o.onnx", *data_of(target)])
            process.stdin.write("go\n")
            process.stdin.flush()
    assert n > 10
    assert seen == {1.0, 2.0}  # some were killed before, and some after the model had its name


@posix
def test_two_writers_and_readers(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    loop = f"{WRITER}\nfor _ in range(3): write(sys.argv[1], sys.argv[2])"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", loop, str(folder / name), str(target)],
            # A reader on a busy machine may need so long between a model and its weights.
            env={**os.environ, "GRACE": "2"},
        )
        for name in ("a.onnx", "b.onnx")
    ]
    wrong: list[object] = []
    count = 0

    def read() -> None:
        nonlocal count
        while any(x.poll() is None for x in writers):
            try:
                values = {float(x) for x in np.unique(_weight(target, count))}
                if values not in ({1.0}, {2.0}):
                    wrong.append(values)
            except Exception as error:
                wrong.append(error)
            count += 1

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [x.wait() for x in writers] == [0, 0]
    assert not wrong
    assert count > 10
    assert added(target) in ({1.0}, {2.0})
    assert listing(target.parent) == sorted(["o.onnx", *data_of(target)])


@posix
def test_weights_replaced_while_their_write_waits_stay_for_readers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    second = threading.Thread(target=write, args=(folder / "a.onnx", target))
    waits, ends = threading.Event(), threading.Event()
    calls: list[bool] = []

    def sleep(seconds: float) -> None:
        if threading.current_thread() is second:
            waits.set()
            assert ends.wait(60)
        elif not calls:
            calls.append(True)
            first.extend(data_of(target))
            second.start()
            assert waits.wait(60)  # the second has replaced what the first has written
        else:
            calls.append(seconds == atomic_file.GRACE and first[0] in listing(target.parent))

    first: list[str] = []
    monkeypatch.setattr(atomic_file.time, "sleep", sleep)
    write(folder / "b.onnx", target)
    ends.set()
    second.join()
    assert calls == [True, True]
    assert added(target) == {1.0}
    assert listing(target.parent) == sorted(["o.onnx", *data_of(target)])


def test_weights_go_where_a_lock_file_goes_with_its_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where the next sweep sees no token in a name of a lock file."""
    release = atomic_file.release_lock

    def released(lock: BaseFileLock, *, remove: bool) -> None:
        release(lock, remove=remove)
        Path(lock.lock_file).unlink(missing_ok=True)

    monkeypatch.setattr(atomic_file, "release_lock", released)
    target = folder / "out" / "o.onnx"
    for name in ("a.onnx", "b.onnx"):
        write(folder / name, target)
    assert listing(target.parent) == sorted(["o.onnx", *data_of(target)])


def _weight(path: Path, turn: int) -> np.ndarray:
    if turn % 2:
        return onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    return graphfix.load(path).graph.initializers["w"].const_value.numpy()


FULL = (
    WRITER
    + """
import resource
from graphfix.errors import ModelError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    write(sys.argv[1], sys.argv[2])
except ModelError as error:
    print(error)
"""
)


@posix
@pytest.mark.parametrize("room", [0, 100, 4096, 100_000])
def test_a_full_disk_leaves_the_old_pair(folder: Path, room: int) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    before = listing(target.parent)
    ran = subprocess.run(
        [sys.executable, "-c", FULL, folder / "b.onnx", target, str(room)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "cannot be written: File too large; free some space" in ran.stdout
    assert listing(target.parent) == before
    assert added(target) == {1.0}


def test_weights_that_another_model_refers_to_stay(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    kept = target.with_name("production.onnx")
    kept.write_bytes(target.read_bytes())
    write(folder / "b.onnx", target)
    assert added(kept) == {1.0}
    assert added(target) == {2.0}


def test_weights_whose_model_was_moved_away_stay(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    target.rename(folder / "moved.onnx")
    (data,) = data_of(folder / "moved.onnx")
    write(folder / "b.onnx", target)
    assert data in listing(target.parent)


def test_weights_that_nobody_wants_go_with_the_model(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    io.save(io.load(folder / "b.onnx"), target)  # with its weights inside
    assert listing(target.parent) == ["o.onnx"]


def test_a_draft_of_a_living_process_is_not_swept_away(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    script = f"""{WRITER}
with io.draft_model(io.load(sys.argv[1]), sys.argv[2], external_data="separate") as draft:
    print("there", flush=True)
    input()
    draft.keep()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder / "a.onnx"), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        there = listing(target.parent)
        assert len(there) == 3
        write(folder / "b.onnx", target.with_name("other.onnx"))
        assert set(there) < set(listing(target.parent))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait() == 0
    assert added(target) == {1.0}


def test_what_a_dead_process_left_is_swept_away_and_what_is_not_ours_stays(folder: Path) -> None:
    out, token = folder / "out", "0123456789abcdef"
    (out / f".o.onnx.{token}.part").write_bytes(b"half")
    (out / f"o.onnx.{token}.data").write_bytes(b"half")
    others = [".o.part", "o.onnx.20240101.data", f"o.onnx.{token[::-1]}.data"]
    for name in others:
        (out / name).write_bytes(b"mine")
    io.save(io.load(folder / "a.onnx"), out / "o.onnx")
    assert listing(out) == sorted([*others, "o.onnx"])


@pytest.mark.parametrize("external_data", ["auto", "separate"])
def test_a_link_of_the_users_is_followed(
    folder: Path, external_data: str, symlink: Callable[[Path, Path], None]
) -> None:
    real, link = folder / "out" / "real.onnx", folder / "link.onnx"
    symlink(link, real)
    io.save(io.load(folder / "a.onnx"), link, external_data=external_data)
    assert link.is_symlink()
    assert added(real) == {1.0}
    if external_data == "auto":  # ONNX Runtime looks for weights beside the link
        assert added(link) == {1.0}


@posix
def test_what_is_no_file_is_not_replaced(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    loop = folder / "loop"
    loop.symlink_to(loop)
    model = io.load(folder / "a.onnx")
    for path, says in ((pipe, "device or a pipe"), (loop, "link"), (Path(), "no name of a file")):
        with pytest.raises(ModelError, match=says):
            io.save(model, path)
    assert pipe.is_fifo()
    with pytest.raises(ModelError, match="is a device or a pipe"):
        io.load(pipe)


def test_a_read_only_file_is_not_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder / "out" / "o.onnx"
    target.write_bytes(b"mine")
    target.chmod(0o400)
    if sys.platform != "win32" and os.geteuid() == 0:  # who may write it all the same
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ModelError, match="is read-only; name another file"):
        io.save(io.load(folder / "a.onnx"), target)
    assert listing(target.parent) == ["o.onnx"]
    assert target.read_bytes() == b"mine"


def test_a_name_as_long_as_names_may_be(folder: Path) -> None:
    target = folder / "out" / f"{'ü' * 124}.onnx"
    io.save(io.load(folder / "a.onnx"), target)
    assert listing(target.parent) == [target.name]


def test_weights_of_the_input_are_not_overwritten(folder: Path) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    (data,) = data_of(target)
    with pytest.raises(UsageError, match="holds weights of the input"):
        io.save(io.load(target), target.with_name(data))
    with pytest.raises(UsageError, match="holds weights of the input"):
        graphfix.repair_file(target, target.with_name(data))
    assert added(target) == {1.0}


@pytest.mark.parametrize("what", ["model", "weights"])
def test_an_input_that_changes_meanwhile_is_told(folder: Path, what: str) -> None:
    source = folder / "out" / "o.onnx"
    write(folder / "a.onnx", source)
    (data,) = data_of(source)
    changed = source if what == "model" else source.with_name(data)
    target = folder / "new.onnx"
    model = io.load(source)

    def change() -> None:
        with io.draft_model(model, target) as draft:
            changed.write_bytes(changed.read_bytes() + b"\0")
            draft.keep()

    with pytest.raises(ModelError, match=re.escape(f"{changed}: has changed since it was read")):
        change()
    assert not target.exists()
    assert not list(folder.glob("*.data"))


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = folder / "out" / "o.onnx"
    write(folder / "a.onnx", target)
    read = io._read_proto
    turns = iter([True, False])

    def late(path: Path) -> onnx.ModelProto:
        proto = read(path)
        if next(turns):
            write(folder / "b.onnx", target)
            turns_left.append(1)
        return proto

    turns_left: list[int] = []
    monkeypatch.setattr(
        io, "_read_proto", lambda path: late(path) if path == target else read(path)
    )
    weight = io.load(target).graph.initializers["w"].const_value.numpy()
    assert {float(x) for x in np.unique(weight)} == {2.0}
    assert turns_left


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere a name may have them")
@pytest.mark.parametrize("name", ["o.onnx:x", "b?.onnx", "a.onnx:x"])
def test_what_is_no_name_on_windows_is_refused(folder: Path, name: str) -> None:
    """After a colon, Windows writes into a stream of another file, which nobody sees."""
    before = listing(folder)
    with pytest.raises(ModelError, match=r"no name on Windows has [:?] in it; choose another"):
        write(folder / "a.onnx", folder / name)
    with (
        pytest.raises(ModelError, match="no name on Windows"),
        atomic_folder.draft_folder(folder / name),
    ):
        pass
    assert listing(folder) == before


def test_a_name_that_is_no_text_has_a_draft() -> None:
    # Of a file that Linux calls by bytes that are not UTF-8.
    name = leftovers.part_path(Path("folder") / "m\udcff.onnx", "0123456789abcdef").name
    assert name == ".m.onnx.0123456789abcdef.part"


def test_a_folder_that_is_read_only_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic_file.require_writable(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="there is no folder"):
        atomic_file.require_writable(tmp_path / "none" / "m.onnx")
    monkeypatch.setattr(atomic_file.os, "access", lambda path, _: path != tmp_path)
    with pytest.raises(ModelError, match="is read-only; name a file elsewhere"):
        atomic_file.require_writable(tmp_path / "m.onnx")

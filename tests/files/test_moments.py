"""Killed, interrupted, or out of room at every moment of a write: the old pair or the new one."""

from __future__ import annotations

import errno
import gc
import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.files import atomic_file, atomic_folder, byte_ranges, file_lock, io, leftovers
from tests import moments
from tests.files.heavy import data_of, make

posix = pytest.mark.skipif(sys.platform == "win32", reason="forks; signals as POSIX has them")

OURS = (atomic_file, byte_ranges, atomic_folder, file_lock, leftovers)


def added(path: Path) -> float:
    """What the model at ``path`` adds."""
    (weight,) = onnx.load(path).graph.initializer
    (value,) = np.unique(onnx.numpy_helper.to_array(weight))
    return float(value)


def loaded(source: Path) -> ir.Model:
    model = io.load(source)
    model.doc_string = "edited"  # else its file is copied as it is
    return model


# What is written, into a folder.


def one(model: ir.Model, out: Path) -> None:
    """A model with weights of its own."""
    io.save(model, out / "o.onnx", external_data="separate")


def several(model: ir.Model, out: Path) -> None:
    """Models that share their weights, written together."""
    pairs = [(model, out / f"o.{size}.onnx") for size in (1, 2)]
    with io.draft_models(pairs, "o.shared", external_data="separate") as made:
        for draft in made:
            draft.keep()


def folder(model: ir.Model, out: Path) -> None:
    """A folder, as ``ship`` makes it."""
    with atomic_folder.draft_folder(out / "shipped") as draft:
        several(model, draft.path)
        atomic_file.write_text(draft.path / "manifest", "whole")
        draft.keep()


def paged(model: ir.Model, out: Path) -> None:
    """A model, and then a page about it, as ``run --report`` makes them."""
    path, page = out / "o.onnx", out / PAGE
    with io.draft_model(model, path, external_data="separate", about=[page]) as draft:
        draft.keep()
    atomic_file.write_text(page, str(added(path)))


PAGE = "page.html"
Work = Callable[[ir.Model, Path], None]
WORK: dict[str, Work] = {x.__name__: x for x in (one, several, folder)}
SEEN: dict[str, Work] = {**WORK, "paged": paged}


def computed(out: Path) -> set[float]:
    """What the models there add, and what a page says of them; each has to load."""
    home = out / "shipped" if (out / "shipped").exists() else out
    said = {float(page.read_text(encoding="utf-8")) for page in home.glob(PAGE)}
    return said | {added(path) for path in home.glob("o*.onnx")}


def strangers(out: Path) -> set[str]:
    """What is there besides models and the weights that they refer to."""
    home = out / "shipped" if (out / "shipped").exists() else out
    models = list(home.glob("o*.onnx"))
    known = {x.name for x in models}.union(*map(data_of, models), {"manifest", "shipped", PAGE})
    return {x.name for at in {home, out} for x in at.iterdir()} - known


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make(tmp_path / "a.onnx", 1.0)
    make(tmp_path / "b.onnx", 2.0)
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file, "GRACE", 0.0)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """SIGINT as Python has it, also where these tests run behind a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def killed(work: str, place: Path, number: int) -> None:
    """In a process of its own: end it at a moment."""
    atomic_file.GRACE = 0.0
    with moments.system(place / "out", number, lambda _: os.kill(os.getpid(), signal.SIGKILL)):
        SEEN[work](loaded(place / "b.onnx"), place / "out")


@posix
@pytest.mark.parametrize("work", SEEN)
def test_killed(work: str, place: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    out, do = place / "out", SEEN[work]
    a = loaded(place / "a.onnx")
    do(a, out)
    found = []
    for number in itertools.count():
        process = context.Process(target=killed, args=(work, place, number))
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        now = computed(out)
        # Files that are written together get their names one after the other, each whole.
        # A folder has no name for a moment, until the next write puts it back.
        assert len(now) == 1 or work == "several" or (work == "folder" and not now)
        found.append(now)
        do(a, out)
        assert computed(out) == {1.0}
        assert not strangers(out), f"what was left at moment {number} stays"
        if process.exitcode == 0:
            break
    assert len(found) > 10
    assert found[0] == {1.0}
    assert found[-1] == {2.0}


@posix
@pytest.mark.parametrize("work", SEEN)
def test_read(work: str, place: Path) -> None:
    """Who looks at any moment sees all of the old or all of the new."""
    out, do = place / "out", SEEN[work]
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    do(a, out)
    seen: list[set[float]] = []
    with moments.system(out, 0, lambda _: seen.append(computed(out)), again=True):
        do(b, out)
    assert computed(out) == {2.0}
    assert len(seen) > 20
    mixed = [x for x in seen if x not in ({1.0}, {2.0})]
    allowed: dict[str, set[float]] = {"several": {1.0, 2.0}, "folder": set()}
    assert not mixed or mixed == [allowed.get(work)] * len(mixed)
    whole = [x for x in seen if x not in mixed]
    assert whole == sorted(whole, key=sum)


def inline(model: ir.Model, out: Path) -> None:
    """A model with its weights inside."""
    io.save(model, out / "o.onnx", external_data="inline")


@posix
@pytest.mark.parametrize(
    ("first", "second"), [(one, one), (one, inline), (inline, one), (several, several)]
)
def test_another_writes_at_any_moment(first: Work, second: Work, place: Path) -> None:
    """All of its write happens within the first one's, at each of its moments."""

    def write(_: str) -> None:
        second(b, out)

    out = place / "out"
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    first(a, out)
    found = []
    for at in itertools.count():
        with moments.system(out, at, write) as moment:
            first(a, out)
        found.append(computed(out))
        assert len(found[-1]) == 1 or first is several, f"at moment {at}"
        first(a, out)
        assert computed(out) == {1.0}
        # Weights stay if their model was replaced just before it could be seen that it would be.
        left = {x for x in strangers(out) if not x.endswith(".data")}
        assert not left, f"left at moment {at}"
        if not moment.come:
            break
    assert len(found) > 10
    assert {1.0} in found
    assert {2.0} in found


# A file whose "with" was interrupted is closed by whoever collects it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", WORK)
def test_interrupted(work: str, place: Path) -> None:
    """Before each line, as Ctrl-C may come: what it says of the files is so."""
    out, do = place / "out", WORK[work]
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    do(a, out)
    told = []
    step = int(os.environ.get("GRAPHFIX_MOMENTS", "17"))  # of some 600 lines; 1 takes minutes
    gc.freeze()  # so that what an interruption leaves in circles is collected in no time
    for number in itertools.count(0, step):
        written = None
        with moments.line(OURS, number, lambda _: signal.raise_signal(signal.SIGINT)) as moment:
            try:
                do(b, out)
            except KeyboardInterrupt as error:
                written = bool(error.args)
        gc.collect()
        now = computed(out)
        if moment.come:
            assert written is not None, f"nobody heard it at moment {number}"
        # It may come between a name and the note of it. Of the inner files of a folder it is told,
        # too: main asks whether they are there.
        whole = [{2.0}] if written and work != "folder" else [{1.0}, {2.0}]
        assert now in whole or (work == "several" and not written), f"at moment {number}"
        told.append(written)
        if now != {1.0}:
            do(a, out)
        assert computed(out) == {1.0}
        if not moment.come:
            break
    do(a, out)
    assert not {x for x in strangers(out) if not x.endswith(".data")}
    assert len(told) > 20
    gc.unfreeze()
    assert {False, True, None} == set(told)


def test_interrupted_between_a_name_and_the_note_of_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place / "out"
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    one(a, out)

    def interrupted(path: Path, target: Path) -> None:
        path.replace(target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "rename_path", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one(b, out)
    assert computed(out) == {2.0}
    one(a, out)
    assert computed(out) == {1.0}
    assert not strangers(out)


@pytest.mark.parametrize(
    ("number", "again", "only"),
    [
        (errno.ENOSPC, True, ("write", "fsync", "os.link", "os.mkdir")),
        (errno.EACCES, False, ()),
        (errno.EIO, False, ("fsync", "read", "write")),
        (errno.EXDEV, False, ("os.rename", "os.link")),
        (errno.EPERM, True, ("os.remove", "os.rmdir")),
    ],
    ids=lambda x: errno.errorcode.get(x, "") if isinstance(x, int) else "",
)
@pytest.mark.parametrize("work", WORK)
def test_refused(work: str, number: int, again: bool, only: tuple[str, ...], place: Path) -> None:
    """A disk that is full, a folder that does not let us: one sentence, and the old files."""
    out, do = place / "out", WORK[work]
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    do(a, out)
    told = 0
    for at in itertools.count():

        def refuse(event: str) -> None:
            raise OSError(number, os.strerror(number))

        said = ""
        with moments.system(out, at, refuse, only=only, again=again) as moment:
            try:
                do(b, out)
            except ModelError as error:
                said = str(error)
        now = computed(out)
        if work != "several" or now != {1.0, 2.0}:
            assert now == ({1.0} if said else {2.0}), f"at moment {at}: {said}"
        if said:
            told += 1
            assert os.strerror(number) in said
            assert "\n" not in said
            assert (number == errno.ENOSPC) <= ("free some space" in said)
        do(a, out)
        assert computed(out) == {1.0}
        # Weights that were replaced stay if just then they could not be marked for the sweep.
        left = {x for x in strangers(out) if not x.endswith(".data")}
        assert not left, f"left at moment {at}: {said}"
        if not moment.come:
            break
    assert at > 0
    assert told or number in (errno.EXDEV, errno.EPERM)


def test_what_is_about_a_model_goes_with_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place / "out"
    path, page = out / "o.onnx", out / PAGE
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    paged(a, out)
    with io.draft_model(b, path, about=[page]):
        pass  # it was not verified
    assert computed(out) == {1.0}
    assert page.exists()

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "rename_path", refuse)
        with pytest.raises(ModelError), io.draft_model(b, path, about=[page]) as draft:
            draft.keep()
    assert computed(out) == {1.0}
    with io.draft_model(b, path, about=[page]) as draft:
        draft.keep()
    assert computed(out) == {2.0}
    assert not page.exists()
    assert not strangers(out)


@posix
def test_a_link_to_a_page_stays(place: Path) -> None:
    out = place / "out"
    page = place / "real.html"
    page.touch()
    (out / PAGE).symlink_to(page)
    paged(loaded(place / "a.onnx"), out)
    assert (out / PAGE).is_symlink()
    assert page.read_text(encoding="utf-8") == "1.0"


def test_what_cannot_be_put_back_keeps_its_weights(place: Path) -> None:
    """A folder that lets one file have its name, and then none any more."""
    out = place / "out"
    a, b = (loaded(place / name) for name in ("a.onnx", "b.onnx"))
    several(a, out)

    def refuse(event: str) -> None:
        raise OSError(errno.EIO, "no more")

    with (
        moments.system(out, 1, refuse, only=("os.rename",), again=True),
        pytest.raises(ModelError, match="no more"),
    ):
        several(b, out)
    assert [added(out / f"o.{size}.onnx") for size in (1, 2)] == [2.0, 1.0]
    several(a, out)
    assert computed(out) == {1.0}
    assert not strangers(out)

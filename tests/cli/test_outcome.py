"""What became of the model: said by the exit code, whoever closes a pipe or presses Ctrl-C."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from graphfix.cli import main
from graphfix.files import atomic_file
from graphfix.runtime import process
from tests import moments

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and files of POSIX")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
TEXT = f"""{HEAD} m (float[N, 4] x) => (float[N, 4] y)
    {{ c = Cast <to = 9> (x) d = Cast <to = 1> (c) y = Relu (d) }}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def graphfix(*arguments: object, **more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "graphfix", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload,no-any-return]


def test_a_model_that_takes_too_long_is_told(endless: Path) -> None:
    environment = {**os.environ, "GRAPHFIX_RUN_SECONDS": "1"}
    with graphfix("run", endless, stdout=subprocess.DEVNULL, env=environment) as process:
        _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "ran for 1 s without an end, so it was stopped" in told
    assert [x.name for x in endless.parent.iterdir()] == ["model.onnx"]


@posix
@pytest.mark.parametrize("where", ["full", "closed pipe"])
@pytest.mark.parametrize("given", [["--report", "page.html"], ["--json"]])
def test_a_standard_output_that_takes_nothing(
    file: Path, where: str, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    if where == "full":
        if not Path("/dev/full").exists():
            pytest.skip("there is no /dev/full")
        with Path("/dev/full").open("w") as out, graphfix("run", file, *given, stdout=out) as ran:
            _, told = ran.communicate()
    else:
        reading, writing = os.pipe()
        os.close(reading)
        with graphfix("run", file, *given, stdout=writing) as ran:
            os.close(writing)
            _, told = ran.communicate()
    # The model is written, but not what a full disk was to take; who closes a pipe knows it.
    assert ran.returncode == (2 if where == "full" else 0)
    assert "Traceback" not in told
    assert f"the model is written: {file.with_name('model.fixed.onnx')}" in told
    assert file.with_name("model.fixed.onnx").exists()
    assert file.with_name("page.html").exists() == ("page.html" in given)


@posix
@pytest.mark.parametrize("words", [["check", "-v"], ["passes"], ["plan"], ["explain", "8007023E"]])
def test_a_reader_that_has_enough_is_no_error(file: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    model = [] if words == ["passes"] else [file]
    with graphfix(*words, *model, stdout=writing) as ran:
        os.close(writing)
        _, told = ran.communicate()
    assert ran.returncode == 0
    assert "error" not in told


@pytest.mark.skipif(sys.platform == "win32", reason="any device is a terminal there")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_standard_error_that_takes_nothing(file: Path) -> None:
    """Exit code 1 would be a finding, or a verdict."""
    for words, code in ((["check", file.with_name("none.onnx")], 2), (["check", file], 0)):
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "graphfix", *map(str, words)]
            ran = subprocess.run(command, stderr=full, stdout=subprocess.DEVNULL, check=False)
        assert ran.returncode == code


@posix
@pytest.mark.parametrize("closed", [(2,), (0, 1), (0, 1, 2)], ids=str)
def test_standard_streams_that_are_closed(file: Path, closed: tuple[int, ...]) -> None:
    """As a service manager may start a program; what it opens then gets their numbers."""

    def close() -> None:
        for number in closed:
            os.close(number)

    command = [sys.executable, "-m", "graphfix", "run", str(file), "--dims", "N=2"]
    ran = subprocess.run(command, preexec_fn=close, stdout=subprocess.DEVNULL, check=False)
    assert ran.returncode == 0
    session = onnxruntime.InferenceSession(file.with_name("model.fixed.onnx"))
    assert [x.name for x in session.get_outputs()] == ["y"]


def test_a_page_is_never_about_the_model_before(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends the run when the model is written, and the page is not."""
    monkeypatch.chdir(file.parent)

    def ends(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words, pages = ["run", "model.onnx", "--report", "page.html"], ["page.html"]
    assert main(words) == 0
    assert sorted(x.name for x in file.parent.glob("page*")) == pages
    with monkeypatch.context() as patch:
        patch.setattr("graphfix.job.prove.verify", ends)
        assert main(words) == 130
    assert sorted(x.name for x in file.parent.glob("page*")) == pages
    with monkeypatch.context() as patch:
        patch.setattr("graphfix.show.html.write_page", ends)
        main(words)
    assert not list(file.parent.glob("page*"))
    assert main(words) == 0
    assert sorted(x.name for x in file.parent.glob("page*")) == pages


def test_the_report_goes_over_no_file_that_is_read(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feeds = file.with_name("feeds.npz")
    np.savez(feeds, x=np.ones((2, 4), np.float32))
    before = feeds.read_bytes()
    assert main(["run", str(file), "--feeds", str(feeds), "--report", str(feeds)]) == 2
    assert "is read for this work" in capsys.readouterr().err
    assert feeds.read_bytes() == before


def test_names_forge_no_lines_and_no_colours(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.load(file)
    name = "c\n    + y = Forged (x)\x1b[2J\x1b]0;title\x07"
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = name
    proto.graph.node[0].name = name
    onnx.save(proto, file)
    assert main(["run", str(file), "-p", "bool-cast", "--diff", "--no-verify"]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert not [x for x in out.splitlines() if x.startswith("    + y = Forged")]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("one.npy", None, "holds one array"),
        ("broken.npz", b"PK\x03\x04 and no more", "not an .npz file of arrays"),
        ("text.npz", b"hello", "not an .npz file of arrays; save one with np.savez"),
        ("none.npz", b"", "not an .npz file of arrays"),
    ],
)
def test_feeds_that_are_none(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    says: str,
) -> None:
    feeds = file.with_name(name)
    if content is None:
        np.save(feeds, np.ones(3))
    else:
        feeds.write_bytes(content)
    assert main(["run", str(file), "--feeds", str(feeds)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["-o", ""], "-o: names no file"),
        (["-o", "new/"], "-o new/: names a folder"),
        (["-o", "."], "is no name of a file"),
        (["--dims", f"N={2**70}"], "a size is at most"),
        (["-o", "out.onnxtxt"], "is written as .onnx, not as text"),
    ],
)
def test_what_cannot_be_asked(
    file: Path, capsys: pytest.CaptureFixture[str], given: list[str], says: str
) -> None:
    assert main(["run", str(file), *given]) == 2
    assert says in capsys.readouterr().err
    assert [x.name for x in file.parent.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(("when", "code"), [("_name_drafts", 130), ("flush_to_disk", 0)])
def test_ctrl_c_before_and_after_it_has_its_name(
    file: Path,
    when: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = file.with_name("model.fixed.onnx")
    real = atomic_file.flush_to_disk

    def interrupted(path: object) -> None:
        if when != "flush_to_disk" or target.exists():
            raise KeyboardInterrupt
        real(path)  # type: ignore[arg-type]

    monkeypatch.setattr(
        atomic_file if when == "flush_to_disk" else atomic_file.WriteJob, when, interrupted
    )
    assert main(["run", str(file), "-p", "bool-cast", "--no-verify"]) == code
    told = f"written: {target}" if code == 0 else "nothing was written"
    assert f"interrupted; {told}" in capsys.readouterr().err
    assert target.exists() == (code == 0)
    assert len(list(file.parent.iterdir())) == 1 + (code == 0)


@pytest.mark.parametrize("option", ["--feeds", "--plugin"])
def test_the_model_goes_over_no_file_that_is_read(
    file: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read = file.with_name("feeds.npz" if option == "--feeds" else "plugin.py")
    if option == "--feeds":
        np.savez(read, x=np.ones((2, 4), np.float32))
    else:
        read.write_text('"""No passes."""\n')
    linked = file.with_name("linked")
    linked.hardlink_to(read)
    before = read.read_bytes()
    for name in (read, linked):
        assert main(["run", str(file), option, str(read), "-o", str(name)]) == 2
        assert "is read for this work" in capsys.readouterr().err
    assert read.read_bytes() == before


@pytest.mark.parametrize("verb", ["run", "verify", "plan"])
@pytest.mark.parametrize("what", ["write", "os.mkdir"])
def test_a_full_folder_for_temporary_files_is_the_one_that_is_named(
    file: Path,
    verb: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scratch = file.with_name("scratch")
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    process.stop_all()  # one that is there has its files already

    def refuse(event: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    words = [verb, str(file), *([str(file)] if verb == "verify" else [])]
    with moments.system(scratch, 0, refuse, only=(what,), again=True) as moment:
        code = main(words)
    told = capsys.readouterr().err
    if moment.come:
        assert code == 2
        assert f"{scratch}: cannot be written: No space left on device; free some space" in told
        file.with_name("model.fixed.onnx").unlink(missing_ok=True)
    process.stop_all()  # the files of one that waits for the next model have names on Windows
    assert not list(scratch.iterdir())

"""Where a page may be written: no file that is read or written for the same work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import numpy as np
import onnx
import pytest

from graphfix.cli import _options, _page
from graphfix.errors import UsageError
from graphfix.wording import ALIASES

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T] x) => (float[T] y) <float[2] w = {1, 2}> { y = Add (x, w) }"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(TEXT)
    (weight,) = proto.graph.initializer
    weight.CopyFrom(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    Path("there.html").write_text("old")
    np.savez("f.npz", x=np.ones(2))
    Path("plugin.py").write_text("")
    Path("inner").mkdir()
    return tmp_path


def path_of(report: str | None, target: str | None = None, feeds: str | None = None) -> Path | None:
    with click.Context(click.Command("x")) as context:
        context.meta[_options.PLUGINS] = ("plugin.py",)
        return _page.page_path(report, ["m.onnx"], None if target is None else Path(target), feeds)


@pytest.mark.usefixtures("folder")
def test_a_page_of_its_own() -> None:
    assert path_of(None) is None
    assert path_of("new.html") == Path("new.html")
    assert path_of("there.html") == Path("there.html")
    assert path_of("inner/new.html", "out.onnx", "f.npz") == Path("inner/new.html")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("gone/new.html", "there is no folder gone; make it first"),
        ("inner", "is a folder; name a file in it"),
        ("m.onnx", "is a model's file; name another"),
        ("./inner/../m.onnx", "is a model's file; name another"),
        ("out.onnx", "is a model's file; name another"),
        ("w.data", "is read for this work; name another"),
        ("f.npz", "is read for this work; name another"),
        ("plugin.py", "is read for this work; name another"),
    ],
)
def test_a_page_that_would_be_another_file(report: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        path_of(report, "out.onnx", "f.npz")
    assert str(caught.value) == f"--report {Path(report)}: {message}"


@pytest.mark.usefixtures("folder")
def test_files_that_are_not_there_are_not_read() -> None:
    with click.Context(click.Command("x")) as context:
        context.meta[_options.PLUGINS] = ("gone.py",)
        page = _page.page_path("there.html", ["gone.onnx"], None, "gone.npz")
    assert page == Path("there.html")


@pytest.mark.skipif(sys.platform == "win32", reason="folders are never read-only there")
def test_a_folder_that_is_read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_page.os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(UsageError, match="the folder inner is read-only; name a file elsewhere"):
        path_of("inner/new.html")
    assert folder.exists()


def test_a_page_is_written_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "graphfix.show.html.render_data_page", lambda *args, **more: f"{args} {more}"
    )
    page = tmp_path / "p.html"
    _page.write_page(page, "t.html", {"a": 1}, quiet=False, model="m")
    assert page.read_text() == "('t.html', {'a': 1}) {'model': 'm'}"
    printed = "".join(capsys.readouterr().out.split())
    assert printed.startswith("report")
    assert printed.endswith("p.html")
    _page.write_page(page, "t.html", {}, quiet=True)
    assert capsys.readouterr().out == ""


def test_files_have_the_names_that_a_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALIASES, "deep/stdin.onnx", "stdin")
    assert _page.display_name("deep/stdin.onnx") == "stdin"
    assert _page.display_name("m.onnx") == "m.onnx"

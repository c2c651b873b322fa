"""The terminal, for every verb: wrapped lines, remarks, late errors, JSON."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from graphfix.cli import _terminal
from graphfix.errors import UsageError
from graphfix.version import __version__
from graphfix.wording import ALIASES, Row

Captured = pytest.CaptureFixture[str]
STEPS = _terminal.print_steps_once  # as it is; tests/conftest.py replaces it


def test_a_remark_is_one_line_on_stderr(capsys: Captured) -> None:
    _terminal.print_remark("two\nlines   and \x1b[31mcolour")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("graphfix: two lines and ")
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_where_nothing_is_printed_errors_and_data_are(capsys: Captured) -> None:
    with _terminal.suppress_output():
        print("lost")
        _terminal.print_remark("a remark")
        _terminal.print_remark("error: it broke")
        assert _terminal.report_failure("worse") == 1
        _terminal.print_json({"x": 1})
        assert _terminal.data_stream() is not sys.stdout
    out, err = capsys.readouterr()
    assert json.loads(out) == {"x": 1}
    assert err == "graphfix: error: it broke\ngraphfix: error: worse\n"
    _terminal.print_remark("again")
    assert capsys.readouterr().err == "graphfix: again\n"
    assert _terminal.data_stream() is sys.stdout


def test_what_the_library_logs_is_printed_once(capsys: Captured) -> None:
    handler = _terminal.RemarkHandler()
    for text in ("first", "first", "second"):
        handler.handle(logging.LogRecord("x", logging.WARNING, "", 1, text, (), None))
    assert capsys.readouterr().err == "graphfix: first\ngraphfix: second\n"
    assert handler.level == logging.WARNING
    _terminal.show_warning("careful", None, "file.py", 3)
    assert capsys.readouterr().err == "graphfix: warning: careful\n"


@pytest.mark.parametrize(
    ("error", "text", "is_kept"),
    [
        (UsageError("no"), "no", True),
        (OSError("disk"), "disk", True),
        (MemoryError(), "out of memory", True),
        (KeyboardInterrupt(), "interrupted", False),
        (BrokenPipeError("closed"), "closed", False),
    ],
)
def test_late_errors_say_what_became_of_the_model(
    error: BaseException, text: str, is_kept: bool, capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(_terminal, "silence_stream", lambda *_: None)
    with _terminal.report_late_errors("it was written") as errors:
        raise error
    assert capsys.readouterr().err == f"graphfix: error: {text}; it was written\n"
    assert errors == ([error] if is_kept else [])


def test_other_errors_are_not_late_ones(capsys: Captured) -> None:
    with pytest.raises(KeyError), _terminal.report_late_errors("written"):
        raise KeyError
    with _terminal.report_late_errors("written") as errors:
        pass
    assert errors == []
    assert capsys.readouterr().err == ""


def test_a_stream_that_is_full_is_an_error_too(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError("no space left")

    monkeypatch.setattr(_terminal, "silence_stream", lambda *_: None)
    monkeypatch.setattr(sys, "stdout", Full())
    with _terminal.report_late_errors("written") as errors:
        pass
    assert [str(x) for x in errors] == ["no space left"]
    monkeypatch.setattr(sys, "stdout", None)
    with _terminal.report_late_errors("written") as errors:
        pass
    assert errors == []


def test_a_remark_that_cannot_be_written_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    silenced: list[Any] = []
    monkeypatch.setattr(_terminal, "silence_stream", silenced.append)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError

    monkeypatch.setattr(_terminal, "_print_line", fail)
    _terminal.print_remark("gone")
    assert silenced == [sys.stderr]


@pytest.mark.parametrize(
    ("variables", "preference"),
    [
        ({}, None),
        ({"FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": "", "FORCE_COLOR": ""}, None),
        ({"NO_COLOR": "", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colours(
    variables: dict[str, str], preference: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _terminal.colour_preference() is preference


def test_rows_are_wrapped_under_their_text(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    _terminal.print_row("label", "some words that are wrapped here")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert lines[0].startswith("  label     some")
    assert all(x.startswith(" " * 12) for x in lines[1:])
    _terminal.print_rows([Row("a", "b"), Row("longer label than ten", "text")])
    assert capsys.readouterr().out.split()[:2] == ["a", "b"]
    _terminal.print_paragraph("some words that are wrapped here, too", "> ", "  ")
    lines = capsys.readouterr().out.splitlines()
    assert [x[:2] for x in lines] == ["> ", *["  "] * (len(lines) - 1)]


@pytest.mark.parametrize("label", ["ok", "a label longer than ten"])
def test_only_the_label_of_a_row_is_coloured(
    label: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(_terminal, "_print_line", lambda line: printed.append(line))
    _terminal.print_row(label, "text", colour="green")
    (line,) = printed
    start, _, rest = line.partition("\x1b[32m")
    coloured, _, plain = rest.partition("\x1b[0m")
    assert start == "  "
    assert coloured.strip() == label
    assert plain.strip() == "text"


def test_json_has_a_schema_and_no_numbers_that_it_has_not(capsys: Captured) -> None:
    document = _terminal.with_header(x=math.nan, y=[1.5])
    assert document["schema"] == 1
    assert document["graphfix"] == __version__
    _terminal.print_json(document)
    text = capsys.readouterr().out
    assert json.loads(text)["x"] == "nan"
    assert text.startswith('{\n  "schema": 1,')


def test_json_has_the_names_that_a_user_gave(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALIASES, os.path.join("deep", 'a"b'), "stdin")  # noqa: PTH118
    _terminal.print_json({"path": os.path.join("deep", 'a"b')})  # noqa: PTH118
    assert json.loads(capsys.readouterr().out) == {"path": "stdin"}


@pytest.mark.parametrize(
    ("steps", "printed"),
    [
        (["load", "load", "save"], ["load", "save"]),
        (["verify 1/3: a", "verify 2/3: b", "count: c"], ["verify", "count"]),
        (["one, x: a\ntwo, y: b", "one, x: c"], ["one, x", "two, y"]),
        (["check C:/m.onnx"], ["check C:/m.onnx"]),
    ],
)
def test_steps_are_printed_once(steps: list[str], printed: list[str], capsys: Captured) -> None:
    tell = STEPS()
    for step in steps:
        tell(step)
    assert capsys.readouterr().err.splitlines() == [f"graphfix: {x}" for x in printed]


def test_no_progress_where_none_is_asked_for(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_terminal, "print_steps_once", STEPS)
    with _terminal.show_progress(quiet=True) as tell:
        tell("load")
    with _terminal.suppress_output(), _terminal.show_progress() as tell:
        tell("load")
    assert capsys.readouterr().err == ""
    with _terminal.show_progress() as tell:
        tell("load")
    assert capsys.readouterr().err == "graphfix: load\n"
    monkeypatch.setattr(sys, "stderr", None)
    with _terminal.show_progress() as tell:
        tell("load")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("verifying 3/9: before", ("3", "9")),
        ("model 1 of 12, a", ("1", "12")),
        ("timing 3/9", ("3", "9")),
        ("m3/9.onnx", None),
        ("3/9 of it", None),
        ("a/b: c", None),
    ],
)
def test_steps_that_are_counted(text: str, count: tuple[str, str] | None) -> None:
    found = _terminal._COUNT.search(text)
    assert (None if found is None else found.groups()) == count


@pytest.mark.skipif(sys.platform == "win32", reason="other numbers of files")
def test_streams_that_a_caller_closed_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class System:
        devnull, O_RDWR = os.devnull, os.O_RDWR

        @staticmethod
        def fstat(number: int) -> None:
            if number != 1:
                raise OSError

        @staticmethod
        def open(path: str, flags: int) -> None:
            opened.append(f"{path} {flags}")

    monkeypatch.setattr(_terminal, "os", System)
    _terminal.open_closed_streams()
    assert opened == [f"{os.devnull} {os.O_RDWR}"] * 2


def test_a_stream_is_silenced_by_its_number(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        file.write("before ")
        file.flush()
        _terminal.silence_stream(file)
        file.write("after")
        file.flush()
    assert (tmp_path / "out").read_text() == "before "
    _terminal.silence_stream(io.StringIO())  # has no number

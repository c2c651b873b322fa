"""What every verb needs of a terminal: lines that fit, remarks, progress, JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import time
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING

import click

from graphfix.errors import GraphfixError
from graphfix.version import __version__
from graphfix.wording import ALIASES, Row, clean, row_lines, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    from rich.console import Console


_data: TextIO | None = None
_live: Console | None = None
_DETAIL = re.compile(r"( \d+/\d+)?: .*")
_COUNT = re.compile(r"\b(\d+)(?:/| of )(\d+)(?=[:,]|$)")


def data() -> TextIO:
    """Where data goes that was asked for, also with ``-q``."""
    return _data or sys.stdout


@contextmanager
def hushed() -> Iterator[None]:
    """Print errors and data only."""
    global _data
    _data = sys.stdout
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        _data = None


def remark(text: str) -> None:
    """One line on stderr, in graphfix's name. If nobody takes it, what is done is done anyway."""
    if _data is not None and not text.startswith("error"):
        return
    try:
        _put(f"graphfix: {' '.join(clean(text).split())}", err=True)
    except OSError:  # a full disk, or a terminal that is gone
        silence(sys.stderr)


def failed(why: str) -> int:
    """Say what failed; the exit code."""
    remark(f"error: {why}")
    return 1


class Remarks(logging.Handler):
    """What the library logs, each thing once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless it was printed before."""
        text = record.getMessage()
        if text not in self._told:
            self._told.add(text)
            remark(text)


def warned(message: Warning | str, *_: object, **__: object) -> None:
    """A warning of Python's, as a remark; in the place of ``warnings.showwarning``."""
    remark(f"warning: {message}")


@contextmanager
def told(what: str) -> Iterator[None]:
    """After the work: what fails here is said, and ``what`` became of the model.

    The exit code is that of the model all the same: who closed the pipe knows that.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, GraphfixError, MemoryError, KeyboardInterrupt) as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        remark(f"error: {reason or 'out of memory'}; {what}")
        silence()


def stand_in() -> None:
    """Let what whoever started us has closed lead nowhere.

    Else the next file that is opened has the number of a standard stream, and who writes to that
    stream, such as a process of ours, writes into the file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free


def silence(stream: TextIO | None = None) -> None:
    """Let nothing more go to a stream that takes none: Python tries again at its end.

    Args:
        stream: Which; the standard output.
    """
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)


def colours() -> bool | None:
    """What ``NO_COLOR`` and ``FORCE_COLOR`` ask for; None if nothing: colours on a terminal.

    Of both, ``NO_COLOR`` holds (no-color.org; force-color.org).
    """
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def row(label: str, text: str, *, colour: str | None = None) -> None:
    """``label     text`` with the text wrapped under itself."""
    first, *others = row_lines(Row(label, text))
    wide = max(len(label), 10) + 2
    lines([f"  {click.style(first[2:wide], fg=colour)}{first[wide:]}", *others])


def rows(found: Iterable[Row]) -> None:
    """Print rows with their colours."""
    for one in found:
        row(one.label, one.text, colour=one.colour or None)


def paragraph(text: str, indent: str = "", later: str | None = None) -> None:
    """Text wrapped at the terminal's width, all lines indented, or those after the first more."""
    lines(wrapped(text, indent, later))


def lines(found: Iterable[str]) -> None:
    """Print lines that are wrapped already."""
    for one in found:
        _put(one)


def _put(line: str, *, err: bool = False) -> None:
    """Print a line: above the progress where both go to the terminal, not into it."""
    if _live is None or not (err or data().isatty()):
        click.echo(line, err=err)
        return
    from rich.text import Text

    _live.print(Text.from_ansi(line), soft_wrap=True)


def headed(**fields: object) -> dict[str, object]:
    """What a verb says as JSON: which form it has, whose it is, and then ``fields``."""
    return {"schema": 1, "graphfix": __version__, **fields}


def print_json(document: object) -> None:
    """One JSON document on stdout; what JSON has no number for is written as text."""
    from graphfix.json_types import plain

    text = json.dumps(plain(document), indent=2, allow_nan=False)
    for path, name in ALIASES.items():
        text = text.replace(json.dumps(path)[1:-1], name)
    click.echo(text, file=data())


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """What to call with the text of each step, ``what: detail``; of several, each has its line.

    A terminal shows the latest text and the time that has passed; other files get a line for each
    new ``what``.
    """
    global _live
    if quiet or _data is not None or sys.stderr is None:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield each_once()
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress_bar import ProgressBar

    class Bar(BarColumn):
        """Only where the steps are known: else rich lets one run to and fro."""

        def render(self, task: Task) -> ProgressBar:
            return super().render(task) if task.total else ProgressBar(width=0)

    columns = SpinnerColumn(), TextColumn("{task.description}"), Bar(bar_width=16), Elapsed()
    left = TextColumn("{task.fields[left]}")
    console, estimate = Console(stderr=True), _Estimate()
    with Progress(*columns, left, console=console, transient=True, redirect_stdout=False) as bar:
        step = bar.add_task("starting", total=None, left="")
        _live = console

        def tell(text: str) -> None:
            room = console.width - 48  # for what is beside the text: else rich leaves that out
            shown = "\n".join(escape(clean(x)[:room]) for x in text.splitlines())
            count = None if "\n" in text else _COUNT.search(text)
            bar.tasks[0].total = int(count[2]) if count else None
            # The last one has only begun; rich stops the clock of what is complete.
            done = 0.99 * int(count[1]) if count else 0
            bar.update(step, description=shown, completed=done, left=estimate.left(count))

        try:
            yield tell
        finally:
            _live = None


class _Estimate:
    """How long the counted steps of one kind will still take."""

    def __init__(self) -> None:
        self._kind, self._since, self._first = ("", ""), 0.0, 0

    def left(self, count: re.Match[str] | None) -> str:
        """``about 12 s left``, by the steps so far; "" of none, or where it is soon done."""
        if count is None:
            return ""
        now, done, of = time.monotonic(), int(count[1]), int(count[2])
        kind = count.string[: count.start()], count[2]
        if kind != self._kind or done <= self._first:
            self._kind, self._since, self._first = kind, now, done
            return ""
        seconds = (now - self._since) / (done - self._first) * (of - done + 1)
        return f"about {seconds:.0f} s left" if seconds >= 2 else ""


def each_once() -> Callable[[str], None]:
    """What to call with the text of each step, where nothing may move."""
    told: set[str] = set()

    def tell(text: str) -> None:
        for what in (_DETAIL.sub("", line) for line in text.splitlines()):
            if what not in told:
                told.add(what)
                remark(what)

    return tell

"""The terminal, for every verb: wrapped lines, remarks, progress, JSON."""

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
from graphfix.wording import ALIASES, Row, clean_text, row_lines, wrap_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    from rich.console import Console


_data: TextIO | None = None
_live: Console | None = None
_DETAIL = re.compile(r"( \d+/\d+)?: .*")
_COUNT = re.compile(r"\b(\d+)(?:/| of )(\d+)(?=[:,]|$)")


def data_stream() -> TextIO:
    """Return the stream for requested data, which ``-q`` does not silence."""
    return _data or sys.stdout


@contextmanager
def suppress_output() -> Iterator[None]:
    """Print errors and data only."""
    global _data
    _data = sys.stdout
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        _data = None


def print_remark(text: str) -> None:
    """Print one line on stderr, in graphfix's name; errors of writing are ignored."""
    if _data is not None and not text.startswith("error"):
        return
    try:
        _print_line(f"graphfix: {' '.join(clean_text(text).split())}", err=True)
    except OSError:  # a full disk, or a terminal that is gone
        silence_stream(sys.stderr)


def report_failure(reason: str) -> int:
    """Print what failed, and return the exit code."""
    print_remark(f"error: {reason}")
    return 1


class RemarkHandler(logging.Handler):
    """Prints what the library logs, each message once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless it was printed before."""
        text = record.getMessage()
        if text not in self._printed:
            self._printed.add(text)
            print_remark(text)


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of Python as a remark; replaces ``warnings.showwarning``."""
    print_remark(f"warning: {message}")


@contextmanager
def report_late_errors(outcome: str) -> Iterator[list[BaseException]]:
    """Print errors raised in this block, with the ``outcome`` of the model, and go on.

    The list that is yielded has them then, but for a closed pipe: whoever closed it knows that.
    """
    errors: list[BaseException] = []
    try:
        yield errors
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, GraphfixError, MemoryError, KeyboardInterrupt) as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        print_remark(f"error: {reason or 'out of memory'}; {outcome}")
        silence_stream()
        if not isinstance(error, BrokenPipeError | KeyboardInterrupt):
            errors.append(error)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that our caller closed.

    Otherwise the next file that is opened gets the number of a standard stream, and a child process
    that writes to that stream writes into the file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free


def silence_stream(stream: TextIO | None = None) -> None:
    """Redirect a stream that takes no more output to the null device.

    Args:
        stream: Which; the standard output.
    """
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)


def colour_preference() -> bool | None:
    """Return what ``NO_COLOR`` and ``FORCE_COLOR`` ask for; None for colours on a terminal.

    ``NO_COLOR`` wins over ``FORCE_COLOR`` (no-color.org; force-color.org).
    """
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def print_row(label: str, text: str, *, colour: str | None = None) -> None:
    """Print ``label     text``, with the text wrapped under itself."""
    first, *continuation = row_lines(Row(label, text))
    wide = max(len(label), 10) + 2
    print_lines([f"  {click.style(first[2:wide], fg=colour)}{first[wide:]}", *continuation])


def print_rows(entries: Iterable[Row]) -> None:
    """Print rows with their colours."""
    for entry in entries:
        print_row(entry.label, entry.text, colour=entry.colour or None)


def print_paragraph(text: str, indent: str = "", later: str | None = None) -> None:
    """Print text wrapped at the terminal's width, indented; later lines may be indented more."""
    print_lines(wrap_text(text, indent, later))


def print_lines(texts: Iterable[str]) -> None:
    """Print lines that are wrapped already."""
    for line in texts:
        _print_line(line)


def _print_line(line: str, *, err: bool = False) -> None:
    """Print a line; above the progress where both go to the terminal."""
    if _live is None or not (err or data_stream().isatty()):
        click.echo(line, err=err)
        return
    from rich.text import Text

    _live.print(Text.from_ansi(line), soft_wrap=True)


def with_header(**fields: object) -> dict[str, object]:
    """Return ``fields`` as a JSON document with its schema and the version of graphfix."""
    return {"schema": 1, "graphfix": __version__, **fields}


def print_json(document: object) -> None:
    """Print one JSON document on stdout; numbers that JSON has not are written as text."""
    from graphfix.json_types import to_plain

    text = json.dumps(to_plain(document), indent=2, allow_nan=False)
    for path, name in ALIASES.items():
        text = text.replace(json.dumps(path)[1:-1], name)
    click.echo(text, file=data_stream())


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the text of each step, ``what: detail``, a line for each.

    A terminal shows the latest text and the time that has passed; other files get a line for each
    new ``what``.
    """
    global _live
    if quiet or _data is not None or sys.stderr is None:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield print_steps_once()
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress_bar import ProgressBar

    class Bar(BarColumn):
        """A bar that is shown only where the number of steps is known."""

        def render(self, task: Task) -> ProgressBar:
            return super().render(task) if task.total else ProgressBar(width=0)

    columns = SpinnerColumn(), TextColumn("{task.description}"), Bar(bar_width=16), Elapsed()
    left_column = TextColumn("{task.fields[left]}")
    console, estimate = Console(stderr=True), _TimeEstimate()
    with Progress(
        *columns, left_column, console=console, transient=True, redirect_stdout=False
    ) as bar:
        step = bar.add_task("starting", total=None, left="")
        _live = console

        def show_step(text: str) -> None:
            room = console.width - 48  # for what is beside the text: else rich leaves that out
            shown = "\n".join(escape(clean_text(x)[:room]) for x in text.splitlines())
            count = None if "\n" in text else _COUNT.search(text)
            bar.tasks[0].total = int(count[2]) if count else None
            # The last one has only begun; rich stops the clock of what is complete.
            completed = 0.99 * int(count[1]) if count else 0
            bar.update(
                step, description=shown, completed=completed, left=estimate.remaining_text(count)
            )

        try:
            yield show_step
        finally:
            _live = None


class _TimeEstimate:
    """Estimates how long the counted steps of one kind will still take."""

    def __init__(self) -> None:
        self._kind, self._since, self._first = ("", ""), 0.0, 0

    def remaining_text(self, count: re.Match[str] | None) -> str:
        """Return ``about 12 s left``, judged by the steps so far; "" if unknown or nearly done."""
        if count is None:
            return ""
        now, finished, total = time.monotonic(), int(count[1]), int(count[2])
        kind = count.string[: count.start()], count[2]
        if kind != self._kind or finished <= self._first:
            self._kind, self._since, self._first = kind, now, finished
            return ""
        seconds = (now - self._since) / (finished - self._first) * (total - finished + 1)
        return f"about {seconds:.0f} s left" if seconds >= 2 else ""


def print_steps_once() -> Callable[[str], None]:
    """Return a function that prints the text of each step once."""
    printed: set[str] = set()

    def print_new_steps(text: str) -> None:
        for step in (_DETAIL.sub("", line) for line in text.splitlines()):
            if step not in printed:
                printed.add(step)
                print_remark(step)

    return print_new_steps

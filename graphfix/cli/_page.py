"""``--report``: the path of the page, checked before any work is done, and the page itself."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from graphfix.cli import _options, _terminal
from graphfix.errors import ModelError, UsageError
from graphfix.wording import ALIASES

option = click.option("--report", metavar="FILE", help="Also write the result as an HTML page.")


def page_path(
    report: str | None, models: Sequence[str], target: Path | None = None, feeds: str | None = None
) -> Path | None:
    """Return the path of the page; None if none is asked for.

    Args:
        report: What ``--report`` says.
        models: The models that are read.
        target: The model that is written.
        feeds: The file of ``--feeds``.

    Raises:
        UsageError: It is a file that is read or written for this work, or its folder is missing
            or read-only.
    """
    if report is None:
        return None
    page = Path(report)
    if not page.parent.is_dir():
        raise UsageError(f"--report {page}: there is no folder {page.parent}; make it first")
    if page.is_dir():
        raise UsageError(f"--report {page}: is a folder; name a file in it")
    if not os.access(page.parent, os.W_OK):
        raise UsageError(
            f"--report {page}: the folder {page.parent} is read-only; name a file elsewhere"
        )
    for model_file in (*map(Path, models), *([target] if target is not None else [])):
        if page.resolve() == model_file.resolve():
            raise UsageError(f"--report {page}: is a model's file; name another")
    if page.exists():  # what is read is there
        from graphfix.files import atomic_file, io

        read_files = [Path(x) for x in (feeds, *_options.plugin_files()) if x]
        for model in models:
            with suppress(ModelError):  # the work itself says what is wrong with it
                read_files += io.input_files(io.load(model))
        if any(x.exists() and page.samefile(x) for x in read_files):
            raise UsageError(f"--report {page}: is read for this work; name another")
        atomic_file.resolve_target(page)
    return page


def write_page(
    page: Path, template: str, data: Mapping[str, object], *, quiet: bool, **values: object
) -> None:
    """Write a page, and print its path unless stdout is for data."""
    from graphfix.files import atomic_file
    from graphfix.show.html import render_data_page

    atomic_file.write_text(page, render_data_page(template, data, **values))
    if not quiet:
        _terminal.print_row("report", str(page))


def display_name(file: str) -> str:
    """Return a file's name as the user gave it."""
    return ALIASES.get(file, file)

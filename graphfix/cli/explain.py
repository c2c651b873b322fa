"""``graphfix explain``: the manual of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.errors import PluginError

if TYPE_CHECKING:
    from graphfix.manual import Manual


@click.command()
@click.argument("name", metavar="NAME")
@_options.plugin
def explain(name: str, plugin: tuple[str, ...]) -> int:
    """Print the manual of the pass or profile NAME."""
    from graphfix import registry

    _options.load_plugins(plugin)
    if name in registry.PROFILES:
        click.echo(f"{name} is a profile: a named list of passes, in this order.\n")
        for member in registry.PROFILES[name]:
            click.echo(f"  {member}")
        click.echo("\nMore about one: graphfix explain NAME")
        return 0
    cls = registry.pass_class(name)
    from graphfix.manual import manual_of

    try:
        manual = manual_of(cls)
    except PluginError as error:
        # Only passes in the folder owe a manual; of others, what there is is shown.
        _terminal.remark(str(error))
        click.echo(_terminal.clean((cls.__doc__ or "").strip()))
        return 0
    _print(manual)
    return 0


def _print(manual: Manual) -> None:
    click.echo(f"{click.style(manual.name, bold=True)} ({manual.promise})")
    _prose(manual.summary, "")
    if manual.body:
        click.echo()
        _prose(manual.body, "")
    _head("Why")
    _prose(manual.why)
    if manual.spec is not None:
        _head("Run as")
        click.echo(f"  -p {manual.spec}")
    _head("Before")
    _code(manual.before)
    _head("After")
    _code(manual.after)
    _head("Safety")
    _prose(manual.safety)
    if manual.options:
        _head("Options")
    for option in manual.options:
        click.echo(f"  {option.name}={option.default} ({option.type})")
        _prose(option.text, "      ")


def _head(title: str) -> None:
    click.echo(f"\n{click.style(title, bold=True)}")


def _prose(text: str, indent: str = "  ") -> None:
    """Paragraphs, wrapped anew; one with indented lines or a list keeps its lines."""
    # A terminal needs no markup to show what is code.
    for number, paragraph in enumerate(text.replace("``", "`").split("\n\n")):
        if number:
            click.echo()
        lines = paragraph.splitlines()
        if any(line.startswith((" ", "-", "*")) for line in lines):
            for line in lines:
                click.echo(indent + _terminal.clean(line))
        else:
            _terminal.paragraph(" ".join(lines), indent)


def _code(text: str) -> None:
    # Not wrapped: it is there to be copied.
    for line in _terminal.clean(text).splitlines():
        click.secho(f"  {line}", fg="cyan")

"""``graphfix explain``: the manual of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.errors import PluginError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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
    from rich.console import Console

    _render(manual, Console(width=_terminal.width(), highlight=False))
    return 0


def _render(manual: Manual, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    def section(title: str, *parts: RenderableType) -> None:
        console.print()
        console.print(Text(title, style="bold"))
        for part in parts:
            console.print(Padding(part, (0, 0, 0, 2), expand=False))

    console.print(Text.assemble((manual.name, "bold"), f" ({manual.promise})"))
    console.print(_prose(manual.summary))
    if manual.body:
        console.print()
        console.print(_prose(manual.body))
    section("Why", _prose(manual.why))
    if manual.spec is not None:
        section("Run as", Text(f"-p {manual.spec}"))
    section("Before", _code(manual.before))
    section("After", _code(manual.after))
    section("Safety", _prose(manual.safety))
    if manual.options:
        told = [
            _prose(f"{option.name}={option.default} ({option.type})\n\n    {option.text}")
            for option in manual.options
        ]
        section("Options", *told)


def _prose(text: str) -> RenderableType:
    """Paragraphs to be wrapped anew; what is indented keeps its lines."""
    from rich.text import Text

    paragraphs = []
    # A terminal needs no markup to show what is code.
    for paragraph in _terminal.clean(text).replace("``", "`").split("\n\n"):
        keep = any(line.startswith((" ", "-", "*")) for line in paragraph.splitlines())
        paragraphs.append(paragraph if keep else " ".join(paragraph.split()))
    return Text("\n\n".join(paragraphs))


def _code(text: str) -> RenderableType:
    from rich.text import Text

    return Text(_terminal.clean(text), style="cyan", no_wrap=True, overflow="ignore")

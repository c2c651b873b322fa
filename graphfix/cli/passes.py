"""``graphfix passes``: lists the passes and profiles."""

import dataclasses

import click

from graphfix.cli import _options, _terminal
from graphfix.wording import clean_text


@click.command()
@_options.json_flag
@_options.plugin
def passes(as_json: bool) -> int:
    """List the passes and profiles that -p takes."""
    from graphfix.engine import registry

    _options.load_plugins()
    entries = registry.list_entries()
    if as_json:
        listed = [dataclasses.asdict(entry) for entry in entries]
        _terminal.print_json(_terminal.with_header(passes=listed, profiles=registry.PROFILES))
        return 0
    for entry in entries:
        click.echo(f"{click.style(clean_text(entry.name), bold=True)} ({clean_text(entry.safety)})")
        _terminal.print_paragraph(entry.summary, "    ")
    click.echo("\nProfiles, which -p takes like passes:")
    for name, members in registry.PROFILES.items():
        _terminal.print_paragraph(f"{name} = {', '.join(members)}", "    ")
    click.echo("\nMore about one: graphfix explain NAME")
    return 0

"""``graphfix passes``: which passes there are."""

import dataclasses

import click

from graphfix.cli import _options, _terminal
from graphfix.wording import clean


@click.command()
@_options.json_flag
@_options.plugin
def passes(as_json: bool) -> int:
    """List the passes and profiles that -p takes."""
    from graphfix.engine import registry

    _options.load_plugins()
    found = registry.entries()
    if as_json:
        listed = [dataclasses.asdict(entry) for entry in found]
        _terminal.print_json(_terminal.headed(passes=listed, profiles=registry.PROFILES))
        return 0
    for entry in found:
        click.echo(f"{click.style(clean(entry.name), bold=True)} ({clean(entry.safety)})")
        _terminal.paragraph(entry.summary, "    ")
    click.echo("\nProfiles, which -p takes like passes:")
    for name, members in registry.PROFILES.items():
        _terminal.paragraph(f"{name} = {', '.join(members)}", "    ")
    click.echo("\nMore about one: graphfix explain NAME")
    return 0

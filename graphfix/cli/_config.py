"""``[tool.graphfix]`` in pyproject.toml: defaults of options."""

import tomllib
from pathlib import Path

import click

from graphfix.cli import _terminal
from graphfix.errors import UsageError
from graphfix.wording import did_you_mean

# By the name of the option, which has it on the command line.
_KEYS = {"spec": "profile", "atol": "atol", "exclude": "exclude"}


def apply_defaults(context: click.Context, command: click.Command) -> None:
    """Set the defaults of ``command`` from the nearest pyproject.toml with a graphfix table.

    Raises:
        UsageError: A key is unknown, or the file is no TOML.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        try:
            table = tomllib.loads(file.read_text("utf-8"))["tool"]["graphfix"]
        except (OSError, KeyError):
            continue
        except ValueError as error:
            raise UsageError(f"{file}: is no TOML: {error}") from error
        for key in table.keys() - {*_KEYS.values()}:
            raise UsageError(
                f"{file}: [tool.graphfix] has no {key!r}{did_you_mean(key, _KEYS.values())}"
            )
        if isinstance(table.get("exclude"), str):
            table["exclude"] = [table["exclude"]]
        names = {x.name for x in command.params} - {"spec" if command.name != "run" else ""}
        used = {x: key for x, key in _KEYS.items() if x in names and key in table}
        if used:
            context.default_map = {str(command.name): {x: table[key] for x, key in used.items()}}
            _terminal.print_remark(f"{file}: [tool.graphfix] sets {', '.join(used.values())}")
        return

"""Options that several verbs share, spelled and explained once."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphfix.proof.compare import Tolerance

F = TypeVar("F", bound="Callable[..., object]")

MODEL = "graphfix.model"
"""Where a command's context keeps the model's path, for what is said when it fails."""


def _remember(context: click.Context, _: click.Parameter, value: str) -> str:
    context.meta[MODEL] = value
    return value


model = click.argument("model", metavar="MODEL", callback=_remember)

passes = click.option(
    "-p",
    "--passes",
    "spec",
    metavar="SPEC",
    help="Passes and profiles, separated by commas; options of a pass follow after colons. "
    "Default: the profile directml.",
)

plugin = click.option(
    "--plugin", multiple=True, metavar="FILE.py", help="Take passes from a Python file, too."
)

verbose = click.option("-v", "--verbose", is_flag=True, help="List every node, and every case.")

ep = click.option(
    "--ep",
    type=click.Choice(["cpu", "dml", "cuda"]),
    default="cpu",
    help="Where the repaired model runs to be compared with the original on the CPU: on the CPU "
    "too (default), on DirectML, or on CUDA. Exit code 2 where it is not to be had.",
)
# Its argument is an Ep; graphfix.runtime.python says how a verb uses it.

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def feeding(command: F) -> F:
    """``--dims``, ``--feeds`` and ``--atol``: what to verify with, and how closely."""
    for option in (
        click.option(
            "--atol",
            type=float,
            metavar="X",
            help="Largest difference that passes; of outputs over 1, a share.",
        ),
        click.option("--feeds", metavar="FILE.npz", help="Verify with these inputs, by name."),
        click.option(
            "--dims",
            multiple=True,
            metavar="T=7,40",
            help="Sizes of a symbolic dim to verify at; may be given for several dims.",
        ),
    ):
        command = option(command)
    return command


rtol = click.option(
    "--rtol",
    type=float,
    metavar="X",
    help="Of float16: the largest difference that passes, as a share of the largest element of an "
    "output. Default: 0.01.",
)


def lengths(command: F) -> F:
    """``--dim``, ``--container``, ``--axis``, ``--original``: which clips, and how far padded."""
    for option in (
        click.option(
            "--original",
            metavar="BEFORE.onnx",
            help="The model that runs the clips alone, if it is another one.",
        ),
        click.option(
            "--axis",
            default="",
            metavar="NAME",
            help="The dim that is padded, by name or as INPUT.AXIS, if several could be.",
        ),
        click.option(
            "--container",
            multiple=True,
            metavar="160",
            help="How long to pad to; several with commas. Default: 1.5 and 12 times each clip.",
        ),
        click.option(
            "--dim",
            "--dims",
            "dims",
            multiple=True,
            metavar="T=40,97",
            help="Lengths of the clips, by the name of the symbolic dim; batch=2 puts clips of "
            "different lengths into one container.",
        ),
    ):
        command = option(command)
    return command


padded_ep = click.option(
    "--ep",
    type=click.Choice(["cpu", "dml"]),
    default="cpu",
    help="Where the containers run: on the CPU (default), or on DirectML. Clips alone run on the "
    "CPU.",
)


def containers(given: tuple[str, ...]) -> list[int] | None:
    """``("160,240", "480")`` as [160, 240, 480]; None if nothing was given."""
    found: list[int] = []
    for text in given:
        try:
            found += [int(value) for value in text.split(",")]
        except ValueError:
            raise click.UsageError(f"--container {text}: not whole numbers.") from None
        if min(found) < 1:
            raise click.UsageError(f"--container {text}: a container is at least 1.")
    return found or None


def require_name(output: str | None, plugins: tuple[str, ...]) -> None:
    """Raise a usage error if ``-o`` names no file, or one of the plugins."""
    if output is None:
        return
    if not output.strip():
        raise click.UsageError("-o: names no file.")
    if output == "-":
        raise click.UsageError("-o -: nothing is written to standard output; name a file.")
    if output.endswith(("/", os.sep)):  # a path would forget it
        raise click.UsageError(f"-o {output}: names a folder; name a file in it.")
    path = Path(output)
    for plugin in map(Path, plugins):
        if path.exists() and plugin.exists() and path.samefile(plugin):
            raise click.UsageError(f"-o {output}: is read for this work; name another file.")


def load_plugins(files: tuple[str, ...]) -> None:
    """Make the passes of ``--plugin`` files known.

    Raises:
        PluginError: A file cannot be used.
    """
    if files:
        from graphfix import registry

        for file in files:
            registry.load_plugin(file)


def tolerance(atol: float | None, rtol: float | None = None) -> Tolerance | None:
    """The tolerance that ``--atol`` or ``--rtol`` asks for; None for the default."""
    if rtol is not None:
        if not 0 < rtol < 1 or atol is not None:
            raise click.UsageError(f"--rtol {rtol:g}: is between 0 and 1, and without --atol.")
        from graphfix.proof.compare import HALF_GATE

        cosine = 1.0 - (1.0 - HALF_GATE.cosine) * max(1.0, rtol / HALF_GATE.max_abs)
        return dataclasses.replace(HALF_GATE, max_abs=rtol, cosine=cosine)
    if atol is None:
        return None
    if not atol >= 0:
        raise click.UsageError(f"--atol {atol:g}: a difference is at least 0.")
    from graphfix.proof.compare import Tolerance

    return Tolerance(max_abs=atol)

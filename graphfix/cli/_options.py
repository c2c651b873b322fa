"""Options that several verbs share, spelled and explained once."""

from __future__ import annotations

import dataclasses
import glob
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from graphfix.cli import _terminal
from graphfix.spec.quoting import halves, unquoted
from graphfix.wording import ALIASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphfix.proof.compare import Tolerance

F = TypeVar("F", bound="Callable[..., object]")
Sizes = dict[str, list[int]]
Texts = tuple[str, ...]

MODEL, PLUGINS = "graphfix.model", "graphfix.plugins"
"""Where a command's context keeps the model's path, for what is said when it fails, and plugins."""
_MOST = 1 << 40


def _remember(context: click.Context, option: click.Parameter, value: str) -> str:
    context.meta[MODEL] = value = from_stdin(context, option, value)
    return value


def _spooled(context: click.Context, name: str) -> Path:
    """A file for what goes through a standard stream; it goes with the command."""
    from graphfix.runtime.scratch import Folder

    folder = context.with_resource(Folder()).path
    path = folder / f"{name}.onnx"
    # Weights in other files are not there; nobody can put them into this folder.
    ALIASES[f"{folder}; put it there"] = f"{name}; name the model's file instead of -"
    ALIASES[str(path)] = name
    return path


def from_stdin(context: click.Context, _: click.Parameter, value: str) -> str:
    """The path of a model; of ``-``, that of a file with what comes from stdin."""
    if value != "-" or context.resilient_parsing:
        return value
    path = _spooled(context, "stdin")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


def to_stdout(context: click.Context) -> str:
    """A file for ``-o -``, which :func:`print_file` prints."""
    if _terminal.data().isatty():
        raise click.UsageError("-o -: stdout is a terminal; pipe it on, or name a file.")
    return str(_spooled(context, "stdout"))


def _hush(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.with_resource(_terminal.hushed())


def _keep(context: click.Context, _: click.Parameter, files: Texts) -> None:
    context.meta[PLUGINS] = files


def sizes(_: click.Context, option: click.Parameter, given: Texts) -> Sizes | None:
    """``("T=7,40", "B=1")`` as {"T": [7, 40], "B": [1]}; None if nothing was given."""
    found: Sizes = {}
    for text in given:
        said = f"{option.opts[0]} {text}"
        name, equals, values = halves(text, "=")
        if not (equals and name.strip()):
            raise click.UsageError(f"{said}: write NAME=SIZE such as T=7.")
        wrong = f"{said}: {values!r} are not whole numbers."
        found.setdefault(unquoted(name.strip()), []).extend(_whole(values, said, wrong, "size"))
    return found or None


def containers(_: click.Context, option: click.Parameter, given: Texts) -> list[int] | None:
    """``("160,240", "480")`` as [160, 240, 480]; None if nothing was given."""
    found: list[int] = []
    for text in given:
        said = f"{option.opts[0]} {text}"
        found += _whole(text, said, f"{said}: not whole numbers.", "container")
    return found or None


def _whole(values: str, said: str, wrong: str, what: str) -> list[int]:
    try:
        numbers = [int(value) for value in values.split(",")]
    except ValueError:
        raise click.UsageError(wrong) from None
    if min(numbers) < 1:
        raise click.UsageError(f"{said}: a {what} is at least 1.")
    if max(numbers) > _MOST:
        raise click.UsageError(f"{said}: a {what} is at most {_MOST:,}.")
    return numbers


def _expanded(context: click.Context, option: click.Parameter, given: Texts) -> Texts:
    """Patterns as the files that they match: not every shell does that."""
    found: list[str] = []
    for text in (from_stdin(context, option, x) for x in given):
        if Path(text).exists() or not glob.has_magic(text):
            found.append(text)
            continue
        matched = sorted(glob.glob(text, recursive=True))  # noqa: PTH207  (absolute ones, too)
        if not matched:
            raise click.UsageError(f"{text}: matches no file.")
        found += matched
    return tuple(dict.fromkeys(found))


FILE = click.Path(readable=False)
"""A file that shells complete; what is wrong with it is said where it is read."""
model = click.argument("model", metavar="MODEL", type=FILE, callback=_remember)
models = click.argument(
    "models", metavar="MODEL ...", type=FILE, nargs=-1, required=True, callback=_expanded
)

passes = click.option(
    "-p",
    "--passes",
    "spec",
    metavar="SPEC",
    help="Passes and profiles, separated by commas; options of a pass follow after colons. "
    "Default: the profile directml.",
)

plugin = click.option(
    "--plugin",
    multiple=True,
    metavar="FILE.py",
    callback=_keep,
    expose_value=False,
    help="Take passes from a Python file, too.",
)

quiet = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    is_eager=True,  # before what others have to say
    expose_value=False,
    callback=_hush,
    help="Print nothing but errors, and what --json or -o - asks for.",
)

exclude = click.option(
    "--exclude",
    multiple=True,
    metavar="NODE",
    help="Leave this node out: repair nothing at it, say nothing of it. A pattern such as "
    "'*/decoder/*' stands for several.",
)


def where(known: Sequence[str], default: str, text: str) -> Callable[[F], F]:
    """``--ep``: where something runs, or is to run."""
    return click.option("--ep", type=click.Choice(known), default=default, help=text)


ep = where(
    ["cpu", "dml", "cuda"],
    "cpu",
    "Where the repaired model runs to be compared with the original on the CPU: on the CPU too "
    "(default), on DirectML, or on CUDA. Exit code 2 where it is unavailable.",
)
# Its argument is an Ep; graphfix.runtime.python says how a verb uses it.


def dims(example: str, text: str, name: str = "--dims") -> Callable[[F], F]:
    """Sizes of symbolic dims, by name: one option in all verbs, spelled ``--dim`` as well."""
    names = (name, "--dim", "dims") if name == "--dims" else (name,)
    return click.option(*names, multiple=True, callback=sizes, metavar=example, help=text)


def flag(*names: str, text: str) -> Callable[[F], F]:
    """What is asked for, or not."""
    return click.option(*names, is_flag=True, help=text)


verbose = flag("-v", "--verbose", text="List every node, and every case.")
json_flag = flag("--json", "as_json", text="Print JSON on stdout.")


def gate(*names: str, text: str) -> Callable[[F], F]:
    """How far numbers may be apart."""
    return click.option(*names, type=float, metavar="X", help=text)


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one, in the order in which help lists them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


feeding = _all(
    dims("T=7,40", "Sizes of a symbolic dim to verify at; may be given for several dims."),
    click.option("--feeds", metavar="FILE.npz", help="Verify with these inputs, by name."),
    gate("--atol", text="Largest difference that passes; of outputs over 1, a share."),
)
"""What to verify with, and how closely."""

rtol = gate(
    "--rtol",
    text="Of float16: the largest difference that passes, as a share of the largest element of an "
    "output. Default: 0.01.",
)


lengths = _all(
    dims(
        "T=40,97",
        "Lengths of the clips, by the name of the symbolic dim; batch=2 puts clips of different "
        "lengths into one container.",
    ),
    click.option(
        "--container",
        multiple=True,
        callback=containers,
        metavar="160",
        help="How long to pad to; several with commas. Default: 1.5 and 12 times each clip.",
    ),
    click.option(
        "--axis",
        default="",
        metavar="NAME",
        help="The dim that is padded, by name or as INPUT.AXIS, if several could be.",
    ),
    click.option(
        "--original",
        metavar="BEFORE.onnx",
        help="The model that runs the clips alone, if it is another one.",
    ),
)
"""Which clips, and how far they are padded."""

padded_ep = where(
    ["cpu", "dml"],
    "cpu",
    "Where the containers run: on the CPU (default), or on DirectML. Clips alone run on the CPU.",
)


def plugins() -> Texts:
    """The files of ``--plugin``."""
    found: Texts = click.get_current_context().meta.get(PLUGINS, ())
    return found


def load_plugins() -> None:
    """Make the passes of ``--plugin`` files known.

    Raises:
        PluginError: A file cannot be used.
    """
    if files := plugins():
        from graphfix.engine import registry

        for file in files:
            registry.load_plugin(file)


def require_name(output: str | None) -> None:
    """Raise a usage error if ``-o`` names no file, or one of the plugins."""
    if output is None:
        return
    if not output.strip():
        raise click.UsageError("-o: names no file.")
    if output == "-":
        raise click.UsageError("-o -: only graphfix run writes to stdout; name a file.")
    if output.endswith(("/", os.sep)):  # a path would forget it
        raise click.UsageError(f"-o {output}: names a folder; name a file in it.")
    path = Path(output)
    for file in map(Path, plugins()):
        if path.exists() and file.exists() and path.samefile(file):
            raise click.UsageError(f"-o {output}: is read for this work; name another file.")


def tolerance(
    atol: float | None, rtol: float | None = None, cosine: float | None = None, *, wide: bool = True
) -> Tolerance | None:
    """The tolerance that ``--atol``, ``--rtol`` or ``--cosine`` asks for; None for the default.

    Where the cosine has no option of its own, ``--atol`` widens its gate as well: numbers that may
    be further apart are vectors that may be.
    """
    from graphfix.proof.compare import HALF_GATE, Tolerance

    if atol is not None and not atol >= 0:
        raise click.UsageError(f"--atol {atol:g}: a difference is at least 0.")
    if cosine is not None and not -1 <= cosine <= 1:
        raise click.UsageError(f"--cosine {cosine:g}: a cosine is between -1 and 1.")
    if rtol is not None and (not 0 < rtol < 1 or (atol is not None and given_here("atol"))):
        raise click.UsageError(f"--rtol {rtol:g}: is between 0 and 1, and without --atol.")
    gates, most = (Tolerance(), atol) if rtol is None else (HALF_GATE, rtol)
    if most is not None:
        times = max(1.0, most / gates.max_abs) if wide else 1.0
        gates = dataclasses.replace(gates, max_abs=most, cosine=1.0 - (1.0 - gates.cosine) * times)
    if cosine is not None:
        return dataclasses.replace(gates, cosine=cosine)
    return None if most is None else gates


def given_here(name: str) -> bool:
    """Whether an option is given on the command line, and not in pyproject.toml."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE

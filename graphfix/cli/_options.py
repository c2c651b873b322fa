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
from graphfix.errors import UsageError
from graphfix.providers.table import EVERYWHERE
from graphfix.providers.versions import name_version, parse_name
from graphfix.spec.quoting import partition_outside_quotes, unquote_name
from graphfix.wording import ALIASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphfix.proof.compare import Tolerance

F = TypeVar("F", bound="Callable[..., object]")
Sizes = dict[str, list[int]]
Texts = tuple[str, ...]

MODEL, PLUGINS = "graphfix.model", "graphfix.plugins"
"""Keys of a command's context: the model's path, for error messages, and the plugin files."""
_MOST = 1 << 40


def _remember_model(context: click.Context, option: click.Parameter, value: str) -> str:
    context.meta[MODEL] = value = path_or_stdin(context, option, value)
    return value


def _spool_file(context: click.Context, name: str) -> Path:
    """Return a temporary file for what goes through a standard stream."""
    from graphfix.runtime.scratch import ScratchFolder

    folder = context.with_resource(ScratchFolder()).path
    path = folder / f"{name}.onnx"
    # A model from stdin cannot have weights in other files.
    ALIASES[f"{folder}; put it there"] = f"{name}; name the model's file instead of -"
    ALIASES[str(path)] = name
    return path


def path_or_stdin(context: click.Context, _: click.Parameter, value: str) -> str:
    """Return the path of a model; of ``-``, that of a file with the content of stdin."""
    if value != "-" or context.resilient_parsing:
        return value
    path = _spool_file(context, "stdin")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


def stdout_file(context: click.Context) -> str:
    """Return the path of a file for ``-o -``, which the command copies to stdout."""
    if _terminal.data_stream().isatty():
        raise click.UsageError("-o -: stdout is a terminal; pipe it on, or name a file.")
    return str(_spool_file(context, "stdout"))


def _set_quiet(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.with_resource(_terminal.suppress_output())


def _keep_plugins(context: click.Context, _: click.Parameter, files: Texts) -> None:
    context.meta[PLUGINS] = files


def parse_sizes(_: click.Context, option: click.Parameter, texts: Texts) -> Sizes | None:
    """Parse ``("T=7,40", "B=1")`` as {"T": [7, 40], "B": [1]}; None if empty."""
    sizes_by_dim: Sizes = {}
    for text in texts:
        option_text = f"{option.opts[0]} {text}"
        name, equals, values = partition_outside_quotes(text, "=")
        if not (equals and name.strip()):
            raise click.UsageError(f"{option_text}: write NAME=SIZE such as T=7.")
        wrong = f"{option_text}: {values!r} are not whole numbers."
        sizes_by_dim.setdefault(unquote_name(name.strip()), []).extend(
            _parse_whole_numbers(values, option_text, wrong, "size")
        )
    return sizes_by_dim or None


def parse_containers(_: click.Context, option: click.Parameter, texts: Texts) -> list[int] | None:
    """Parse ``("160,240", "480")`` as [160, 240, 480]; None if empty."""
    numbers: list[int] = []
    for text in texts:
        option_text = f"{option.opts[0]} {text}"
        numbers += _parse_whole_numbers(
            text, option_text, f"{option_text}: not whole numbers.", "container"
        )
    return numbers or None


def _parse_whole_numbers(values: str, option_text: str, wrong: str, noun: str) -> list[int]:
    try:
        numbers = [int(value) for value in values.split(",")]
    except ValueError:
        raise click.UsageError(wrong) from None
    if min(numbers) < 1:
        raise click.UsageError(f"{option_text}: a {noun} is at least 1.")
    if max(numbers) > _MOST:
        raise click.UsageError(f"{option_text}: a {noun} is at most {_MOST:,}.")
    return numbers


def _expand_patterns(context: click.Context, option: click.Parameter, texts: Texts) -> Texts:
    """Expand patterns into the files that they match: not every shell does that."""
    files: list[str] = []
    for text in (path_or_stdin(context, option, x) for x in texts):
        if Path(text).exists() or not glob.has_magic(text):
            files.append(text)
            continue
        matched = sorted(glob.glob(text, recursive=True))  # noqa: PTH207  (absolute ones, too)
        if not matched:
            raise click.UsageError(f"{text}: matches no file.")
        files += matched
    return tuple(dict.fromkeys(files))


FILE = click.Path(readable=False)
"""A file that shells complete; errors are reported where it is read."""
model = click.argument("model", metavar="MODEL", type=FILE, callback=_remember_model)
models = click.argument(
    "models", metavar="MODEL ...", type=FILE, nargs=-1, required=True, callback=_expand_patterns
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
    callback=_keep_plugins,
    expose_value=False,
    help="Take passes from a Python file, too.",
)

quiet = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    is_eager=True,  # before other options print anything
    expose_value=False,
    callback=_set_quiet,
    help="Print nothing but errors, and what --json or -o - asks for.",
)

exclude = click.option(
    "--exclude",
    multiple=True,
    metavar="NODE",
    help="Leave this node out: repair nothing at it, say nothing of it. A pattern such as "
    "'*/decoder/*' stands for several.",
)


class _EpChoice(click.Choice[str]):
    """Providers, each perhaps with a version: ``dml@1.24.4``, ``windowsml``."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the provider, and keep the version that is named."""
        try:
            ep, version = parse_name(value)
        except UsageError as error:
            if "@" in value:
                self.fail(str(error), param, ctx)
            return super().convert(value, param, ctx)
        if version and ep in self.choices:
            name_version(ep, version)
            return ep
        return super().convert(value, param, ctx)


class _EpChoices(_EpChoice):
    """One provider, or several with commas: ``cpu,dml,webgpu``."""

    def convert(  # type: ignore[override]
        self,
        value: str | tuple[str, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | tuple[str, ...]:
        """Return the provider, or a tuple of several without repetitions."""
        if isinstance(value, tuple):
            return value
        places = [super(_EpChoices, self).convert(x, param, ctx) for x in value.split(",")]
        if len(places) > 1 and "auto" in places:
            self.fail("auto is one provider; name those that are compared.", param, ctx)
        return places[0] if len(places) == 1 else tuple(dict.fromkeys(places))


def ep_option(
    choices: Sequence[str], default: str, text: str, *, several: bool = False
) -> Callable[[F], F]:
    """Return the option ``--ep``: where something runs."""
    kind = (_EpChoices if several else _EpChoice)(choices)
    return click.option("--ep", type=kind, default=default, help=text)


ep = ep_option(
    EVERYWHERE,
    "cpu",
    "Where the repaired model runs to be compared with the original on the CPU: on the CPU too "
    "(default), on DirectML, WebGPU or CUDA. Exit code 2 where it is unavailable.",
)
# Its argument is an Ep; graphfix.runtime.python says how a verb uses it.


def dims_option(example: str, text: str, name: str = "--dims") -> Callable[[F], F]:
    """Return an option for sizes of symbolic dims, spelled the same in all verbs."""
    names = (name, "--dim", "dims") if name == "--dims" else (name,)
    return click.option(*names, multiple=True, callback=parse_sizes, metavar=example, help=text)


def flag_option(*names: str, text: str) -> Callable[[F], F]:
    """Return an option that is a flag."""
    return click.option(*names, is_flag=True, help=text)


verbose = flag_option("-v", "--verbose", text="List every node, and every case.")
json_flag = flag_option("--json", "as_json", text="Print JSON on stdout.")


def tolerance_option(*names: str, text: str) -> Callable[[F], F]:
    """Return an option for how far numbers may differ."""
    return click.option(*names, type=float, metavar="X", help=text)


def _combine_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return several options as one decorator, in the order in which help lists them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


feeding = _combine_options(
    dims_option("T=7,40", "Sizes of a symbolic dim to verify at; may be given for several dims."),
    click.option("--feeds", metavar="FILE.npz", help="Verify with these inputs, by name."),
    tolerance_option("--atol", text="Largest difference that passes; of outputs over 1, a share."),
)
"""What to verify with, and how closely."""

rtol = tolerance_option(
    "--rtol",
    text="Of float16: the largest difference that passes, as a share of the largest element of an "
    "output. Default: 0.01.",
)


lengths = _combine_options(
    dims_option(
        "T=40,97",
        "Lengths of the clips, by the name of the symbolic dim; batch=2 puts clips of different "
        "lengths into one container.",
    ),
    click.option(
        "--container",
        multiple=True,
        callback=parse_containers,
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

padded_ep = ep_option(
    EVERYWHERE,
    "cpu",
    "Where the containers run: on the CPU (default), on DirectML, WebGPU or CUDA. Clips alone run "
    "on the CPU.",
)


def plugin_files() -> Texts:
    """Return the files of ``--plugin``."""
    files: Texts = click.get_current_context().meta.get(PLUGINS, ())
    return files


def load_plugins() -> None:
    """Load the passes of the ``--plugin`` files.

    Raises:
        PluginError: A file cannot be used.
    """
    if files := plugin_files():
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
    for file in map(Path, plugin_files()):
        if path.exists() and file.exists() and path.samefile(file):
            raise click.UsageError(f"-o {output}: is read for this work; name another file.")


def build_tolerance(
    atol: float | None, rtol: float | None = None, cosine: float | None = None, *, wide: bool = True
) -> Tolerance | None:
    """Build the tolerance of ``--atol``, ``--rtol`` or ``--cosine``; None for the default.

    Where the cosine has no option of its own, ``--atol`` widens its gate as well: numbers that may
    be further apart are vectors that may be.
    """
    from graphfix.proof.compare import HALF_GATE, Tolerance

    if atol is not None and not atol >= 0:
        raise click.UsageError(f"--atol {atol:g}: a difference is at least 0.")
    if cosine is not None and not -1 <= cosine <= 1:
        raise click.UsageError(f"--cosine {cosine:g}: a cosine is between -1 and 1.")
    if rtol is not None and (not 0 < rtol < 1 or (atol is not None and is_on_command_line("atol"))):
        raise click.UsageError(f"--rtol {rtol:g}: is between 0 and 1, and without --atol.")
    gates, most = (Tolerance(), atol) if rtol is None else (HALF_GATE, rtol)
    if most is not None:
        times = max(1.0, most / gates.max_abs) if wide else 1.0
        gates = dataclasses.replace(gates, max_abs=most, cosine=1.0 - (1.0 - gates.cosine) * times)
    if cosine is not None:
        return dataclasses.replace(gates, cosine=cosine)
    return None if most is None else gates


def is_on_command_line(name: str) -> bool:
    """Return whether an option is on the command line, and not from pyproject.toml."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE

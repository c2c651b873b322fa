"""Pythons that have an execution provider, and whether one is available at all.

All that a verb with ``--ep`` needs, a line each::

    @_options.ep                               # the option; its argument is `ep: Ep`

    require_provider(ep)                       # first: exit code 2 and how to get it, if missing
    with Session(model, ep=ep, free_dims={"T": 500}) as session:
        outputs = session.run(feeds, ["logits"])
    print(f"does not run on {PROVIDERS[ep].label}")

:class:`graphfix.runtime.local_session.Session` is the only access: it runs the model in another
process. That is this Python once more, where it has the provider; else the one that an environment
variable names (``GRAPHFIX_DML_PYTHON``), or that make has set up in ``build``. DirectML exists for
Windows only; on Linux a Windows Python under Wine has it (``make dml``). A graph that kills that
process is a ``RunError`` of the run, or a ``ModelError`` of the session.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal

from graphfix.errors import UsageError
from graphfix.providers.table import PROVIDERS, Ep, variable_of
from graphfix.providers.versions import (
    is_meant,
    known_versions,
    meant_distributions,
    named_version,
)
from graphfix.runtime.process import SESSIONS, Runner

Wanted = Ep | Literal["auto"]

_ROOT = Path(__file__).parents[2]
# On the CPU a session gives its memory back; verifying makes dozens, and to start Python and ONNX
# Runtime again takes a fifth of a second.
_CPU_SESSIONS = 200


def available_providers() -> list[str]:
    """Return the execution providers of this Python's ONNX Runtime, by its own names."""
    import onnxruntime

    names: list[str] = onnxruntime.get_available_providers()
    return names


def has_provider(ep: Ep) -> bool:
    """Return whether this Python itself has a provider; the CPU is in every ONNX Runtime."""
    return ep == "cpu" or PROVIDERS[ep].ort_name in available_providers()


def has_meant_provider(ep: Ep) -> bool:
    """Return whether this Python itself has a provider, in the version that is named if one is."""
    named = named_version(ep)
    return has_provider(ep) and (not named or is_meant(ep, _own_version(), named))


def versions_in_force(ep: Ep, named: str = "") -> tuple[str, ...]:
    """Return the versions that statements about a provider hold for, the oldest first.

    That is the one named, here or in the environment; else that of this Python, if it has the
    provider; else all known ones.
    """
    named = named or named_version(ep)
    return known_versions(ep, named or (_own_version() if has_provider(ep) else ""))


def _own_version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def _split_command(command_line: str) -> tuple[str, ...]:
    """Split a command line; on Windows a backslash is part of a path, and quotes are not."""
    if os.name != "nt":
        return tuple(shlex.split(command_line))
    if os.access(command_line, os.X_OK):  # a path with spaces, and nothing after it
        return (command_line,)
    return tuple(x.strip("\"'") for x in shlex.split(command_line, posix=False))


def find_python(ep: Ep) -> Runner:
    """Return the other Python that has a provider, from the environment or from make.

    Raises:
        UsageError: There is none, or the environment names one that cannot be started.
    """
    provider, variable = PROVIDERS[ep], variable_of(ep)
    meant = meant_distributions(ep)
    if command_line := os.environ.get(variable, "").strip():
        command = _split_command(command_line)
        if shutil.which(command[0]) is None:
            raise UsageError(f"{variable}={command_line}: there is no program {command[0]!r}")
        if Path(command[0]).name in {x.launcher for x in provider.distributions}:
            beside = Path(command[0]).with_name(meant[0].launcher)
            if named_version(ep) and os.access(beside, os.X_OK):
                command = (str(beside), *command[1:])
            return _runner(ep, command, provider.setup_paths)
        in_wine = any("wine" in Path(word).name for word in command)
        return _runner(ep, command, "Z:" if in_wine else "")
    if provider.setup:
        home = Path(os.environ.get(variable_of(ep, "HOME")) or _ROOT / "build" / provider.setup)
        for launcher in (home / x.launcher for x in meant):
            if os.access(launcher, os.X_OK):
                return _runner(ep, (str(launcher),), provider.setup_paths)
    make = f"on Debian, run 'make {provider.setup}' (as root); else " if provider.setup else ""
    advice = (
        f"{make}set {variable} to the command line of a Python with "
        f"{meant[-1].package}, or use --ep cpu"
    )
    raise UsageError(
        f"{provider.label} is unavailable here: this ONNX Runtime does not have it, and no other "
        f"Python is known. {advice[0].upper()}{advice[1:]}"
    )


def _runner(ep: Ep, command: tuple[str, ...], paths: str) -> Runner:
    """Return a Python that has a provider; the environment may say how paths begin there."""
    prefix = os.environ.get(variable_of(ep, "PATHS"), paths)
    return Runner(command, prefix, PROVIDERS[ep].ort_name, version=named_version(ep))


def runner_for(ep: Ep) -> Runner:
    """Return the Python that has a provider, in a process of its own.

    Raises:
        UsageError: The provider is unavailable.
    """
    if not has_meant_provider(ep):
        return find_python(ep)
    sessions = _CPU_SESSIONS if ep == "cpu" else SESSIONS
    return Runner((sys.executable,), provider=PROVIDERS[ep].ort_name, sessions=sessions)


def require_provider(ep: Ep) -> None:
    """Raise if a provider is missing, before anything is run.

    Raises:
        UsageError: The provider is unavailable; with what to install.
    """
    runner_for(ep)


def choose_provider(requested: Wanted) -> tuple[Ep, str]:
    """Return the provider to use, and a remark if it is not what a reader would expect.

    ``"auto"`` is DirectML, or the CPU with the reason why it is not DirectML.

    Raises:
        UsageError: A provider is asked for by name, and unavailable.
    """
    if requested != "auto":
        require_provider(requested)
        return requested, ""
    try:
        require_provider("dml")
    except UsageError as error:
        return "cpu", f"on the CPU, not on DirectML: {error}"
    return "dml", ""

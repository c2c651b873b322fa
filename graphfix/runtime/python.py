"""Pythons that have an execution provider, and whether one is available at all.

All that a verb with ``--ep`` needs, a line each::

    @_options.ep                               # the option; its argument is `ep: Ep`

    require_provider(ep)                       # first: exit code 2 and how to get it, if missing
    with Session(model, ep=ep, free_dims={"T": 500}) as session:
        outputs = session.run(feeds, ["logits"])
    print(f"does not run on {LABELS[ep]}")

:class:`graphfix.runtime.local_session.Session` is the only access: it runs the model in another
process. That is this Python once more, where it has the provider. DirectML exists for Windows only;
on Linux a Windows Python under Wine has it (``make dml`` sets one up). A graph that kills that
process is a ``RunError`` of the run, or a ``ModelError`` of the session.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal

from graphfix.errors import UsageError
from graphfix.runtime.process import SESSIONS, Runner
from graphfix.runtime.provider import DML, PROVIDERS, Ep, available_providers

Wanted = Ep | Literal["auto"]

COMMAND = "GRAPHFIX_DML_PYTHON"
"""The environment variable with the command line of a Python that has onnxruntime-directml."""
PATHS = "GRAPHFIX_DML_PATHS"
r"""What comes before a path of this machine there, such as ``Z:``; ``Z:\host`` for ``make dml``."""
HOME = "GRAPHFIX_DML_HOME"
"""The folder that ``make dml`` has filled, if it is not ``build/dml``."""

_ROOT = Path(__file__).parents[2]
# On the CPU a session gives its memory back; verifying makes dozens, and to start Python and ONNX
# Runtime again takes a fifth of a second.
_CPU_SESSIONS = 200


def has_directml() -> bool:
    """Return whether this Python itself has DirectML."""
    return DML in available_providers()


def _split_command(command_line: str) -> tuple[str, ...]:
    """Split a command line; on Windows a backslash is part of a path, and quotes are not."""
    if os.name != "nt":
        return tuple(shlex.split(command_line))
    if os.access(command_line, os.X_OK):  # a path with spaces, and nothing after it
        return (command_line,)
    return tuple(x.strip("\"'") for x in shlex.split(command_line, posix=False))


def find_directml_python() -> Runner:
    """Return the Python that has DirectML, from the environment or from ``make dml``.

    Raises:
        UsageError: There is none, or the environment names one that cannot be started.
    """
    if command_line := os.environ.get(COMMAND, "").strip():
        command = _split_command(command_line)
        if shutil.which(command[0]) is None:
            raise UsageError(f"{COMMAND}={command_line}: there is no program {command[0]!r}")
        ours = Path(command[0]).name == "dml-python"
        wine = any("wine" in Path(word).name for word in command)
        return Runner(command, os.environ.get(PATHS, "Z:\\host" if ours else "Z:" if wine else ""))
    home = Path(os.environ.get(HOME) or _ROOT / "build" / "dml")
    if os.access(home / "dml-python", os.X_OK):
        return Runner((str(home / "dml-python"),), os.environ.get(PATHS, "Z:\\host"))
    raise UsageError(
        "DirectML is unavailable here: this ONNX Runtime does not have it, and no other Python "
        f"is known. On Debian, run 'make dml' (as root); else set {COMMAND} to the command line "
        "of a Python with onnxruntime-directml, or use --ep cpu"
    )


def runner_for(ep: Ep) -> Runner:
    """Return the Python that has a provider, in a process of its own.

    Raises:
        UsageError: DirectML is wanted and unavailable.
    """
    if ep == "dml" and not has_directml():
        return find_directml_python()
    sessions = _CPU_SESSIONS if ep == "cpu" else SESSIONS
    return Runner((sys.executable,), provider=PROVIDERS[ep], sessions=sessions)


def require_provider(ep: Ep) -> None:
    """Raise if a provider is missing, before anything is run.

    Raises:
        UsageError: The provider is unavailable; with what to install.
    """
    if ep == "dml" and not has_directml():
        find_directml_python()
    if ep == "cuda" and PROVIDERS[ep] not in available_providers():
        raise UsageError(
            "CUDA is unavailable here: this ONNX Runtime does not have it. In an environment of "
            "its own, 'pip install onnxruntime-gpu' on a machine with an NVIDIA GPU and CUDA; or "
            "use --ep cpu"
        )


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

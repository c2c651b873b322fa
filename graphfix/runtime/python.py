"""Which Python has an execution provider, and whether it is available at all.

All that a verb with ``--ep`` needs, a line each::

    @_options.ep                               # the option; its argument is `ep: Ep`

    require(ep)                                # first: exit code 2 and how to get it, if missing
    with Session(model, ep=ep, free_dims={"T": 500}) as session:
        outputs = session.run(feeds, ["logits"])
    print(f"does not run on {LABELS[ep]}")

:class:`graphfix.runtime.local_session.Session` is the one door: it runs the model in another
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
from graphfix.runtime.provider import DML, PROVIDERS, Ep, available

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


def native() -> bool:
    """Whether this Python itself has DirectML."""
    return DML in available()


def _words(given: str) -> tuple[str, ...]:
    """A command line in words; on Windows a backslash is part of a path, and quotes are not."""
    if os.name != "nt":
        return tuple(shlex.split(given))
    if os.access(given, os.X_OK):  # a path with spaces, and nothing after it
        return (given,)
    return tuple(x.strip("\"'") for x in shlex.split(given, posix=False))


def find() -> Runner:
    """The Python that has DirectML, by the environment or where ``make dml`` puts it.

    Raises:
        UsageError: There is none, or the environment names one that cannot be started.
    """
    if given := os.environ.get(COMMAND, "").strip():
        command = _words(given)
        if shutil.which(command[0]) is None:
            raise UsageError(f"{COMMAND}={given}: there is no program {command[0]!r}")
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


def here(ep: Ep) -> Runner:
    """The Python that has a provider, in a process of its own: this one, or that of :func:`find`.

    Raises:
        UsageError: DirectML is wanted and unavailable.
    """
    if ep == "dml" and not native():
        return find()
    sessions = _CPU_SESSIONS if ep == "cpu" else SESSIONS
    return Runner((sys.executable,), provider=PROVIDERS[ep], sessions=sessions)


def require(ep: Ep) -> None:
    """Say that a provider is missing before anything is run, not after half of it.

    Raises:
        UsageError: The provider is unavailable; with what to install.
    """
    if ep == "dml" and not native():
        find()
    if ep == "cuda" and PROVIDERS[ep] not in available():
        raise UsageError(
            "CUDA is unavailable here: this ONNX Runtime does not have it. In an environment of "
            "its own, 'pip install onnxruntime-gpu' on a machine with an NVIDIA GPU and CUDA; or "
            "use --ep cpu"
        )


def choose(wanted: Wanted) -> tuple[Ep, str]:
    """The provider to use, and a remark if it is not what a reader would expect.

    ``"auto"`` is DirectML, or the CPU with the reason why it is not DirectML.

    Raises:
        UsageError: A provider is asked for by name, and unavailable.
    """
    if wanted != "auto":
        require(wanted)
        return wanted, ""
    try:
        require("dml")
    except UsageError as error:
        return "cpu", f"on the CPU, not on DirectML: {error}"
    return "dml", ""

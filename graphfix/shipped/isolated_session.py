"""Clips and steps through a session of a shipped folder, in a process that a crash may end.

The functions are called there, see :func:`graphfix.runtime.isolated_call.call`. A
container that was verified is run here as it will be used, with all of ONNX Runtime's
optimizations: they may die of it, or never end.
"""

import numpy as np

from graphfix.errors import FeedError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.session import Session
from graphfix.shipped.stream import Stream

_open_sessions: dict[str, Session] = {}


def run(folder: str, feeds: Feeds) -> Feeds:
    """Run a clip; return the outputs of the folder by name."""
    session = _session_of(folder)
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def play(folder: str, arrays: Feeds) -> Feeds:
    """Run a sequence of steps through a stream of the folder.

    Args:
        folder: The folder.
        arrays: ``states/NAME`` for what the states are at first, ``0/NAME`` for what the first
            step is fed, and so on; ``beyond/NAME`` for a step that is to be refused.

    Returns:
        ``0/NAME`` for the outputs of the first step, and so on; ``refused`` for whether that was.
    """
    feeds_by_step: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        step, _, name = key.partition("/")
        feeds_by_step.setdefault(step, {})[name] = array
    stream = _session_of(folder).stream(feeds_by_step.pop("states", None))
    beyond = feeds_by_step.pop("beyond", None)
    outputs = stream.play([feeds_by_step[str(index)] for index in range(len(feeds_by_step))])
    return {**outputs, "refused": np.array(beyond is None or refuses_step(stream, beyond))}


def refuses_step(stream: Stream, feeds: Feeds) -> bool:
    """Return whether a stream refuses a step since its caches are full."""
    try:
        stream.run(None, feeds)
    except FeedError as error:
        return "do not fit" in str(error)
    return False


def close(folder: str, _: Feeds) -> Feeds:
    """Close the session of a folder: Windows does not rename or delete files in use."""
    if folder in _open_sessions:
        _open_sessions.pop(folder).close()
    return {}


def _session_of(folder: str) -> Session:
    if folder not in _open_sessions:
        _open_sessions[folder] = Session(folder, providers=["CPUExecutionProvider"])
    return _open_sessions[folder]

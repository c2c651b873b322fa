"""Clips and steps through a session of a shipped folder, in a process that may die of it.

The functions are called there, see :func:`graphfix.runtime.isolated_call.call`. A
container that was verified is run here as it will be used, with all of ONNX Runtime's
optimizations: they may die of it, or never end.
"""

import numpy as np

from graphfix.errors import FeedError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.session import Session
from graphfix.shipped.stream import Stream

_made: dict[str, Session] = {}


def run(folder: str, feeds: Feeds) -> Feeds:
    """What the folder makes of a clip, by the names of its outputs."""
    session = _session(folder)
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def play(folder: str, arrays: Feeds) -> Feeds:
    """What a stream of the folder makes of a sequence of steps.

    Args:
        folder: The folder.
        arrays: ``states/NAME`` for what the states are at first, ``0/NAME`` for what the first
            step is fed, and so on; ``beyond/NAME`` for a step that is to be refused.

    Returns:
        ``0/NAME`` for the outputs of the first step, and so on; ``refused`` for whether that was.
    """
    fed: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        step, _, name = key.partition("/")
        fed.setdefault(step, {})[name] = array
    stream = _session(folder).stream(fed.pop("states", None))
    beyond = fed.pop("beyond", None)
    found = stream.play([fed[str(place)] for place in range(len(fed))])
    return {**found, "refused": np.array(beyond is None or refuses(stream, beyond))}


def refuses(stream: Stream, feeds: Feeds) -> bool:
    """Whether a stream says that its caches are full."""
    try:
        stream.run(None, feeds)
    except FeedError as error:
        return "do not fit" in str(error)
    return False


def close(folder: str, _: Feeds) -> Feeds:
    """Let go of a folder: Windows neither renames nor deletes one with a file that is in use."""
    if folder in _made:
        _made.pop(folder).close()
    return {}


def _session(folder: str) -> Session:
    if folder not in _made:
        _made[folder] = Session(folder, providers=["CPUExecutionProvider"])
    return _made[folder]

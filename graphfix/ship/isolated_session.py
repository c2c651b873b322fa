"""Clips and steps through a session of a shipped folder, in a process that may die of it.

The functions are called there, see :func:`graphfix.runtime.isolated_call.call`. A
container that was verified is run here as it will be used, with all of ONNX Runtime's
optimizations: they may die of it, or never end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphfix.ship.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from graphfix.ship.stream import Stream

    Arrays = Mapping[str, npt.NDArray[Any]]

_made: dict[str, Session] = {}
_streams: dict[str, Stream] = {}


def run(folder: str, feeds: Arrays) -> Arrays:
    """What the folder makes of a clip, by the names of its outputs."""
    session = _session(folder)
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def begin(folder: str, states: Arrays) -> Arrays:
    """Begin a stream, with these states if there are any."""
    _streams[folder] = _session(folder).stream(states or None)
    return {}


def step(folder: str, feeds: Arrays) -> Arrays:
    """What the stream of a folder makes of the next step, by the names of its outputs."""
    stream = _streams[folder]
    return dict(zip(stream.outputs, stream.run(None, feeds), strict=True))


def close(folder: str, _: Arrays) -> Arrays:
    """Let go of a folder: Windows neither renames nor deletes one with a file that is in use."""
    _streams.pop(folder, None)
    if folder in _made:
        _made.pop(folder).close()
    return {}


def _session(folder: str) -> Session:
    if folder not in _made:
        _made[folder] = Session(folder, providers=["CPUExecutionProvider"])
    return _made[folder]

"""Clips through a session of a shipped folder, in a process that may die of it.

:func:`run` and :func:`close` are called there, see :func:`graphfix.runtime.isolated_call.call`. A
container that was verified is run here as it will be used, with all of ONNX Runtime's
optimizations: they may die of it, or never end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphfix.ship.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Arrays = Mapping[str, npt.NDArray[Any]]

_made: dict[str, Session] = {}


def run(folder: str, feeds: Arrays) -> Arrays:
    """What the folder makes of a clip, by the names of its outputs."""
    if folder not in _made:
        _made[folder] = Session(folder, providers=["CPUExecutionProvider"])
    session = _made[folder]
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def close(folder: str, _: Arrays) -> Arrays:
    """Let go of a folder: Windows neither renames nor deletes one with a file that is in use."""
    if folder in _made:
        _made.pop(folder).close()
    return {}

"""What the clock of this machine was worth today: a model timed beside its own copy.

A third of the processes of a timing are the copy's. One model in which it took the same time says
it of the machine for the day; where it did not, the next model brings its own copy again.
"""

import contextlib
import json
import os
from datetime import date
from pathlib import Path

from graphfix.benchmark.timing import CONFIDENCE
from graphfix.files import atomic_file
from graphfix.model_zoo.figures import Json
from graphfix.runtime.provider import Ep

_NO_FILE = (OSError, RuntimeError)
"""What is raised where there is no home, or nothing can be read or written there."""


def today(ep: Ep) -> Json | None:
    """The ratio of a copy to its model that was kept today on this machine, for a provider."""
    with contextlib.suppress(*_NO_FILE, ValueError, KeyError, TypeError):
        said = json.loads(_path(ep).read_text(encoding="utf-8"))
        if isinstance(said, dict) and said.get("day") == date.today().isoformat():
            return {x: float(said[x]) for x in ("value", "low", "high")}
    return None


def keep(ep: Ep, ratio: Json) -> None:
    """Keep a ratio for today, if 1 is in its interval and that is of enough processes."""
    if ratio["low"] <= 1 <= ratio["high"] and ratio["confidence"] >= CONFIDENCE:
        with contextlib.suppress(*_NO_FILE):  # the next model brings its own copy
            _path(ep).parent.mkdir(parents=True, exist_ok=True)
            atomic_file.put_text(_path(ep), json.dumps({**ratio, "day": date.today().isoformat()}))


def _path(ep: Ep) -> Path:
    told = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(told) if told else Path.home() / ".cache") / "graphfix" / f"clock-{ep}.json"

"""How far today's clock of this machine can be trusted: a model timed beside its own copy.

A third of the processes of a timing are the copy's. One model in which it took the same time says
it of the machine for the day; where it did not, the next model brings its own copy again.
"""

import contextlib
import json
from datetime import date
from pathlib import Path

from graphfix.benchmark.timing import CONFIDENCE
from graphfix.files import atomic_file
from graphfix.model_zoo.figures import Json
from graphfix.paths import user_cache_folder
from graphfix.providers.table import Ep

_NO_FILE = (OSError, RuntimeError)
"""What is raised where there is no home, or nothing can be read or written there."""


def load_todays_ratio(ep: Ep) -> Json | None:
    """Load today's ratio of a copy to its model on this machine, or None."""
    with contextlib.suppress(*_NO_FILE, ValueError, KeyError, TypeError):
        stored = json.loads(_ratio_file(ep).read_text(encoding="utf-8"))
        if isinstance(stored, dict) and stored.get("day") == date.today().isoformat():
            return {x: float(stored[x]) for x in ("value", "low", "high")}
    return None


def save_ratio(ep: Ep, ratio: Json) -> None:
    """Save a ratio for today, if 1 is in its interval and enough processes were timed."""
    if ratio["low"] <= 1 <= ratio["high"] and ratio["confidence"] >= CONFIDENCE:
        with contextlib.suppress(*_NO_FILE):  # the next model brings its own copy
            _ratio_file(ep).parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write_text(
                _ratio_file(ep), json.dumps({**ratio, "day": date.today().isoformat()})
            )


def _ratio_file(ep: Ep) -> Path:
    return user_cache_folder() / f"clock-{ep}.json"

"""Running models: inputs made from the model itself, and the proof that a repair kept the numbers.

Importing this package imports no numpy: each name is found when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphfix.measure.case import Case, Cases, Dropped
    from graphfix.measure.compare import OutputDiff, Tolerance
    from graphfix.measure.feeds import make_cases
    from graphfix.measure.locate import Divergence
    from graphfix.measure.padded import PaddedDiff, PaddedVerdict
    from graphfix.measure.poison import poisoned
    from graphfix.measure.probed import Probe, Site
    from graphfix.measure.roles import Role
    from graphfix.measure.runtime import RunError, Session
    from graphfix.measure.verdict import Verdict

_HOMES = {
    "graphfix.measure.compare": ("OutputDiff", "Tolerance"),
    "graphfix.measure.case": ("Case", "Cases", "Dropped"),
    "graphfix.measure.feeds": ("make_cases",),
    "graphfix.measure.poison": ("poisoned",),
    "graphfix.measure.locate": ("Divergence",),
    "graphfix.measure.padded": ("PaddedDiff", "PaddedVerdict"),
    "graphfix.measure.probed": ("Probe", "Site"),
    "graphfix.measure.roles": ("Role",),
    "graphfix.measure.runtime": ("RunError", "Session"),
    "graphfix.measure.verdict": ("Verdict",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

# The functions are graphfix.verify, padded and probe; here are the modules that they live in.
__all__ = [
    "Case",
    "Cases",
    "Divergence",
    "Dropped",
    "OutputDiff",
    "PaddedDiff",
    "PaddedVerdict",
    "Probe",
    "Role",
    "RunError",
    "Session",
    "Site",
    "Tolerance",
    "Verdict",
    "make_cases",
    "poisoned",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'graphfix.measure' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

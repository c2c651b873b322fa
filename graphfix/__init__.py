"""graphfix repairs exported ONNX graphs and proves that the numbers did not change.

>>> import graphfix
>>> model = graphfix.load("model.onnx")                          # doctest: +SKIP
>>> report = graphfix.run(model, "additive-mask,cumsum-index")   # doctest: +SKIP
>>> graphfix.save(model, "model.fixed.onnx")                     # doctest: +SKIP
>>> graphfix.verify("model.onnx", "model.fixed.onnx").ok         # doctest: +SKIP
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from graphfix.version import __version__

if TYPE_CHECKING:
    from graphfix.core import Change, Check, Finding, Match, NodePass, Pass, Result, Skip
    from graphfix.editing.builder import Builder
    from graphfix.engine.pipeline import run
    from graphfix.engine.registry import get_pass, load_plugin
    from graphfix.engine.report import PassReport, Report
    from graphfix.errors import FeedError, GraphfixError, ModelError, PluginError, UsageError
    from graphfix.job import repair_file
    from graphfix.job.checking import check
    from graphfix.model.io import load, save
    from graphfix.model.view import View
    from graphfix.probing.padded import PaddedVerdict, padded
    from graphfix.probing.probe import Probe, probe_padded
    from graphfix.proof.verify import Tolerance, Verdict, verify
    from graphfix.ship.build import ship_file
    from graphfix.ship.session import Session

# onnx-ir takes about a second to import, so each name is imported when it is first asked for.
_HOMES = {
    "graphfix.editing.builder": "Builder",
    "graphfix.core": "Change Check Finding Match NodePass Pass Result Skip",
    "graphfix.errors": "FeedError GraphfixError ModelError PluginError UsageError",
    "graphfix.job.checking": "check",
    "graphfix.job": "repair_file",
    "graphfix.probing.padded": "PaddedVerdict padded",
    "graphfix.probing.probe": "Probe probe_padded",
    "graphfix.proof.verify": "Tolerance Verdict verify",
    "graphfix.model.io": "load save",
    "graphfix.model.view": "View",
    "graphfix.engine.pipeline": "run",
    "graphfix.engine.registry": "get_pass load_plugin",
    "graphfix.engine.report": "PassReport Report",
    "graphfix.ship.build": "ship_file",
    "graphfix.ship.session": "Session",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Builder",
    "Change",
    "Check",
    "FeedError",
    "Finding",
    "GraphfixError",
    "Match",
    "ModelError",
    "NodePass",
    "PaddedVerdict",
    "Pass",
    "PassReport",
    "PluginError",
    "Probe",
    "Report",
    "Result",
    "Session",
    "Skip",
    "Tolerance",
    "UsageError",
    "Verdict",
    "View",
    "__version__",
    "check",
    "get_pass",
    "load",
    "load_plugin",
    "padded",
    "probe_padded",
    "repair_file",
    "run",
    "save",
    "ship_file",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'graphfix' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

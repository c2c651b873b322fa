"""graphfix repairs exported ONNX graphs and proves that the numbers did not change.

>>> import graphfix
>>> graphfix.fix("model.onnx").output        # doctest: +SKIP
'model.fixed.onnx'
>>> fixed = graphfix.fix(proto, "fast")      # doctest: +SKIP
>>> assert graphfix.verify(proto, fixed)     # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING

from graphfix.version import __version__

if TYPE_CHECKING:
    from graphfix.benchmark.bench import bench
    from graphfix.core import Change, Check, Finding, Findings, Match, NodePass, Pass, Result, Skip
    from graphfix.editing.builder import Builder
    from graphfix.engine.pipeline import run
    from graphfix.engine.registry import get_pass, load_plugin
    from graphfix.engine.report import PassReport, Report
    from graphfix.errors import (
        FeedError,
        GraphfixError,
        ModelError,
        PluginError,
        UsageError,
        VerificationError,
    )
    from graphfix.facts.view import View
    from graphfix.files.io import load, save
    from graphfix.job import repair_file
    from graphfix.job.checking import check
    from graphfix.job.explaining import Explanation, explain
    from graphfix.job.fix import fix
    from graphfix.job.planning import plan
    from graphfix.model_zoo.zoo import Zoo, zoo
    from graphfix.probing.padded import PaddedVerdict, padded
    from graphfix.proof.verify import Tolerance, Verdict, verify
    from graphfix.shipped.session import Session
    from graphfix.shipping.build import ship, ship_file

# onnx-ir takes about a second to import, so each name is imported when it is first asked for.
_HOMES = {
    "graphfix.editing.builder": "Builder",
    "graphfix.core": "Change Check Finding Findings Match NodePass Pass Result Skip",
    "graphfix.errors": (
        "FeedError GraphfixError ModelError PluginError UsageError VerificationError"
    ),
    "graphfix.benchmark.bench": "bench",
    "graphfix.job.checking": "check",
    "graphfix.job.explaining": "Explanation explain",
    "graphfix.job.fix": "fix",
    "graphfix.job.planning": "plan",
    "graphfix.job": "repair_file",
    "graphfix.probing.padded": "PaddedVerdict padded",
    "graphfix.proof.verify": "Tolerance Verdict verify",
    "graphfix.files.io": "load save",
    "graphfix.facts.view": "View",
    "graphfix.engine.pipeline": "run",
    "graphfix.engine.registry": "get_pass load_plugin",
    "graphfix.engine.report": "PassReport Report",
    "graphfix.shipping.build": "ship ship_file",
    "graphfix.shipped.session": "Session",
    "graphfix.model_zoo.zoo": "Zoo zoo",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

# What is done with a model; files; passes of one's own; what comes back; what is raised.
__all__ = ["bench", "check", "explain", "fix", "padded", "plan", "run", "ship", "verify", "zoo"]
__all__ += ["load", "repair_file", "save", "ship_file"]
__all__ += ["Builder", "Check", "Match", "NodePass", "Pass", "Skip", "View"]
__all__ += ["get_pass", "load_plugin"]
__all__ += ["Change", "Explanation", "Finding", "Findings", "PaddedVerdict", "PassReport", "Report"]
__all__ += ["Result", "Session", "Tolerance", "Verdict", "Zoo", "__version__"]
__all__ += ["FeedError", "GraphfixError", "ModelError", "PluginError", "UsageError"]
__all__ += ["VerificationError"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'graphfix' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

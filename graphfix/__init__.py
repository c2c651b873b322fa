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
    from graphfix.benchmark.bench_result import Benchmark
    from graphfix.core import Change, Check, Finding, Findings, Match, NodePass, Pass, Result, Skip
    from graphfix.editing.builder import Builder
    from graphfix.engine.pipeline import run
    from graphfix.engine.registry import get_pass, load_plugin
    from graphfix.engine.report import PassReport, Report
    from graphfix.errors import (
        FaultError,
        FeedError,
        GraphfixError,
        ModelError,
        PaddingError,
        PassError,
        PluginError,
        UsageError,
        VerificationError,
    )
    from graphfix.facts.view import View
    from graphfix.files.io import load, save
    from graphfix.job import repair_file
    from graphfix.job.checking import check
    from graphfix.job.comparing import verify
    from graphfix.job.explaining import Explanation, explain
    from graphfix.job.fix import fix
    from graphfix.job.merging import Merged, merge
    from graphfix.job.planning import plan
    from graphfix.model_zoo.zoo import Zoo, zoo
    from graphfix.probing.padded import PaddedVerdict, padded
    from graphfix.proof.compare import Tolerance
    from graphfix.proof.verdict import Verdict
    from graphfix.providers.plan import ProviderPlan
    from graphfix.reducing.reduction import Reduction, reduce
    from graphfix.shipped.session import Session
    from graphfix.shipped.stream import Stream
    from graphfix.shipping.build import ship, ship_file
    from graphfix.shipping.result import Shipped

# onnx-ir takes about a second to import, so each name is imported when it is first asked for.
_HOMES = {
    "graphfix.editing.builder": "Builder",
    "graphfix.core": "Change Check Finding Findings Match NodePass Pass Result Skip",
    "graphfix.errors": (
        "FaultError FeedError GraphfixError ModelError PaddingError PassError PluginError "
        "UsageError VerificationError"
    ),
    "graphfix.benchmark.bench": "bench",
    "graphfix.benchmark.bench_result": "Benchmark",
    "graphfix.providers.plan": "ProviderPlan",
    "graphfix.job.checking": "check",
    "graphfix.job.explaining": "Explanation explain",
    "graphfix.job.fix": "fix",
    "graphfix.job.merging": "Merged merge",
    "graphfix.job.planning": "plan",
    "graphfix.job": "repair_file",
    "graphfix.probing.padded": "PaddedVerdict padded",
    "graphfix.job.comparing": "verify",
    "graphfix.proof.compare": "Tolerance",
    "graphfix.proof.verdict": "Verdict",
    "graphfix.files.io": "load save",
    "graphfix.facts.view": "View",
    "graphfix.engine.pipeline": "run",
    "graphfix.engine.registry": "get_pass load_plugin",
    "graphfix.engine.report": "PassReport Report",
    "graphfix.reducing.reduction": "Reduction reduce",
    "graphfix.shipping.build": "ship ship_file",
    "graphfix.shipping.result": "Shipped",
    "graphfix.shipped.session": "Session",
    "graphfix.shipped.stream": "Stream",
    "graphfix.model_zoo.zoo": "Zoo zoo",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

# Public modules, for whoever imports graphfix alone.
_MODULES = frozenset({"graph", "integrations", "ops", "testing"})

# Verbs; files; passes of one's own; results; deployment; errors.
__all__ = ["bench", "check", "explain", "fix", "merge", "padded", "plan", "reduce", "run"]
__all__ += ["ship", "verify", "zoo"]
__all__ += ["load", "repair_file", "save", "ship_file"]
__all__ += ["Builder", "Check", "Match", "NodePass", "Pass", "Skip", "View"]
__all__ += ["get_pass", "load_plugin"]
__all__ += ["Benchmark", "Change", "Explanation", "Finding", "Findings"]
__all__ += [
    "Merged",
    "PaddedVerdict",
    "PassReport",
    "ProviderPlan",
    "Reduction",
    "Report",
    "Result",
    "Shipped",
    "Tolerance",
    "Verdict",
]
__all__ += ["Session", "Stream", "Zoo", "__version__"]
__all__ += ["FaultError", "FeedError", "GraphfixError", "ModelError", "PaddingError", "PassError"]
__all__ += ["PluginError", "UsageError", "VerificationError"]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"graphfix.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'graphfix' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""A provider that is surveyed: its kernels, and where its tables and what was run are kept."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

import graphfix
from graphfix.facts.view import View
from graphfix.providers import versions
from graphfix.providers.directml.placement import PlacementRules as DirectMLRules
from graphfix.providers.table import DeviceEp
from graphfix.providers.webgpu.placement import PlacementRules as WebGPURules
from graphfix.runtime.process import worker_for
from graphfix.runtime.python import runner_for

if TYPE_CHECKING:
    import onnx

    from graphfix.providers.kernels import KernelTable
    from graphfix.providers.placement import PlacementRules
    from graphfix.runtime.process import Runner

_ROOT = Path(__file__).parents[2]
_FACTS = Path(graphfix.__file__).parent / "providers"
# A session of small nodes leaves some 100 MB under Wine, and a process takes seconds to start.
_SESSIONS = 25


@dataclass(frozen=True)
class Surveyed:
    """A provider that is surveyed.

    Attributes:
        ep: Its name for ``--ep``.
        rules: Which nodes it takes.
        folder: Where its facts are.
    """

    ep: DeviceEp
    rules: type[PlacementRules[Any]]
    folder: Path

    @property
    def kernels(self) -> KernelTable[Any]:
        """Its kernels."""
        return self.rules.table

    @property
    def runner(self) -> Runner:
        """The Python that has it, for a few sessions a process."""
        return dataclasses.replace(runner_for(self.ep), sessions=_SESSIONS)

    @property
    def version(self) -> str:
        """The version that is surveyed."""
        return str(worker_for(self.runner).about["onnxruntime"])

    def table(self, name: str) -> Path:
        """The table of a survey."""
        return self.folder / f"{name}.csv"

    def journal(self, name: str) -> Path:
        """What a survey has run of this version."""
        return _ROOT / "build" / name / f"{self.ep}-{self.version}.csv"

    def takes(self, proto: onnx.ModelProto) -> bool:
        """Whether the first node of a model runs on it."""
        model = ir.from_proto(proto)
        node, shapes = model.graph[0], View(model).shapes
        rules = self.rules(model.graph.opset_imports, shapes)
        kernel = rules.kernel_of(node)
        return kernel is not None and rules.refusal_of(node, kernel) is None


def named(text: str) -> Surveyed:
    """The provider of a name for ``--ep``; a version that is named is the one that is run.

    Raises:
        UsageError: No provider of that name is surveyed.
    """
    ep, version = versions.parse_name(text)
    if version:
        versions.name_version(ep, version)
    if ep not in SURVEYED:
        raise versions.UsageError(f"{text} is not surveyed; {', '.join(SURVEYED)} are")
    return SURVEYED[ep]


SURVEYED: dict[str, Surveyed] = {
    "dml": Surveyed("dml", DirectMLRules, _FACTS / "directml"),
    "webgpu": Surveyed("webgpu", WebGPURules, _FACTS / "webgpu"),
}
"""The providers that are surveyed."""

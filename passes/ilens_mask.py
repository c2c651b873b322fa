"""ilens-mask: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from graphfix.core import Change, Match, Pass, Skip
from graphfix.lengths import analysis, source
from graphfix.lengths.apply import apply, outputs_to_zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir
@dataclass(frozen=True)
class IlensMask(Pass):
    """x"""
    name: ClassVar[str] = "ilens-mask"
    axis: str = ""
    from_: str = ""
    outputs: Literal["keep", "zero"] = "keep"
    floor: float = -1e4
    def sites(self, model):
        found = analysis.analyse(model, source.find(model, self.axis, self.from_))
        for r in found.repairs: yield Match(r.node, note=r.leak)
        for r in found.refusals: yield Skip(r.node, r.reason)
    def repair(self, model):
        found = analysis.analyse(model, source.find(model, self.axis, self.from_))
        if found.refusals:
            for r in found.refusals: yield Skip(r.node, r.reason)
            return
        for repair, at, tensor, removed, added in apply(model, found, self.name, self.floor):
            yield Change(self.name, at, tensor, removed, added, repair.what)

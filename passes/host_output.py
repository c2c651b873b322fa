"""host-output: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphfix.build import PASS_KEY, Builder
from graphfix.core import Change, Match, Pass, Safety, Skip
from graphfix.directml import empty
from graphfix.model.text import path_of
from graphfix.model.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

_SINCE = 15  # Optional and OptionalGetElement


@dataclass(frozen=True)
class EmptySite(Match):
    """A node whose output may be empty.

    Attributes:
        value: The output.
    """

    value: ir.Value


@dataclass(frozen=True)
class HostOutput(Pass):
    """An output that may be empty leaves the device by itself, before the run ends.

    Why:
        The DirectML provider copies what a run gives back in one go, and ends that at the first
        tensor of no elements (ExecutionProvider.cpp, ExecutionProviderImpl::CopyTensors). Run on
        onnxruntime-directml 1.24.4: where one output is empty, the others hold what lay in memory,
        and there is no error. DirectML has no Optional, so ONNX Runtime copies the tensor to the
        host by itself, and there it stays; the other outputs are then right.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N] x) => (float[N] y, int64[1, M] places)
        {
            y = Relu (x)
            places = NonZero (y)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N] x) => (float[N] y, int64[1, M] places)
        {
            y = Relu (x)
            inner = NonZero (y)
            held = Optional (inner)
            places = OptionalGetElement (held)
        }

    Safety:
        Exact. An output whose size follows from those of the inputs is left alone, unless it is 0
        at some of their large sizes; so is one that is made on the CPU, and the only one that is
        made on the device. Below opset 15 there is no Optional.
    """

    name: ClassVar[str] = "host-output"
    safety: ClassVar[Safety] = "exact"

    def sites(self, model: ir.Model) -> Iterator[EmptySite | Skip]:
        """Every output that may be empty, with others beside it."""
        opset = model.graph.opset_imports.get("", 0)
        for value in empty.spoiling(View(model)):
            node = value.producer()
            if node is None:
                continue
            if opset < _SINCE:
                reason = f"Optional is of opset {_SINCE}, and the model of {opset}; export it anew"
                yield Skip(node, reason)
            else:
                yield EmptySite(node, value)

    def message(self, site: Match) -> str:
        """What goes wrong."""
        return "where it makes an empty output, DirectML gives back none of the others"

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Let each pass through an Optional, at the end of the graph."""
        builder = Builder(self.name, View(model))
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            at, tensor = path_of(site.node), site.value.name or ""
            builder.start(site.node)
            builder.append(site.value, lambda x: builder.OptionalGetElement(builder.Optional(x)))
            site.node.metadata_props[PASS_KEY] = self.name  # what it makes has another name
            yield Change(self.name, at, tensor, (), builder.finish())

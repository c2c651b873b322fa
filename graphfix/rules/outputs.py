"""Hazards in what a run gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from graphfix.directml import empty

from .base import Hazard, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.model.view import View


class EmptyOutput(Rule):
    """An output that may be empty, with others beside it.

    Why:
        Outputs are copied from the device in one go, and the DirectML provider ends that at the
        first tensor of no elements (ExecutionProvider.cpp, ExecutionProviderImpl::CopyTensors: it
        returns where it should go on). Run on onnxruntime-directml 1.24.4: where one output is
        empty, the others hold what lay in memory, without an error. So it is where nothing is
        found (NonZero), where all durations are 0, and in a decoder with an If whose branch with
        caches gives an empty tensor for what it does not compute.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        found (float[N] x) => (float[N] y, int64[1, M] places)
        {
            y = Relu (x)
            places = NonZero (y)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        found (float[N] x) => (float[N] y, int64[1, M] places)
        {
            y = Relu (x)
            inner = NonZero (y)
            held = Optional (inner)
            places = OptionalGetElement (held)
        }
    """

    name: ClassVar[str] = "empty-output"
    repaired_by: ClassVar[str | None] = "host-output"

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each such output, at the node that makes it."""
        for value in empty.spoiling(view):
            node = value.producer()
            if node is not None:
                message = f"{value.name!r} may be empty: where it is, the other outputs are wrong"
                yield Hazard(node, message, "warning", self.repaired_by)

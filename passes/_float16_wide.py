"""Which nodes stay in float32, and why, as far as the graph and its constants tell."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.directml.facts import kernel_at
from graphfix.model.narrow import KEPT
from graphfix.model.values import bodies_of, is_op

from ._float16_islands import few_islands
from ._float16_mixed import mixed
from ._float16_norms import statistics
from ._float16_numbers import counted
from ._float16_stay import Stay
from ._float16_types import MADE_BY
from ._float16_unfit import hiding_inputs, unfit_constants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from graphfix.model.formals import Formals

_ANY_TYPE = ("Cast", "Shape", "Size")
_SEQUENCES = frozenset(
    {"SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceAt", "SequenceEmpty"}
    | {"ConcatFromSequence", "SequenceErase", "SequenceMap", "Optional", "OptionalGetElement"}
)
# ONNX Runtime's CPU provider does not load them in float16, at one opset or another (1.31).
_REFUSED = {
    "MeanVarianceNormalization": "its function in ONNX Runtime has constants of float32",
    **dict.fromkeys(MADE_BY.keys() - {"Cast", "Multinomial"}, "ONNX Runtime makes float32 there"),
}
_QUANTIZES = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")


@dataclass
class Wide(Stay):
    """The nodes of a model that stay in float32.

    Attributes:
        keep: Names of nodes, tensors or operators that stay, with ``*`` and ``?``.
        only: Names of what is to change; everything if empty.
        store: Names of constants that are float16 whatever takes them.
    """

    keep: Sequence[str] = ()
    only: Sequence[str] = ()
    store: Sequence[str] = ()

    def __post_init__(self) -> None:
        for node in self.nodes:
            if reason := self._by_itself(node) or self._as_asked(node):
                self.reasons[node] = reason
        mixed(self)
        for node, reason in counted(self.nodes, self.types, self.view):
            self.add(node, reason)
            self._sum_before(node)
        unfit_constants(self)
        hiding_inputs(self)
        statistics(self)
        few_islands(self)

    # One node by itself

    def _by_itself(self, node: ir.Node) -> str:
        if is_op(node, "Constant", "Shape", "Size") or not self.touches(node):
            return ""
        if is_op(node, *_SEQUENCES):  # SequenceMap has a body
            return "a sequence has one type throughout"
        if KEPT in node.metadata_props:
            return node.metadata_props[KEPT]
        if bodies_of(node):
            return ""
        if is_op(node, *_REFUSED):
            return _REFUSED[node.op_type]
        if is_op(node, "BitCast"):
            return "its bits are read as those of another type"
        if node.op_type in _QUANTIZES:
            return "scales of quantized numbers are float32"
        if not is_op(node, "ConstantOfShape") and any(map(_holds_floats, node.attributes.values())):
            return "a tensor of float32 is among its attributes"
        formals = self.types.formals(node)
        if formals is None:
            return f"{node.op_type} of {node.domain!r} is not known, nor what it takes but float32"
        if any(x is not None and self.types.of(x) is None for x in node.inputs) and not all(
            formals.input(i) not in formals.plain
            for i, x in enumerate(node.inputs)
            if x is not None and self.types.of(x) is None
        ):
            return "the type of one of its inputs is not known"
        main = [
            formals.output(i) for i, x in enumerate(node.outputs) if self.types.is_float(x)
        ] or [formals.input(i) for i, x in enumerate(node.inputs) if self.types.is_float(x)]
        if not formals.may_be(main[0], ir.DataType.FLOAT16):
            return f"{node.op_type} has no float16 at opset {self.types.opset(node)}"
        if not self._on_directml(node, main[0]):
            return f"DirectML has no kernel for {node.op_type} in float16"
        return ""

    def _on_directml(self, node: ir.Node, variable: str | None) -> bool:
        kernel = kernel_at(node.op_type, node.domain, self.types.opset(node))
        if kernel is None or variable is None:
            return True
        takes = kernel.takes(variable, ir.DataType.FLOAT16)
        return takes or not kernel.takes(variable, ir.DataType.FLOAT)

    def _as_asked(self, node: ir.Node) -> str:
        if self.only and not _named(node, self.only):
            return "it is not among only="
        if self.keep and (found := _named(node, self.keep)):
            return f"keep={found}"
        return ""

    def stored(self, value: ir.Value) -> bool:
        """Whether a constant is float16 in the file whatever takes it."""
        return any(fnmatch.fnmatchcase(value.name or "", x) for x in self.store)

    def half(self, node: ir.Node, variable: str | None) -> bool:
        """Whether a type variable of a node that changes becomes float16."""
        formals = self.types.formals(node)
        if formals is None or not formals.may_be(variable, ir.DataType.FLOAT16):
            return False
        return self._on_directml(node, variable)

    def takes(self, node: ir.Node, index: int) -> ir.DataType | None:
        """What a node will take where it took float32; None if it takes anything."""
        if is_op(node, *_ANY_TYPE):
            return None
        return self._of(node, lambda formals: formals.input(index))

    def makes(self, node: ir.Node, index: int) -> ir.DataType:
        """What a node will make where it made float32."""
        return self._of(node, lambda formals: formals.output(index))

    def _of(self, node: ir.Node, variable: Callable[[Formals], str | None]) -> ir.DataType:
        if node in self.reasons:
            return ir.DataType.FLOAT
        if bodies_of(node):
            return ir.DataType.FLOAT16
        formals = self.types.formals(node)
        which = None if formals is None else variable(formals)
        return ir.DataType.FLOAT16 if self.half(node, which) else ir.DataType.FLOAT

    # What computes with counts

    def _sum_before(self, node: ir.Node) -> None:
        """A sum that is divided by a count is as large as the length."""
        for value in node.inputs if is_op(node, "Div") else ():
            maker = value.producer() if value is not None else None
            if maker is not None and is_op(maker, "ReduceSum"):
                self.add(maker, "a sum that grows with length")


def _named(node: ir.Node, names: Iterable[str]) -> str:
    """The first of ``names`` that means ``node``."""
    own = (node.op_type, node.name or "", *(x.name or "" for x in node.outputs))
    for name in names:
        if any(fnmatch.fnmatchcase(x, name) for x in own):
            return name
    return ""


def _holds_floats(attribute: ir.Attr) -> bool:
    if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return False
    return attribute.as_tensor().dtype == ir.DataType.FLOAT

"""Which nodes stay in float32, and why, as far as the graph and its constants tell."""

import fnmatch
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.directml.kernel_table import kernel_at
from graphfix.files.half_weights import KEPT
from graphfix.graph.nodes import held_in, is_op
from graphfix.graph.walks import bodies_of
from graphfix.ops.signatures import Formals

from .constant_range import hiding_inputs, unfit_constants
from .constants import WEIGHT, has_weights
from .kept_nodes import Stay
from .number_kinds import counted
from .sums import running_sums, statistics

_ANY_TYPE = ("Cast", "Shape", "Size", "Constant")
_HEAVY = ("MatMul", "Gemm", "Conv", "Einsum", "LSTM", "GRU", "Attention")
_SEQUENCES = (
    *("SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceAt", "SequenceEmpty"),
    *("ConcatFromSequence", "SequenceErase", "SequenceMap", "Optional", "OptionalGetElement"),
)
_MADE = (
    *("EyeLike", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
    *("Bernoulli", "BlackmanWindow", "HannWindow", "HammingWindow", "MelWeightMatrix"),
)
# ONNX Runtime's CPU provider does not load some in float16, at one opset or another (1.31).
_REFUSED = {
    **dict.fromkeys(_SEQUENCES, "a sequence has one type throughout"),
    **dict.fromkeys(_MADE, "ONNX Runtime makes float32 there"),
    "MeanVarianceNormalization": "its function in ONNX Runtime has constants of float32",
    "BitCast": "its bits are read as those of another type",
    "QuantizeLinear": "scales of quantized numbers are float32",
    "DequantizeLinear": "scales of quantized numbers are float32",
    "DynamicQuantizeLinear": "scales of quantized numbers are float32",
}


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
        for node, reason in counted(self.nodes, self.types, self.view):
            self.add(node, reason)
        unfit_constants(self)
        hiding_inputs(self)
        statistics(self)
        running_sums(self)
        light = [x for x in self.nodes if self._is_light(x)]
        enclosed = self._enclosed(light)
        for node in light:
            if node in enclosed or self._casts_around(node, {node}) < self._casts_around(node):
                self.add(node, "between others that stay")

    # One node by itself

    def _by_itself(self, node: ir.Node) -> str:
        if is_op(node, "Constant", "Shape", "Size") or not self.touches(node):
            return ""
        if KEPT in node.metadata_props:
            return node.metadata_props[KEPT]
        if bodies_of(node) and not is_op(node, *_SEQUENCES):
            return ""
        if node.op_type in _REFUSED:
            return _REFUSED[node.op_type]
        held = (tensor.dtype for _, tensor in held_in(node))
        if not is_op(node, "ConstantOfShape") and ir.DataType.FLOAT in held:
            return "a tensor of float32 is among its attributes"
        formals = self.types.formals(node)
        if formals is None:
            return f"{node.op_type} of {node.domain!r} is not known, nor what it takes but float32"
        for i, given in enumerate(node.inputs):
            unknown = given is not None and self.types.of(given) is None
            if unknown and formals.input(i) in formals.plain:
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
        return f"keep={found}" if self.keep and (found := _named(node, self.keep)) else ""

    def stored(self, value: ir.Value) -> bool:
        """Whether a constant is float16 in the file whatever takes it."""
        return any(fnmatch.fnmatchcase(value.name or "", x) for x in self.store)

    def narrows(self, value: ir.Value, size: int) -> bool:
        """Whether a constant becomes float16; a small one loses nothing for those that stay."""
        wanted = {self.takes(use.node, use.idx) for use in value.uses()}
        if value.is_graph_output():
            owner = self.view.owner(value.graph)
            if owner is None:
                return False
            wanted.add(self._of(owner, lambda _: None))
        small = ir.DataType.FLOAT in wanted and size <= WEIGHT
        return self.stored(value) or (ir.DataType.FLOAT16 in wanted and not small)

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
        may_be = formals is not None and formals.may_be(which, ir.DataType.FLOAT16)
        half = may_be and self._on_directml(node, which)
        return ir.DataType.FLOAT16 if half else ir.DataType.FLOAT

    # Few Casts

    def _is_light(self, node: ir.Node) -> bool:
        """Whether an operator computes little, and may stay for the sake of the Casts around it."""
        last = any(x.is_graph_output() for x in node.outputs)
        return not (
            last or bodies_of(node) or has_weights(node) or is_op(node, *_ANY_TYPE, *_HEAVY)
        )

    def _is_typed(self, node: ir.Node) -> bool:
        """Whether it matters to a node what type it takes; a Cast of float32 to float32 is none."""
        if is_op(node, "Cast"):
            return self.types.is_float(node.inputs[0]) and self.types.is_float(node.outputs[0])
        return not is_op(node, *_ANY_TYPE)

    def _enclosed(self, light: Sequence[ir.Node]) -> set[ir.Node]:
        """What is made of what stays alone, and is taken by what stays alone."""
        behind, before = set(self.reasons), set(self.reasons)
        for node in light:
            given = [x.producer() for x in node.inputs if x is not None and self.types.is_float(x)]
            made = [x for x in given if x is not None and not is_op(x, "Constant")]
            if made and all(x in behind for x in made):
                behind.add(node)
        for node in reversed(light):
            if all(use.node in before for x in node.outputs for use in x.uses()):
                before.add(node)
        return behind & before

    def _casts_around(self, node: ir.Node, more: Collection[ir.Node] = ()) -> int:
        """How many tensors around a node change their type if ``more`` stay as well."""
        count = 0
        for value in {x for x in (*node.inputs, *node.outputs) if self.types.is_float(x)}:
            maker = value.producer() if value is not None else None
            if value is None or maker is None or is_op(maker, "Constant"):
                continue
            ends = (maker, *(x.node for x in value.uses() if self._is_typed(x.node)))
            count += len({x in self.reasons or x in more for x in ends}) > 1
        return count


def _named(node: ir.Node, names: Iterable[str]) -> str:
    """The first of ``names`` that means ``node``."""
    own = (node.op_type, node.name or "", *(x.name or "" for x in node.outputs))
    return next((name for name in names if any(fnmatch.fnmatchcase(x, name) for x in own)), "")

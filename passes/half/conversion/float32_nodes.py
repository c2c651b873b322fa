"""Nodes that stay in float32, and why, by what the graph and its constants show."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix import ops
from graphfix.files.half_weights import KEPT_IN_FLOAT32_KEY
from graphfix.graph.nodes import is_op, tensor_attributes
from graphfix.graph.walks import bodies_of
from graphfix.ops.signatures import OpSignature
from graphfix.providers.directml.kernel_table import kernel_at

from .constant_range import find_hiding_inputs, keep_unfit_constants
from .constants import WEIGHT, has_weights
from .kept_nodes import KeptNodes
from .name_patterns import NamePatterns
from .number_kinds import find_counting_nodes
from .sums import keep_running_sums, keep_statistics

# Their inputs may be of any type. Not so the second of a CastLike.
_TAKES_ANY_TYPE = ops.MEASURES | ops.named("Cast Constant")
# Worth float16, with a weight or without.
_HEAVY = ops.PRODUCTS | ops.CONVOLVES | ops.RECURRENT | ops.ATTENTIONS
# ONNX Runtime's CPU provider does not load some in float16, at one opset or another (1.31).
_MADE_IN_FLOAT32 = ops.RANDOM | ops.named(
    "EyeLike BlackmanWindow HannWindow HammingWindow MelWeightMatrix"
)


@dataclass
class Float32Nodes(KeptNodes):
    """The nodes of a model that stay in float32.

    Attributes:
        keep: Patterns (``*``, ``?``) of nodes, tensors or operators that stay in float32.
        only: Patterns of what may change; everything if empty.
        store: Patterns of constants that are stored in float16 whatever reads them.
    """

    keep: NamePatterns = field(default_factory=NamePatterns)
    only: NamePatterns = field(default_factory=NamePatterns)
    store: NamePatterns = field(default_factory=NamePatterns)

    def __post_init__(self) -> None:
        for node in self.nodes:
            if reason := self._intrinsic_reason(node) or self._requested_reason(node):
                self.reasons[node] = reason
        for node, reason in find_counting_nodes(self.nodes, self.types, self.view):
            self.keep_node(node, reason)
        keep_unfit_constants(self)
        find_hiding_inputs(self)
        keep_statistics(self)
        keep_running_sums(self)
        light = [x for x in self.nodes if self._is_light(x)]
        enclosed = self._enclosed_nodes(light)
        for node in light:
            if node in enclosed or self._casts_around(node, {node}) < self._casts_around(node):
                self.keep_node(node, "between others that stay")

    # One node by itself

    def _intrinsic_reason(self, node: ir.Node) -> str:
        """Return why a node cannot be in float16, whatever is around it; "" if it can."""
        if is_op(node, "Constant") or node in ops.MEASURES or not self.uses_float32(node):
            return ""
        if KEPT_IN_FLOAT32_KEY in node.metadata_props:
            return node.metadata_props[KEPT_IN_FLOAT32_KEY]
        if bodies_of(node) and node not in ops.SEQUENCES:
            return ""
        return _reason_of_operator(node) or self._reason_of_types(node)

    def _reason_of_types(self, node: ir.Node) -> str:
        """Return why the types that an operator takes keep a node in float32, or ""."""
        formals = self.types.signature_of(node)
        if formals is None:
            return f"{node.op_type} of {node.domain!r} is not known, nor what it takes but float32"
        for i, operand in enumerate(node.inputs):
            unknown = operand is not None and self.types.dtype_of(operand) is None
            if unknown and formals.input_variable(i) in formals.tensor_only:
                return "the type of one of its inputs is not known"
        variable = self._float_variable(node, formals)
        if not formals.allows_dtype(variable, ir.DataType.FLOAT16):
            return f"{node.op_type} has no float16 at opset {self.types.opset_for(node)}"
        if not self._has_directml_kernel(node, variable):
            return f"DirectML has no kernel for {node.op_type} in float16"
        return ""

    def _float_variable(self, node: ir.Node, formals: OpSignature) -> str | None:
        """Return the type variable of the first float32 output, or else of the first input."""
        for i, output in enumerate(node.outputs):
            if self.types.is_float(output):
                return formals.output_variable(i)
        is_float = [self.types.is_float(operand) for operand in node.inputs]
        return formals.input_variable(is_float.index(True))

    def _has_directml_kernel(self, node: ir.Node, variable: str | None) -> bool:
        kernel = kernel_at(node.op_type, node.domain, self.types.opset_for(node))
        if kernel is None or variable is None:
            return True
        takes_half = kernel.accepts_type(variable, ir.DataType.FLOAT16)
        return takes_half or not kernel.accepts_type(variable, ir.DataType.FLOAT)

    def _requested_reason(self, node: ir.Node) -> str:
        names = (node.op_type, node.name or "", *(x.name or "" for x in node.outputs))
        if self.only.patterns and not self.only.first_match(names):
            return "it is not among only="
        pattern = self.keep.first_match(names)
        return f"keep={pattern}" if pattern else ""

    def is_stored_half(self, value: ir.Value) -> bool:
        """Return whether a constant is stored in float16 whatever reads it."""
        return bool(self.store.first_match([value.name or ""]))

    def becomes_half(self, value: ir.Value, size: int) -> bool:
        """Return whether a constant becomes float16; small ones stay for float32 readers."""
        reader_dtypes = {self.input_dtype(use.node, use.idx) for use in value.uses()}
        if value.is_graph_output():
            owner = self.view.owner_of_body(value.graph)
            if owner is None:
                return False
            reader_dtypes.add(self._dtype_for(owner, lambda _: None))
        small = ir.DataType.FLOAT in reader_dtypes and size <= WEIGHT
        return self.is_stored_half(value) or (ir.DataType.FLOAT16 in reader_dtypes and not small)

    def input_dtype(self, node: ir.Node, index: int) -> ir.DataType | None:
        """Return the type that a node takes instead of float32, or None if it takes any."""
        if node in _TAKES_ANY_TYPE:
            return None
        return self._dtype_for(node, lambda formals: formals.input_variable(index))

    def output_dtype(self, node: ir.Node, index: int) -> ir.DataType:
        """Return the type that a node outputs instead of float32."""
        return self._dtype_for(node, lambda formals: formals.output_variable(index))

    def _dtype_for(
        self, node: ir.Node, variable_of: Callable[[OpSignature], str | None]
    ) -> ir.DataType:
        """Return the type that a node has instead of float32, for one of its type variables."""
        if node in self.reasons:
            return ir.DataType.FLOAT
        if bodies_of(node):
            return ir.DataType.FLOAT16
        formals = self.types.signature_of(node)
        type_variable = None if formals is None else variable_of(formals)
        may_be = formals is not None and formals.allows_dtype(type_variable, ir.DataType.FLOAT16)
        half = may_be and self._has_directml_kernel(node, type_variable)
        return ir.DataType.FLOAT16 if half else ir.DataType.FLOAT

    # Few Casts

    def _is_light(self, node: ir.Node) -> bool:
        """Return whether a node computes little, so that it may stay to save Casts."""
        is_output = any(x.is_graph_output() for x in node.outputs)
        is_fixed = is_output or node in _TAKES_ANY_TYPE or bool(bodies_of(node))
        return not (is_fixed or has_weights(node) or node in _HEAVY)

    def _is_typed(self, node: ir.Node) -> bool:
        """Return whether the type of its input matters to a node."""
        if is_op(node, "Cast"):
            return self.types.is_float(node.inputs[0]) and self.types.is_float(node.outputs[0])
        return node not in _TAKES_ANY_TYPE

    def _enclosed_nodes(self, light: Sequence[ir.Node]) -> set[ir.Node]:
        """Return the nodes whose producers and readers all stay in float32."""
        after, before = set(self.reasons), set(self.reasons)
        for node in light:
            producers = [
                x.producer() for x in node.inputs if x is not None and self.types.is_float(x)
            ]
            sources = [x for x in producers if x is not None and not is_op(x, "Constant")]
            if sources and all(x in after for x in sources):
                after.add(node)
        for node in reversed(light):
            if all(use.node in before for x in node.outputs for use in x.uses()):
                before.add(node)
        return after & before

    def _casts_around(self, node: ir.Node, also_kept: Collection[ir.Node] = ()) -> int:
        """Return how many tensors around a node change type if ``also_kept`` stay as well."""
        count = 0
        for value in {x for x in (*node.inputs, *node.outputs) if self.types.is_float(x)}:
            producer = value.producer() if value is not None else None
            if value is None or producer is None or is_op(producer, "Constant"):
                continue
            ends = (producer, *(x.node for x in value.uses() if self._is_typed(x.node)))
            count += len({x in self.reasons or x in also_kept for x in ends}) > 1
        return count


def _reason_of_operator(node: ir.Node) -> str:
    """Return why what a node computes keeps it in float32, or ""."""
    if node in ops.SEQUENCES:
        return "a sequence has one type throughout"
    if node in _MADE_IN_FLOAT32:
        return "ONNX Runtime makes float32 there"
    if node in ops.QUANTIZES:
        return "scales of quantized numbers are float32"
    if is_op(node, "MeanVarianceNormalization"):
        return "its function in ONNX Runtime has constants of float32"
    if is_op(node, "BitCast"):
        return "its bits are read as those of another type"
    attribute_dtypes = (tensor.dtype for _, tensor in tensor_attributes(node))
    if not is_op(node, "ConstantOfShape") and ir.DataType.FLOAT in attribute_dtypes:
        return "a tensor of float32 is among its attributes"
    return ""

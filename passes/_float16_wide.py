"""Which nodes stay in float32, and why, as far as the graph and its constants tell."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.directml.facts import kernel_for, since_version
from graphfix.model.narrow import HALF_MAX, HALF_NORMAL, KEPT, Extent, extent_of, narrow
from graphfix.model.values import bodies_of, is_op, nodes_of, scalar_of, tensor_in

from ._float16_numbers import counted
from ._float16_types import Types
from ._masks import reach_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from graphfix.model.view import View

# Twice this, with a score beside it, is still a number in float16; exp of it is 0.
FLOOR = 30_000.0
# Constants with more elements than this are weights.
WEIGHT = 1024
_MASK = 1 << 22

_ANY_TYPE = ("Cast", "Shape", "Size")
_SEQUENCES = frozenset(
    {"SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceAt", "SequenceEmpty"}
    | {"ConcatFromSequence", "SequenceErase", "SequenceMap", "Optional", "OptionalGetElement"}
)
_QUANTIZES = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_BOUNDS = frozenset(
    {"Clip", "Min", "Max", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"}
)
_SQUARED = ("ReduceMean", "ReduceSum", "GlobalAveragePool", "AveragePool")
_STATISTICS = ("Add", "Sqrt", "Reciprocal", "Pow", "Div", "Clip", "Max", "Mul")
_OF_SMALL = ("Log", "Sqrt", "Reciprocal", "Pow", "Div")
_PLAIN = frozenset(
    {"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile"}
    | {"Slice", "Split", "Gather", "Concat", "Pad", "Neg", "Abs", "Where", "Dropout"}
)


@dataclass
class Wide:
    """The nodes of a model that stay in float32.

    Attributes:
        view: The model.
        types: The types of its values.
        keep: Names of nodes, tensors or operators that stay, with ``*`` and ``?``.
        only: Names of what is to change; everything if empty.
        store: Names of constants that are float16 whatever takes them.
        reasons: Why a node stays.
        masks: Constants that hide scores and are lower than float16 goes.
        unfit: What was found of constants that float16 does not hold, in words.
    """

    view: View
    types: Types
    keep: Sequence[str] = ()
    only: Sequence[str] = ()
    store: Sequence[str] = ()
    reasons: dict[ir.Node, str] = field(default_factory=dict)
    masks: dict[ir.Value, float] = field(default_factory=dict)
    unfit: list[tuple[ir.Value, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in self.nodes:
            if reason := self._by_itself(node) or self._as_asked(node):
                self.reasons[node] = reason
        self._of_mixed()
        for node, reason in counted(self.nodes, self.types, self.view):
            self._add(node, reason)
            self._sum_before(node)
        self._unfit_constants()
        self._statistics()
        self._between()

    @cached_property
    def nodes(self) -> list[ir.Node]:
        """Every node, each after what it takes."""
        return list(nodes_of(self.view.model.graph))

    def _add(self, node: ir.Node | None, reason: str) -> None:
        if node is not None and self.touches(node):
            self.reasons.setdefault(node, reason)

    def touches(self, node: ir.Node) -> bool:
        """Whether a node takes or makes float32."""
        return any(map(self.types.is_float, (*node.inputs, *node.outputs)))

    # One node by itself

    def _by_itself(self, node: ir.Node) -> str:
        if is_op(node, "Constant", "Shape", "Size") or not self.touches(node):
            return ""
        if bodies_of(node):
            return ""
        if KEPT in node.metadata_props:
            return node.metadata_props[KEPT]
        if is_op(node, *_SEQUENCES):
            return "a sequence has one type throughout"
        if node.op_type in _QUANTIZES:
            return "scales of quantized numbers are float32"
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
        since = since_version(node.op_type, node.domain, self.types.opset(node))
        kernel = None if since is None else kernel_for(node.op_type, node.domain, since)
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
        if node in self.reasons:
            return ir.DataType.FLOAT
        if bodies_of(node):
            return ir.DataType.FLOAT16
        formals = self.types.formals(node)
        variable = None if formals is None else formals.input(index)
        return ir.DataType.FLOAT16 if self.half(node, variable) else ir.DataType.FLOAT

    def makes(self, node: ir.Node, index: int) -> ir.DataType:
        """What a node will make where it made float32."""
        if node in self.reasons:
            return ir.DataType.FLOAT
        if bodies_of(node):
            return ir.DataType.FLOAT16
        formals = self.types.formals(node)
        variable = None if formals is None else formals.output(index)
        return ir.DataType.FLOAT16 if self.half(node, variable) else ir.DataType.FLOAT

    # What the model itself has in float32

    def _of_mixed(self) -> None:
        """What starts with a Cast from float16 to float32 was meant to, if it has no weights."""
        halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        roots: dict[ir.Node, ir.Node] = {}
        for node in self.nodes:
            if is_op(node, "Cast") and self.types.of(node.inputs[0]) in halves:
                if self.types.is_float(node.outputs[0]):
                    roots[node] = node
                continue
            given = [x for x in node.inputs if self.types.is_float(x) and not _is_constant(x)]
            makers = [x.producer() for x in given if x is not None]
            if makers and all(x in roots for x in makers) and not is_op(node, *_ANY_TYPE):
                first = _root(roots, makers[0])
                roots[node] = first
                for maker in makers[1:]:
                    roots[_root(roots, maker)] = first
        heavy = {_root(roots, x) for x in roots if _has_weights(x) and KEPT not in x.metadata_props}
        for node in roots:
            if _root(roots, node) not in heavy:
                self._add(node, "the model itself has it in float32")

    # What computes with counts

    def _sum_before(self, node: ir.Node) -> None:
        """A sum that is divided by a count is as large as the length."""
        for value in node.inputs if is_op(node, "Div") else ():
            maker = value.producer() if value is not None else None
            if maker is not None and is_op(maker, "ReduceSum"):
                self._add(maker, "a sum that grows with length")

    # What float16 does not hold

    def _unfit_constants(self) -> None:
        for value, tensor in constants_of(self.view.model.graph):
            if not self.types.is_float(value) or not value.uses() or self.all_wide(value):
                continue
            extent = extent_of(tensor)
            if extent.beyond or (extent.largest > FLOOR and extent.size <= _MASK):
                self._beyond(value, extent)
            elif _is_lost(extent):
                self._lost(value, extent)

    def stored(self, value: ir.Value) -> bool:
        """Whether a constant is float16 in the file whatever takes it."""
        return any(fnmatch.fnmatchcase(value.name or "", x) for x in self.store)

    def all_wide(self, value: ir.Value) -> bool:
        """Whether whatever takes a value stays in float32."""
        return not value.is_graph_output() and all(x.node in self.reasons for x in value.uses())

    def _beyond(self, value: ir.Value, extent: Extent) -> None:
        if extent.size <= _MASK and (reach := reach_of(value, self.view, to_bool=True)).softmaxes:
            self.masks[value] = FLOOR / min(reach.scale, 1.0)
            return
        if not extent.beyond:
            return
        what = f"{value.name!r} reaches {extent.largest:.3g}, float16 {HALF_MAX:g}"
        self.unfit.append((value, what))
        for use in value.uses():
            if not is_op(use.node, *_BOUNDS):  # infinity bounds what is in float16 as well
                self._add(use.node, what)

    def _lost(self, value: ir.Value, extent: Extent) -> None:
        what = f"{value.name!r} is {extent.largest:.3g} at most, too little for float16"
        self.unfit.append((value, what))
        for use in value.uses():
            addend = is_op(use.node, "Add", "Sub") or use.idx == 2
            if extent.size > 1 and addend:
                continue  # added to what is in float16 it is nothing
            self._add(use.node, what)
            self._after_small(use.node, f"it takes what {value.name!r} keeps from 0")

    def _after_small(self, node: ir.Node, reason: str) -> None:
        for value in node.outputs:
            for use in value.uses():
                if not is_op(use.node, *_OF_SMALL) or (is_op(use.node, "Div") and use.idx == 0):
                    continue
                new = use.node not in self.reasons
                self._add(use.node, reason)
                if new and not is_op(use.node, "Log", "Div"):
                    self._after_small(use.node, reason)

    # Norms in pieces

    def _statistics(self) -> None:
        """A mean of squares, up to where it meets the data again."""
        why = "squares and their mean overflow beyond 255, and are lost below 1/256"
        for node in self.nodes:
            if not is_op(node, *_SQUARED, "ReduceSumSquare", "ReduceL2"):
                continue
            square = node.inputs[0].producer() if node.inputs and node.inputs[0] else None
            if is_op(node, *_SQUARED):
                if square is None or not _is_square(square):
                    continue
                self._add(square, why)
            self._add(node, why)
            self._then(node, why)

    def _then(self, node: ir.Node, why: str) -> None:
        for value in node.outputs:
            for use in value.uses():
                after = use.node
                if not is_op(after, *_STATISTICS) or after in self.reasons:
                    continue
                others = [x for i, x in enumerate(after.inputs) if i != use.idx]
                if all(x is None or _is_constant(x) for x in others):
                    self._add(after, why)
                    self._then(after, why)

    # Few islands rather than many

    def _between(self) -> None:
        """What lies between two nodes of float32 is not worth two Casts."""
        why = "between others that stay"
        for _ in range(8):
            fore = self._reached()
            found = [x for x in self.nodes if x in fore and (self._joins(x) or self._leads_on(x))]
            for node in found:
                self._add(node, why)
            if not found:
                return

    def _reached(self) -> set[ir.Node]:
        """Nodes that take nothing but what float32 nodes make, through what only lays it out."""
        found: set[ir.Node] = set()
        for node in self.nodes:
            if node in self.reasons or bodies_of(node) or is_op(node, *_ANY_TYPE):
                continue
            given = [x for x in node.inputs if self.types.is_float(x) and not _is_constant(x)]
            makers = [x.producer() for x in given if x is not None]
            if makers and all(
                x is not None and (x in self.reasons or (x in found and is_op(x, *_PLAIN)))
                for x in makers
            ):
                found.add(node)
        return found

    def _joins(self, node: ir.Node) -> bool:
        """Whether one Cast behind a node stands for several before it."""
        if not is_op(node, *_PLAIN) or any(x.is_graph_output() for x in node.outputs):
            return False
        given = {x for x in node.inputs if self.types.is_float(x) and not _is_constant(x)}
        alone = all(x is not None and {use.node for use in x.uses()} == {node} for x in given)
        return len(given) > len(node.outputs) and alone

    def _leads_on(self, node: ir.Node) -> bool:
        """Whether nothing but nodes of float32 take what a node makes."""
        outputs = [x for x in node.outputs if self.types.is_float(x)]
        if any(x.is_graph_output() for x in outputs):
            return False
        return all(
            use.node in self.reasons or is_op(use.node, "Shape", "Size")
            for x in outputs
            for use in x.uses()
        )


def constants_of(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Every constant of a graph and of those inside it, in the order of the graph.

    An initializer that is an input too is one where it is a weight: nobody gives those.
    """
    for value in graph.initializers.values():
        if value.const_value is not None and _is_constant(value):
            yield value, value.const_value
    for node in graph:
        if is_op(node, "Constant"):
            tensor = constant_in(node)
            if tensor is not None:
                yield node.outputs[0], tensor
        elif is_op(node, "ConstantOfShape"):
            attribute = node.attributes.get("value")
            if attribute is not None and not attribute.is_ref():
                yield node.outputs[0], tensor_in(attribute)
        for body in bodies_of(node):
            yield from constants_of(body)


def constant_in(node: ir.Node) -> ir.TensorProtocol | None:
    """The float32 of a Constant node, however it says it."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value_float":
            return ir.tensor(np.array(attribute.as_float(), np.float32))
        if name == "value_floats":
            return ir.tensor(np.array(attribute.as_floats(), np.float32))
        if attribute.type == ir.AttributeType.TENSOR:
            return tensor_in(attribute)
    return None


def _is_constant(value: ir.Value | None) -> bool:
    if value is None:
        return False
    if is_op(value.producer(), "Constant"):
        return True
    if value.const_value is None or not value.is_initializer():
        return False
    return not value.is_graph_input() or is_given_weight(value)


def is_given_weight(value: ir.Value) -> bool:
    """Whether an input that has a value of its own is a weight, and no setting of a caller's."""
    tensor = value.const_value
    if tensor is None or not value.is_graph_input():
        return False
    return len(tensor.shape) > 1 and tensor.size > WEIGHT


def _has_weights(node: ir.Node) -> bool:
    for value in node.inputs:
        tensor = value.const_value if value is not None else None
        if tensor is not None and len(tensor.shape) > 1 and tensor.size > WEIGHT:
            return True
    return False


def _is_lost(extent: Extent) -> bool:
    """Whether even the largest number of a constant loses too much."""
    if extent.largest == 0:
        return False
    if extent.size > 1:
        return extent.largest < HALF_NORMAL
    held = float(narrow(np.array(extent.largest, np.float32)))
    return abs(held - extent.largest) > 0.01 * extent.largest


def _is_square(node: ir.Node) -> bool:
    if is_op(node, "Pow"):
        power = scalar_of(node.inputs[1])
        return power is not None and power >= 2
    return is_op(node, "Mul") and node.inputs[0] is node.inputs[1]


def _root(roots: dict[ir.Node, ir.Node], node: ir.Node | None) -> ir.Node:
    assert node is not None
    while roots[node] is not node:
        node = roots[node]
    return node


def _named(node: ir.Node, names: Iterable[str]) -> str:
    """The first of ``names`` that means ``node``."""
    own = (node.op_type, node.name or "", *(x.name or "" for x in node.outputs))
    for name in names:
        if any(fnmatch.fnmatchcase(x, name) for x in own):
            return name
    return ""

"""Equal computations: value numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix.graph.constants import MAX_CONSTANT_ELEMENTS, Array, const_of, const_tensor
from graphfix.graph.nodes import tensor_of_attr
from graphfix.graph.walks import _GRAPH, _GRAPHS, reachable_from

_MAX_MASK_ELEMENTS = 1 << 24  # elements: causal, of 4,096 places


RANDOM_OPS = (
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Multinomial", "Bernoulli"),
)
"""Operators that draw random numbers in each run; a Dropout may."""


# Two nodes of one of these types with the same inputs still give different results.
_NONDETERMINISTIC_OPS = frozenset({*RANDOM_OPS, "Dropout"})


_NOT_COMPARED = (_GRAPH, _GRAPHS, ir.AttributeType.TENSORS, ir.AttributeType.SPARSE_TENSOR)


@dataclass(eq=False)
class ValueNumbering:
    """Value numbers: two values with the same number always hold the same contents.

    TorchScript writes the same Unsqueeze, Cast and Equal again in each layer; equal numbers are how
    a repair sees that it is one mask. Numbers of a value are found on demand and kept.

    Args:
        contents: What a value holds where it is known in another way, such as the symbolic dims in
            a shape tensor, which are the same in each layer although each computes its own.
        constant: What a value holds if the file says so.
    """

    _contents: Callable[[ir.Value], Hashable | None]
    _constant: Callable[[ir.Value], Array | None] = const_of
    _numbers: dict[ir.Value, int] = field(default_factory=dict)
    _number_by_key: dict[object, int] = field(default_factory=dict)
    # What each node was given when what it makes got a number.
    _inputs_when_numbered: dict[ir.Node, Sequence[ir.Value | None]] = field(default_factory=dict)

    def number_of(self, value: ir.Value) -> int:
        """Return the number of ``value``; linear in the nodes above it without a number yet."""
        numbers = self._numbers
        if (number := numbers.get(value)) is not None:
            return number
        pending = [value]
        computed: dict[ir.Value, Sequence[ir.Value | None]] = {}  # those that wait for what they
        while pending:  # are computed from, with that
            current = pending[-1]
            if current in numbers:
                pending.pop()
                continue
            key: object = None
            if (sources := computed.get(current)) is None:
                key = self._content_key(current)
                if key is None:
                    sources = computed[current] = _inputs_behind(current)
            if sources is not None:
                missing = [x for x in sources if x is not None and x not in numbers]
                if missing:
                    pending.extend(missing)
                    continue
                key = self._computation_key(current, sources)
            pending.pop()
            numbers[current] = self._number_by_key.setdefault(key, len(self._number_by_key))
            if (node := current.producer()) is not None:
                self._inputs_when_numbered[node] = node.inputs
        return numbers[value]

    def update_after_edit(self, contents: Callable[[ir.Value], Hashable | None]) -> ValueNumbering:
        """Drop numbers that an edit of the graph made wrong, and return this numbering.

        What is computed from other tensors now has no number any more, nor has what follows from
        it; the rest keeps its own. What inference has found of a tensor must be as it was.
        """
        self._contents = contents
        changed = (x for x, inputs in self._inputs_when_numbered.items() if x.inputs is not inputs)
        for node in reachable_from(changed, ir.Node.successors):
            for value in node.outputs:
                self._numbers.pop(value, None)
        return self

    def _content_key(self, value: ir.Value) -> Hashable | None:
        array = self._constant(value)
        if array is not None:
            return ("const", str(array.dtype), array.shape, array.tobytes())
        mask = const_tensor(
            value, _MAX_MASK_ELEMENTS
        )  # each layer of a decoder has its own, and all are one
        if mask is not None and mask.dtype == ir.DataType.BOOL:
            return ("mask", tuple(mask.shape), hashlib.sha256(mask.tobytes()).digest())
        return self._contents(value)

    def _computation_key(self, value: ir.Value, sources: Sequence[ir.Value | None]) -> object:
        node = value.producer()
        if node is None or sources is _UNKNOWN_INPUTS:
            return id(value)
        attributes = tuple(
            sorted([(name, _attribute_key(x)) for name, x in node.attributes.data.items()])
        )
        numbers = self._numbers
        inputs = tuple([None if x is None else numbers[x] for x in sources])
        # How many parts a Split makes may be said by its outputs alone.
        return (node.domain, node.op_type, attributes, inputs, (value.index(), len(node.outputs)))


_UNKNOWN_INPUTS: Sequence[ir.Value | None] = [None]


def _inputs_behind(value: ir.Value) -> Sequence[ir.Value | None]:
    """Return the inputs that determine ``value``; ``_UNKNOWN_INPUTS`` if none do."""
    node = value.producer()
    return _UNKNOWN_INPUTS if node is None or _is_opaque(node) else node.inputs


def _attribute_key(attribute: ir.Attr) -> str:
    if attribute.type != ir.AttributeType.TENSOR:
        return str(attribute)
    tensor = tensor_of_attr(attribute)
    return f"{tensor.dtype}{list(tensor.shape)}{tensor.tobytes().hex()}"


def _is_opaque(node: ir.Node) -> bool:
    """Return whether equal inputs do not promise equal outputs, or cannot be seen to."""
    domain = node.domain
    if (domain and domain != "ai.onnx") or node.op_type in _NONDETERMINISTIC_OPS:
        return True
    attributes = node.attributes.data
    return bool(attributes) and any(
        attr.is_ref()
        or attr.type in _NOT_COMPARED
        or (
            attr.type == ir.AttributeType.TENSOR
            and tensor_of_attr(attr).size > MAX_CONSTANT_ELEMENTS
        )
        for attr in attributes.values()
    )

"""Equal computations: value numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix.graph.constants import SMALL, Array, const_of, const_tensor
from graphfix.graph.nodes import tensor_in
from graphfix.graph.walks import _GRAPH, _GRAPHS, reached

_MASK = 1 << 24  # elements: causal, of 4,096 places


DRAWS = (
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Multinomial", "Bernoulli"),
)
"""Operators that draw random numbers in each run; a Dropout may."""


# Two nodes of one of these types with the same inputs still give different results.
_RANDOM = frozenset({*DRAWS, "Dropout"})


_NOT_COMPARED = (_GRAPH, _GRAPHS, ir.AttributeType.TENSORS, ir.AttributeType.SPARSE_TENSOR)


@dataclass(eq=False)
class Numbering:
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
    _by_key: dict[object, int] = field(default_factory=dict)
    # What each node was given when what it makes got a number.
    _given: dict[ir.Node, Sequence[ir.Value | None]] = field(default_factory=dict)

    def of(self, value: ir.Value) -> int:
        """The number of ``value``. Linear in the nodes above it that have no number yet."""
        numbers = self._numbers
        if (number := numbers.get(value)) is not None:
            return number
        pending = [value]
        computed: dict[ir.Value, Sequence[ir.Value | None]] = {}  # those that wait for what they
        while pending:  # are computed from, with that
            top = pending[-1]
            if top in numbers:
                pending.pop()
                continue
            key: object = None
            if (given := computed.get(top)) is None:
                key = self._known(top)
                if key is None:
                    given = computed[top] = _sources(top)
            if given is not None:
                missing = [x for x in given if x is not None and x not in numbers]
                if missing:
                    pending.extend(missing)
                    continue
                key = self._key(top, given)
            pending.pop()
            numbers[top] = self._by_key.setdefault(key, len(self._by_key))
            if (node := top.producer()) is not None:
                self._given[node] = node.inputs
        return numbers[value]

    def renewed(self, contents: Callable[[ir.Value], Hashable | None]) -> Numbering:
        """The same for a graph that nodes came to, and went from.

        What is computed from other tensors now has no number any more, nor has what follows from
        it; the rest keeps its own. What inference has found of a tensor must be as it was.
        """
        self._contents = contents
        changed = (x for x, inputs in self._given.items() if x.inputs is not inputs)
        for node in reached(changed, ir.Node.successors):
            for value in node.outputs:
                self._numbers.pop(value, None)
        return self

    def _known(self, value: ir.Value) -> Hashable | None:
        array = self._constant(value)
        if array is not None:
            return ("const", str(array.dtype), array.shape, array.tobytes())
        mask = const_tensor(value, _MASK)  # each layer of a decoder has its own, and all are one
        if mask is not None and mask.dtype == ir.DataType.BOOL:
            return ("mask", tuple(mask.shape), hashlib.sha256(mask.tobytes()).digest())
        return self._contents(value)

    def _key(self, value: ir.Value, given: Sequence[ir.Value | None]) -> object:
        node = value.producer()
        if node is None or given is _OPAQUE:
            return id(value)
        said = tuple(sorted([(name, _attribute(x)) for name, x in node.attributes.data.items()]))
        numbers = self._numbers
        inputs = tuple([None if x is None else numbers[x] for x in given])
        # How many parts a Split makes may be said by its outputs alone.
        return (node.domain, node.op_type, said, inputs, (value.index(), len(node.outputs)))


_OPAQUE: Sequence[ir.Value | None] = [None]


def _sources(value: ir.Value) -> Sequence[ir.Value | None]:
    """What ``value`` is computed from; ``_OPAQUE`` if equal inputs do not promise equal outputs."""
    node = value.producer()
    return _OPAQUE if node is None or _is_opaque(node) else node.inputs


def _attribute(attribute: ir.Attr) -> str:
    if attribute.type != ir.AttributeType.TENSOR:
        return str(attribute)
    tensor = tensor_in(attribute)
    return f"{tensor.dtype}{list(tensor.shape)}{tensor.tobytes().hex()}"


def _is_opaque(node: ir.Node) -> bool:
    """Whether equal inputs do not promise equal outputs, or cannot be seen to."""
    domain = node.domain
    if (domain and domain != "ai.onnx") or node.op_type in _RANDOM:
        return True
    attributes = node.attributes.data
    return bool(attributes) and any(
        attr.is_ref()
        or attr.type in _NOT_COMPARED
        or (attr.type == ir.AttributeType.TENSOR and tensor_in(attr).size > SMALL)
        for attr in attributes.values()
    )

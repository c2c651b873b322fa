"""What a value holds, as far as the graph alone tells: constants, fills, equal computations."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.model.external_files import Weight
from graphfix.model.walks import reached

Array = npt.NDArray[np.generic]

# Weights are never read: no pass needs the values of a constant with more elements than this.
SMALL = 1024
_MASK = 1 << 24  # elements: causal, of 4,096 places

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS

DRAWS = (
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Multinomial", "Bernoulli"),
)
"""Operators that draw random numbers in each run; a Dropout may."""
# Two nodes of one of these types with the same inputs still give different results.
_RANDOM = frozenset({*DRAWS, "Dropout"})

_NOT_COMPARED = (_GRAPH, _GRAPHS, ir.AttributeType.TENSORS, ir.AttributeType.SPARSE_TENSOR)


def is_op(node: ir.Node | None, *op_types: str) -> TypeGuard[ir.Node]:
    """Whether ``node`` is one of ``op_types`` of the standard ONNX domain."""
    if node is None or node.op_type not in op_types:
        return False
    domain = node.domain
    return not domain or domain == "ai.onnx"


def maker_of(value: ir.Value | None, *through: str) -> ir.Node | None:
    """The node that makes ``value``, or makes what nodes of the types ``through`` hand on as it."""
    source = before(value, *through) if through else value
    return None if source is None else source.producer()


def before(value: ir.Value | None, *op_types: str) -> ir.Value | None:
    """What ``value`` is made of by nodes of these types alone, each of its first input."""
    while value is not None and is_op(node := value.producer(), *op_types):
        value = node.inputs[0]
    return value


def nodes_of(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes of a graph, each followed by those of the graphs inside it.

    In the order of ``graph.all_nodes()``, which takes five times as long on graphs of 100,000
    nodes; each pass goes through them at least once.
    """
    for node in graph:
        yield node
        if node.attributes.data:
            for body in bodies_of(node):
                yield from nodes_of(body)


def tops_of(model: ir.Model) -> tuple[ir.Graph, ...]:
    """The main graph of a model, and the bodies of its local functions."""
    return (model.graph, *(function.graph for function in model.functions.values()))


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of a model, those of its functions behind those of its graph."""
    for graph in tops_of(model):
        yield from nodes_of(graph)


def all_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Every graph of a model, those inside others too."""
    for graph in tops_of(model):
        yield from graphs_of(graph)


def opset_of(graph: ir.Model | ir.Graph) -> int:
    """The version of the standard opset that a model imports, or a graph that says so itself."""
    imports = graph.opset_imports
    return imports.get("", imports.get("ai.onnx", 1))


def graphs_of(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and the graphs inside it, at any depth."""
    yield graph
    for node in graph:
        for body in bodies_of(node):
            yield from graphs_of(body)


def values_of(graphs: Iterable[ir.Graph]) -> Iterator[ir.Value]:
    """Every value of these graphs themselves: inputs, initializers, and what their nodes make."""
    for graph in graphs:
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def bodies_of(node: ir.Node) -> tuple[ir.Graph, ...]:
    """The graphs among the attributes of ``node``: the body of a Loop, the branches of an If."""
    # The dict that a UserDict wraps: asked of every node, many times over.
    attributes = node.attributes.data
    found: tuple[ir.Graph, ...] = ()
    if not attributes:
        return found
    for attribute in attributes.values():
        kind = attribute.type
        if kind == _GRAPH and not attribute.is_ref():
            found += (attribute.as_graph(),)
        elif kind == _GRAPHS and not attribute.is_ref():
            found += tuple(attribute.as_graphs())
    return found


def captured(node: ir.Node) -> list[ir.Value]:
    """The values of the graph around a node that its bodies use, and what they make themselves."""
    found: list[ir.Value] = []
    for body in bodies_of(node):
        found += [x for inner in body.all_nodes() for x in inner.inputs if x is not None]
        found += list(body.outputs)
    return found


def users_of(value: ir.Value) -> int:
    """How many inputs of nodes ``value`` is.

    ``value.uses()`` copies them all: 20,000 of a mask, for each of 20,000 nodes that read it.
    """
    return len(value._uses)


def const_of(value: ir.Value | None, limit: int = SMALL) -> Array | None:
    """The contents of ``value`` if they are fixed in the file and have at most ``limit`` elements.

    An initializer that is also a graph input is no constant: a caller may override it.
    Identity is looked through. Quantized and string types are skipped.
    """
    tensor = const_tensor(value, limit)
    if tensor is None:
        return None
    array = tensor.numpy()
    if isinstance(tensor, ir.ExternalTensor) and not _keeps(tensor):
        # It keeps the whole file mapped, once for each tensor: 60 MB for a thousand biases.
        array = array.copy()
        with contextlib.suppress(BufferError):  # somebody else is looking at it
            tensor.release()
    return array


def const_tensor(value: ir.Value | None, limit: int = SMALL) -> ir.TensorProtocol | None:
    """The tensor whose contents :func:`const_of` reads; nothing of it is read yet."""
    while value is not None and (node := value.producer()) is not None:
        if node.op_type != "Identity" or not is_op(node, "Identity"):
            if not is_op(node, "Constant"):
                return None
            break
        value = node.inputs[0]
    if value is None or value.is_graph_input():
        return None
    tensor = _tensor_of(value)
    if tensor is None or tensor.size > limit or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor


def _keeps(tensor: ir.ExternalTensor) -> bool:
    """Whether ``tensor`` reads its part of the file alone, and is worth to be kept: asked often."""
    return isinstance(tensor, Weight) and tensor.size <= SMALL


def filler_of(node: ir.Node) -> Array | None:
    """The one element that a ConstantOfShape repeats; None if it is a function's parameter."""
    attribute = node.attributes.get("value")
    if attribute is None:
        return np.zeros(1, np.float32)
    return None if attribute.is_ref() else tensor_in(attribute).numpy()


def tensor_in(attribute: ir.Attr) -> ir.TensorProtocol:
    """The tensor of an attribute of type TENSOR.

    ``Attr.as_tensor`` checks a runtime protocol, which takes 0.1 ms each time on Python 3.11: in a
    model of 9,000 nodes that was a third of all the work.
    """
    tensor: ir.TensorProtocol = attribute.value
    return tensor


def held_in(node: ir.Node) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """The attributes of a node that are tensors, by name; they may be restored meanwhile."""
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
            yield name, tensor_in(attribute)


def _tensor_of(value: ir.Value) -> ir.TensorProtocol | None:
    if value.is_initializer():
        return value.const_value
    node = value.producer()
    if node is None or not is_op(node, "Constant"):
        return None
    attributes = node.attributes.data
    if len(attributes) != 1:
        return None
    attribute = next(iter(attributes.values()))
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        # Not through onnx-ir's get_const_tensor: it writes the value's name into the tensor.
        return tensor_in(attribute)
    return ir.convenience.get_const_tensor(value)


def scalar_of(value: ir.Value | None) -> float | int | bool | None:
    """The number that ``value`` is filled with, if it is a constant of one distinct value."""
    array = const_of(value)
    return None if array is None else number_in(array)


def number_in(array: Array) -> float | int | bool | None:
    """The one number that all elements of ``array`` are, or None."""
    if array.size == 0 or (array.dtype.kind not in "biuf" and not is_float(array)):
        return None
    first = array.reshape(-1)[0]
    if not bool(np.all(array == first)):
        return None
    item: float | int | bool = first.item()
    return item


def is_float(array: Array) -> bool:
    """Whether ``array`` is of floats: bfloat16 and the float8 types of ml_dtypes have kind "V"."""
    return "float" in array.dtype.name


def ints_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """The integers of a constant of rank 0 or 1, such as axes, a shape, starts or ends."""
    # Asked of every value of a model: weights in another file are not even opened for it.
    if value is not None and value.is_initializer() and not _may_be_ints(value.const_value):
        return None
    array = const_of(value)
    if array is None or array.ndim > 1 or array.dtype.kind not in "iu":
        return None
    return tuple(int(x) for x in array.reshape(-1))


def _may_be_ints(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype.is_integer() and len(tensor.shape) <= 1


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """An input of ``node``; None if it is not given."""
    return node.inputs[index] if index < len(node.inputs) else None


def attr_int(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute, or ``default`` where it is absent or a function's reference."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_int()


def attr_float(node: ir.Node, name: str, default: float) -> float:
    """A float attribute, or ``default`` if it is absent or a parameter of a function."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_float()


def attr_text(node: ir.Node, name: str, default: str) -> str:
    """A text attribute, or ``default`` where it is absent or a parameter of a function."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_string()


def attr_ints(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """An attribute that is a list of integers, or None where it is absent."""
    attribute = node.attributes.get(name)
    return None if attribute is None or attribute.is_ref() else tuple(attribute.as_ints())


def axes_of(node: ir.Node) -> tuple[int, ...] | None:
    """The axes of a Squeeze, Unsqueeze or Reduce, from the input (opset 13, 18) or the attribute.

    None if they are not constant or not given at all.
    """
    given = input_at(node, 1)
    return attr_ints(node, "axes") if given is None else ints_of(given)


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

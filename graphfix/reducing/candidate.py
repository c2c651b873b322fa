"""A model that may still fail, with its feeds; and smaller ones that are cut out of it."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.facts.shapes import shapes_of
from graphfix.graph.walks import (
    graphs_of,
    nodes_of,
    reachable_from,
    values_of,
    values_read_in_bodies,
    values_that_leave,
    with_bodies,
)
from graphfix.runtime.port import Array


@dataclass(frozen=True)
class Candidate:
    """A model and an array for each of its inputs.

    Attributes:
        model: The model; it is not changed.
        feeds: The arrays, by the name of the input.
    """

    model: ir.Model
    feeds: Mapping[str, Array]

    @property
    def node_count(self) -> int:
        """Return how many nodes the main graph has."""
        return len(self.model.graph)

    def copy(self) -> "Candidate":
        """Return one whose model may be changed; the weights are shared."""
        return Candidate(self.model.clone(), dict(self.feeds))


def keep_nodes(
    candidate: Candidate,
    kept: Collection[int],
    recorded: Mapping[str, Array],
    *,
    as_constants: bool = False,
) -> Candidate | None:
    """Return the part of a model with some of its nodes.

    What they read of others becomes an input, and what others read of them an output.

    Args:
        candidate: The model.
        kept: The places of the nodes in the graph.
        recorded: The values of tensors, by name.
        as_constants: Whether what they read of others becomes a constant instead.

    Returns:
        None if no node is left, or if the value of a tensor that they read is not known.
    """
    part = candidate.copy()
    graph = part.model.graph
    nodes = list(graph)
    kept_nodes = [nodes[i] for i in sorted(kept)]
    inside = with_bodies(kept_nodes)
    removed = [x for i, x in enumerate(nodes) if i not in kept]
    ends = values_that_leave(kept_nodes, inside)
    cut_values = _values_read_by(inside, removed)
    if not ends or any(x.name not in recorded for x in cut_values):
        return None
    feeds = dict(part.feeds)
    graph.outputs.clear()
    for value in cut_values:
        name = value.name or ""
        new = _as_input(value, recorded[name])
        value.name = None
        ir.convenience.replace_all_uses_with(value, new)
        if as_constants:
            new.const_value = ir.tensor(recorded[name], name=name)
            graph.initializers.add(new)
        else:
            graph.inputs.append(new)
            feeds[name] = recorded[name]
    _remove_nodes(graph, removed)
    graph.outputs.extend(ends)
    return drop_unused(Candidate(part.model, feeds))


def part_between(model: ir.Model, inputs: Collection[str], outputs: Collection[str]) -> ir.Model:
    """Return what a model computes of some tensors from others, as a model.

    Args:
        model: The model; it is not changed.
        inputs: The names of the tensors that are its inputs; those that it lacks are no part of it.
        outputs: The names of the tensors that are its outputs; those that it lacks are left out.

    Raises:
        ModelError: It has none of the outputs.
    """
    part = model.clone()
    graph = part.graph
    for value in [x for node in graph for x in node.outputs if x.name in inputs]:
        new = ir.Value(name=value.name, type=value.type, shape=value.shape)
        value.name = None
        ir.convenience.replace_all_uses_with(value, new, replace_graph_outputs=True)
        graph.inputs.append(new)
    values = [*graph.inputs, *(x for node in graph for x in node.outputs)]
    ends = [x for x in values if x.name in outputs]
    if not ends:
        raise ModelError(f"the original has no tensor {min(outputs, default='')!r}")
    graph.outputs.clear()
    graph.outputs.extend(ends)
    needed = set(reachable_from((x.producer() for x in ends), _makers_of))
    _remove_nodes(graph, [x for x in graph if x not in needed])
    return drop_unused(Candidate(part, {})).model


def nearest_before(
    candidate: Candidate, place: int, count: int, known: Collection[str] | None = None
) -> list[int]:
    """Return the places of a node and of those that it depends on, the nearest, ``count`` in all.

    Args:
        candidate: The model.
        place: The place of the node in the graph.
        count: How many nodes at most; more where what they read is not known.
        known: The names of tensors that may become inputs; by default all may.
    """
    nodes = list(candidate.model.graph)
    places = {node: i for i, node in enumerate(nodes)}

    kept = {*itertools.islice(reachable_from([nodes[place]], _makers_of), count)}
    if known is not None:
        kept = {*reachable_from(kept, lambda x: _makers_of(x, known))}
    return sorted(places[x] for x in kept)


def _makers_of(node: ir.Node, known: Collection[str] = ()) -> list[ir.Node]:
    """Return the nodes of its graph that make what a node and its bodies read, if not known."""
    values = [x for x in (*node.inputs, *values_read_in_bodies(node)) if x is not None]
    makers = (x.producer() for x in values if x.name not in known)
    return [x for x in makers if x is not None and x.graph is node.graph]


def tensors_before(candidate: Candidate, names: Collection[str]) -> set[str]:
    """Return the names of what nodes make that some tensors depend on, with these."""
    graph = candidate.model.graph
    ends = (node for node in graph if any(x.name in names for x in node.outputs))
    return {x.name or "" for node in reachable_from(ends, _makers_of) for x in node.outputs}


def names_read_from_outside(candidate: Candidate, kept: Collection[int]) -> list[str]:
    """Return the names of what some nodes read of the others."""
    nodes = list(candidate.model.graph)
    inside = with_bodies(nodes[i] for i in kept)
    others = (x for i, x in enumerate(nodes) if i not in kept)
    return [x.name or "" for x in _values_read_by(inside, others)]


def expose(candidate: Candidate, names: Collection[str]) -> Candidate:
    """Make tensors outputs, in place, and return the model."""
    outputs = candidate.model.graph.outputs
    there = {x.name for x in outputs}
    made = (x for node in candidate.model.graph for x in node.outputs)
    outputs.extend(x for x in made if x.name in names and x.name not in there)
    return candidate


def _values_read_by(readers: Collection[ir.Node], makers: Iterable[ir.Node]) -> list[ir.Value]:
    """Return what some nodes make that others read."""
    values = (value for node in makers for value in node.outputs)
    return [x for x in values if any(use.node in readers for use in x.uses())]


def _remove_nodes(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    for node in nodes:
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)
    graph.remove(nodes, safe=False)


def keep_outputs(candidate: Candidate, names: Collection[str]) -> Candidate:
    """Return the model with some of its outputs; nodes that only others need stay."""
    part = candidate.copy()
    kept = [x for x in part.model.graph.outputs if x.name in names]
    part.model.graph.outputs.clear()
    part.model.graph.outputs.extend(kept)
    return part


def drop_unused(candidate: Candidate) -> Candidate:
    """Remove the inputs, initializers and declared functions that nothing uses, in place."""
    graph = candidate.model.graph
    unused = [x for x in graph.inputs if not x.uses() and not x.is_graph_output()]
    for value in unused:
        graph.inputs.remove(value)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]
    names = {x.name for x in graph.inputs}
    feeds = {name: array for name, array in candidate.feeds.items() if name in names}
    return Candidate(candidate.model, feeds)


def with_types(model: ir.Model) -> ir.Model:
    """Return a copy in which each tensor that may become an output has its element type."""
    typed = model.clone()
    shapes = shapes_of(typed)
    for node in typed.graph:
        for value in node.outputs:
            if value.type is None and (dtype := shapes.dtype(value)) is not None:
                value.type = ir.TensorType(dtype)
    return typed


def drop_notes(model: ir.Model) -> None:
    """Remove what exporters note of a model and of its nodes, and lone types, in place.

    Outputs without a shape get one of unnamed dims, which ONNX asks for.
    """
    shapes = shapes_of(model)
    for value in model.graph.outputs:
        if value.shape is None and (rank := shapes.rank(value)) is not None:
            value.shape = ir.Shape([None] * rank)
    model.doc_string = model.producer_name = model.producer_version = None
    model.metadata_props.clear()
    for node in nodes_of(model.graph):
        node.doc_string = None
        node.metadata_props.clear()
    for value in values_of(graphs_of(model.graph)):
        value.doc_string = None
        value.metadata_props.clear()
        if value.shape is None and value.producer() and not value.is_graph_output():
            value.type = None


def _as_input(value: ir.Value, array: Array) -> ir.Value:
    """Return an input in place of a value; a size that may be another one in each run stays so."""
    dtype = ir.DataType.from_numpy(array.dtype)
    fits = value.shape is not None and value.shape.rank() == array.ndim
    shape = value.shape if fits else ir.Shape([None] * array.ndim)
    return ir.Value(name=value.name, shape=shape, type=ir.TensorType(dtype))

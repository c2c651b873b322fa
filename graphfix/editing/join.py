"""Joins two graphs into one: outputs of the first feed inputs of the second."""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.graph.dims import is_nameless, is_symbol
from graphfix.graph.walks import graphs_of, nodes_of, values_of
from graphfix.wording import did_you_mean

PREFIX = "second_"
"""What goes before a name of the second model that the first one has, too."""

# Smaller constants are not worth a comparison.
_LEAST_BYTES = 64


@dataclass(frozen=True)
class Joined:
    """Two models as one.

    Attributes:
        model: The model.
        inputs: The input of the model, by each input of the second model that is not connected.
        outputs: The output of the model, by each output of the second model.
        shared_inputs: The inputs that both models had.
        shared_weights: How many weights of the second model are those of the first.
        shared_bytes: How many bytes these have.
    """

    model: ir.Model
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    shared_inputs: tuple[str, ...] = ()
    shared_weights: int = 0
    shared_bytes: int = 0


def join_models(first: ir.Model, second: ir.Model, connect: Mapping[str, str]) -> Joined:
    """Join two models of one opset; both are used up.

    Outputs of the first that feed the second are no outputs any more. An input that both have under
    one name, with one type and as many dims, is one input.

    Args:
        first: The model that runs first.
        second: The model that runs second.
        connect: The input of the second by the output of the first that feeds it.

    Raises:
        UsageError: A name is unknown, or two tensors do not fit.
    """
    sources = _connected_values(first, second, connect)
    inputs, own_inputs = {x.name: x for x in first.graph.inputs}, list(second.graph.inputs)
    shared = {
        x: inputs[x.name]
        for x in own_inputs
        if x not in sources and x.name in inputs and _are_alike(inputs[x.name], x)
    }
    _add_functions(first, second)
    _rename_dims(first, second, {**sources, **shared})
    weights = _equal_weights(first, second)
    input_names = {x: x.name or "" for x in own_inputs}
    output_names = [x.name or "" for x in second.graph.outputs]
    replaced = {**sources, **shared, **weights}
    _copy_handed_on(second, replaced)
    outputs = dict(zip(output_names, second.graph.outputs, strict=True))
    for old, new in replaced.items():
        second.graph.initializers.pop(old.name or "", None)
        old.replace_all_uses_with(new)
    _rename_values(first, second, replaced)
    remaining = [x for x in own_inputs if x not in replaced]
    _move_graph(first.graph, second.graph, remaining)
    kept = [x for x in first.graph.outputs if x.name not in connect]
    first.graph.outputs.clear()
    first.graph.outputs.extend([*kept, *outputs.values()])
    first.ir_version = max(first.ir_version, second.ir_version)
    for domain, version in second.opset_imports.items():
        first.graph.opset_imports.setdefault(domain, version)
    return Joined(
        first,
        {input_names[x]: shared.get(x, x).name or "" for x in own_inputs if x not in sources},
        {name: x.name or "" for name, x in outputs.items()},
        tuple(x.name or "" for x in shared.values()),
        len(weights),
        sum(x.const_value.nbytes for x in weights.values() if x.const_value is not None),
    )


def _connected_values(
    first: ir.Model, second: ir.Model, connect: Mapping[str, str]
) -> dict[ir.Value, ir.Value]:
    """Return the output that feeds each connected input."""
    outputs = {x.name or "": x for x in first.graph.outputs}
    inputs = {x.name or "": x for x in second.graph.inputs}
    sources: dict[ir.Value, ir.Value] = {}
    for source, target in connect.items():
        for kind, which, name, names in (
            ("output", "first", source, outputs),
            ("input", "second", target, inputs),
        ):
            if name not in names:
                raise UsageError(
                    f"the {which} model has no {kind} {name!r}{did_you_mean(name, names)} "
                    f"There are: {', '.join(names)}"
                )
        if reason := _misfit(outputs[source], inputs[target]):
            raise UsageError(f"the output {source!r} does not fit the input {target!r}: {reason}")
        if inputs[target] in sources:
            raise UsageError(f"the input {target!r} is fed twice")
        sources[inputs[target]] = outputs[source]
    return sources


def _misfit(source: ir.Value, target: ir.Value) -> str:
    """Return why a value cannot be fed as an input, or ""."""
    if source.type is not None and target.type is not None and source.type != target.type:
        return f"it is {_type_text(source)}, and {_type_text(target)} is wanted"
    if source.shape is None or target.shape is None:
        return ""
    if len(source.shape) != len(target.shape):
        return f"it has {len(source.shape)} dims, and {len(target.shape)} are wanted"
    for axis, (old, new) in enumerate(zip(source.shape, target.shape, strict=True)):
        if isinstance(old, int) and isinstance(new, int) and old != new:
            return f"axis {axis} of it has size {old}, and {new} is wanted"
    return ""


def _type_text(value: ir.Value) -> str:
    return str(value.type) if value.dtype is None else value.dtype.name.lower()


def _are_alike(one: ir.Value, other: ir.Value) -> bool:
    return not _misfit(one, other) and one.is_initializer() == other.is_initializer()


def _add_functions(first: ir.Model, second: ir.Model) -> None:
    for key, function in second.functions.items():
        own = first.functions.get(key)
        if own is None:
            first.functions[key] = function
        elif ir.to_proto(own) != ir.to_proto(function):
            raise UsageError(
                f"both models have a local function {'.'.join(filter(None, key))}, with another "
                "body; inline the functions of one of them first (onnx.inliner)"
            )


def _names_in_first(pairs: Mapping[ir.Value, ir.Value]) -> dict[str, str]:
    """Return what the first model calls the dims of the second, by their names in the second.

    Args:
        pairs: The tensor of the first model by the one of the second that it stands for.
    """
    names: dict[str, str] = {}
    for target, source in pairs.items():
        if source.shape is None or target.shape is None:
            continue
        for own, dim in zip(target.shape, source.shape, strict=True):
            if isinstance(own, int) or not own.value or not is_symbol(own.value):
                continue
            if isinstance(dim, int) or not is_nameless(dim):
                names.setdefault(own.value, str(dim))
    return names


def _rename_dims(first: ir.Model, second: ir.Model, pairs: Mapping[ir.Value, ir.Value]) -> None:
    """Call the dims of the second model as the first one does, where they are the same.

    A name that both have for dims of which that is not known gets the prefix.
    """
    new_names = _names_in_first(pairs)
    taken = set(_dim_words(first))
    for name in _dim_words(second):
        if name in taken:
            new_names.setdefault(name, f"{PREFIX}{name}")
    for value in values_of(graphs_of(second.graph)):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed_dim(x, new_names) for x in value.shape])


def _dim_words(model: ir.Model) -> dict[str, None]:
    """Return the symbols in declared dims of a model."""
    texts = (
        x.value
        for value in values_of(graphs_of(model.graph))
        for x in value.shape or ()
        if not isinstance(x, int) and x.value
    )
    return dict.fromkeys(word for text in texts for word in re.findall(r"[^\W\d][\w.]*", text))


def _renamed_dim(dim: int | ir.SymbolicDim, new_names: Mapping[str, str]) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    if (whole := new_names.get(dim.value)) is not None:
        return int(whole) if whole.isdecimal() else ir.SymbolicDim(whole)

    def rename(match: re.Match[str]) -> str:
        new = new_names.get(match[0], match[0])
        return new if is_symbol(new) or new.isdecimal() else f"({new})"

    return ir.SymbolicDim(re.sub(r"[^\W\d][\w.]*", rename, dim.value))


def _equal_weights(first: ir.Model, second: ir.Model) -> dict[ir.Value, ir.Value]:
    """Return the weight of the first model that has the bytes of one of the second."""
    by_kind = [_weights_by_kind(x) for x in (first, second)]
    equal: dict[ir.Value, ir.Value] = {}
    for kind in by_kind[0].keys() & by_kind[1].keys():
        by_hash = {_hash_of(x): x for x in by_kind[0][kind]}
        for weight in by_kind[1][kind]:
            if (own := by_hash.get(_hash_of(weight))) is not None:
                equal[weight] = own
    return equal


def _weights_by_kind(model: ir.Model) -> dict[tuple[object, ...], list[ir.Value]]:
    kinds: dict[tuple[object, ...], list[ir.Value]] = {}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.is_graph_input() or value.is_graph_output():
            continue
        if tensor.dtype != ir.DataType.STRING and tensor.nbytes >= _LEAST_BYTES:
            kinds.setdefault((tensor.dtype, *tensor.shape.numpy()), []).append(value)
    return kinds


def _hash_of(weight: ir.Value) -> bytes:
    assert weight.const_value is not None
    return hashlib.blake2b(weight.const_value.tobytes()).digest()


def _rename_values(first: ir.Model, second: ir.Model, gone: Iterable[ir.Value]) -> None:
    """Give the prefix to names of the second model that the first one has, of nodes as well."""
    replaced = {*gone}
    taken = {x.name for x in values_of(graphs_of(first.graph))}
    values = [x for x in dict.fromkeys(values_of(graphs_of(second.graph))) if x not in replaced]
    own = {x.name for x in values}
    for value in values:
        if value.name and value.name in taken:
            value.name = _free_name(value.name, taken | own)
            own.add(value.name)
    node_names = {x.name for x in nodes_of(first.graph)}
    own_names = {x.name for x in nodes_of(second.graph)}
    for node in nodes_of(second.graph):
        if node.name and node.name in node_names:
            node.name = _free_name(node.name, node_names | own_names)
            own_names.add(node.name)


def _free_name(name: str, taken: set[str | None]) -> str:
    new = f"{PREFIX}{name}"
    while new in taken:
        new = f"{PREFIX}{new}"
    return new


def _copy_handed_on(model: ir.Model, values: Container[ir.Value]) -> None:
    """Let an Identity make those of these values that a graph hands on as its outputs."""
    for graph in list(graphs_of(model.graph)):
        for place, value in enumerate(list(graph.outputs)):
            if value in values:
                copy = ir.node("Identity", [value], name=value.name)
                output = copy.outputs[0]
                output.name, output.type, output.shape = value.name, value.type, value.shape
                graph.append(copy)
                graph.outputs[place] = output


def _move_graph(target: ir.Graph, source: ir.Graph, inputs: Iterable[ir.Value]) -> None:
    """Move nodes, initializers and these inputs of a graph to the end of another."""
    source.outputs.clear()
    source.inputs.clear()
    weights = list(source.initializers.values())
    source.initializers.clear()
    nodes = list(source)
    source.remove(nodes)
    target.inputs.extend(inputs)
    for weight in weights:
        target.register_initializer(weight)
    target.extend(nodes)

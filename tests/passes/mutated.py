"""Valid graphs in forms that an exporter may choose and that no manual shows.

A seed, such as the Before of a manual, gets some mutations: constants in Constant nodes, nodes in
local functions, in branches with equal inner names, in a Loop, more graph outputs, omitted inputs,
inputs that are constants. Each leaves a valid graph valid where it can; ONNX Runtime says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    Mutation = Callable[[onnx.ModelProto, Random], None]

DOMAIN = "own"
INNER = ("q", "h", "x0", "t", "scores")
"""Names in functions and bodies: the same in all of them, since their scopes are apart."""
_BODIES = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
SIZES = {"T": 6, "S": 6, "B": 2, "past": 3}
OTHER_SIZE = 3


def mutated(seed: onnx.ModelProto, draw: Random, count: int) -> onnx.ModelProto:
    """A copy of a graph with so many mutations."""
    proto = onnx.ModelProto()
    proto.CopyFrom(seed)
    for mutation in draw.choices(MUTATIONS, k=count):
        mutation(proto, draw)
    return proto


def unique(proto: onnx.ModelProto, name: str) -> str:
    """A name that nothing in the model has."""
    taken = {x for graph in _graphs(proto.graph) for x in _names(graph)}
    return next(x for i in range(10**6) if (x := f"{name}{i or ''}") not in taken)


# --- Constants ------------------------------------------------------------------------------------


def constants_in_nodes(proto: onnx.ModelProto, draw: Random) -> None:
    """Initializers become Constant nodes, in one of the forms there are."""
    inputs = {x.name for x in proto.graph.input}
    for tensor in list(proto.graph.initializer):
        if tensor.name not in inputs and draw.random() < 0.7:
            proto.graph.initializer.remove(tensor)
            _put_first(proto, _constant_nodes(proto, tensor, draw))


def constant_input(proto: onnx.ModelProto, draw: Random) -> None:
    """A graph input becomes a constant: what reads it has no input that varies."""
    inputs = [x for x in proto.graph.input if x.name not in _initializers(proto)]
    if len(inputs) < 2:
        return
    value = draw.choice(inputs)
    array = array_for(value, np.random.default_rng(draw.randrange(99)))
    proto.graph.input.remove(value)
    tensor = numpy_helper.from_array(array, value.name)
    if draw.random() < 0.3:
        proto.graph.initializer.append(tensor)
    else:
        _put_first(proto, _constant_nodes(proto, tensor, draw))


def constant_operand(proto: onnx.ModelProto, draw: Random) -> None:
    """A node reads a Constant node instead of what another node computes."""
    known = _known_types(proto)
    places = [
        (node, i)
        for node in proto.graph.node
        for i, name in enumerate(node.input)
        if name in known and name not in _initializers(proto)
    ]
    if not places:
        return
    node, i = draw.choice(places)
    array = array_for(known[node.input[i]], np.random.default_rng(draw.randrange(99)))
    tensor = numpy_helper.from_array(array, unique(proto, "fixed"))
    node.input[i] = tensor.name
    _put_first(proto, _constant_nodes(proto, tensor, draw))


def default_inputs(proto: onnx.ModelProto, draw: Random) -> None:
    """An initializer is a graph input as well: a caller may give another one."""
    tensors = [x for x in proto.graph.initializer if x.name not in _inputs(proto)]
    if tensors:
        tensor = draw.choice(tensors)
        proto.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, [*tensor.dims])
        )


def _constant_nodes(
    proto: onnx.ModelProto, tensor: onnx.TensorProto, draw: Random
) -> list[onnx.NodeProto]:
    array, name = numpy_helper.to_array(tensor), tensor.name
    kind = {"float32": "float", "int64": "int"}.get(array.dtype.name)
    if kind and array.ndim < 2 and array.size and draw.random() < 0.5:
        attribute = {f"value_{kind}{'s' * array.ndim}": array.tolist()}
        return [helper.make_node("Constant", [], [name], **attribute)]
    if array.size and (array == array.reshape(-1)[0]).all() and draw.random() < 0.4:
        sizes, fill = unique(proto, "sizes"), numpy_helper.from_array(array.reshape(-1)[:1])
        shape = numpy_helper.from_array(np.array(array.shape, np.int64))
        return [
            helper.make_node("Constant", [], [sizes], value=shape),
            helper.make_node("ConstantOfShape", [sizes], [name], value=fill),
        ]
    if array.dtype == np.float32 and array.ndim == 1 and array.size and draw.random() < 0.1:
        places = np.arange(array.size)
        values = numpy_helper.from_array(array, name)
        indices = numpy_helper.from_array(places, f"{name}_places")
        sparse = helper.make_sparse_tensor(values, indices, array.shape)
        return [helper.make_node("Constant", [], [name], sparse_value=sparse)]
    return [helper.make_node("Constant", [], [name], value=tensor)]


# --- Functions and bodies -------------------------------------------------------------------------


@dataclass
class Run:
    """Some nodes that follow each other, and what they read and make for others."""

    start: int
    nodes: list[onnx.NodeProto]
    inputs: list[str]
    outputs: list[str]


def in_function(proto: onnx.ModelProto, draw: Random) -> None:
    """Some nodes are the body of a local function."""
    run = _draw_run(proto, draw)
    if run is None or not all(x.domain or _has_schema(x, proto) for x in run.nodes):
        return  # ONNX Runtime dies of its own operators in ONNX's domain there
    name = f"f{len(proto.functions)}"
    renamed = dict(zip(run.inputs, _inner_names(len(run.inputs), "a"), strict=True))
    body = _renamed(run, renamed, set(), draw)
    imports = [x for x in proto.opset_import if x.domain != DOMAIN]
    imports.append(helper.make_opsetid(DOMAIN, 1))
    function = helper.make_function(
        DOMAIN, name, [renamed[x] for x in run.inputs], [renamed[x] for x in run.outputs], body,
        imports,
    )  # fmt: skip
    if DOMAIN not in {x.domain for x in proto.opset_import}:
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    call = helper.make_node(name, run.inputs, run.outputs, domain=DOMAIN)
    for i, node in enumerate(function.node):
        for attribute in node.attribute:
            if attribute.type not in _BODIES and draw.random() < 0.3:
                _make_parameter(attribute, f"{attribute.name}_{i}", function, call, draw)
    proto.functions.append(function)
    _put_back(proto, run, [call])


def _make_parameter(
    attribute: onnx.AttributeProto,
    name: str,
    function: onnx.FunctionProto,
    call: onnx.NodeProto,
    draw: Random,
) -> None:
    """Let a function take an attribute from its call, or from a default."""
    given = onnx.AttributeProto()
    given.CopyFrom(attribute)
    given.name = name
    if draw.random() < 0.3 and function.opset_import[0].version > 17:
        function.attribute_proto.append(given)
    else:
        function.attribute.append(name)
        call.attribute.append(given)
    kind, own = attribute.type, attribute.name
    attribute.Clear()
    attribute.name, attribute.ref_attr_name, attribute.type = own, name, kind


def in_branches(proto: onnx.ModelProto, draw: Random) -> None:
    """Some nodes stand in both branches of an If, with the same names inside."""
    if (run := _draw_run(proto, draw)) is None:
        return
    condition = unique(proto, "condition")
    if draw.random() < 0.5:
        proto.graph.input.append(helper.make_tensor_value_info(condition, 9, []))
    else:
        truth = numpy_helper.from_array(np.array(draw.random() < 0.5), condition)
        _put_first(proto, [helper.make_node("Constant", [], [condition], value=truth)])
        run.start += 1
    known = _known_types(proto)
    renamed: dict[str, str] = {}
    branches = []
    for branch in ("then", "else"):
        body = _renamed(run, renamed, {*_names(proto.graph)}, draw)
        ends = [_value_info(renamed[x], known.get(x)) for x in run.outputs]
        held = _take_constants(body, draw)
        branches.append(helper.make_graph(body, branch, [], ends, held))
    node = helper.make_node(
        "If", [condition], run.outputs, then_branch=branches[0], else_branch=branches[1]
    )
    _put_back(proto, run, [node])


def _take_constants(nodes: list[onnx.NodeProto], draw: Random) -> list[onnx.TensorProto]:
    """Take Constants from the nodes of a body, to be its initializers."""
    tensors = []
    for node in list(nodes):
        form = node.attribute[0].name if node.op_type == "Constant" and node.attribute else ""
        if form == "value" and not node.attribute[0].ref_attr_name and draw.random() < 0.7:
            tensors.append(onnx.TensorProto())
            tensors[-1].CopyFrom(node.attribute[0].t)
            tensors[-1].name = node.output[0]
            nodes.remove(node)
    return tensors


def in_loop(proto: onnx.ModelProto, draw: Random) -> None:
    """Some nodes stand in a Loop that runs once, and give it what it stacks."""
    if (run := _draw_run(proto, draw)) is None or _opset(proto) < 13:
        return
    renamed: dict[str, str] = {}
    body = _renamed(run, renamed, {*_names(proto.graph)}, draw)
    ends = [helper.make_tensor_value_info("more", 9, [])]
    known = _known_types(proto)
    ends += [_value_info(renamed[x], known.get(x), stacked=True) for x in run.outputs]
    body.append(helper.make_node("Identity", ["going"], ["more"]))
    starts = [helper.make_tensor_value_info(x, t, []) for x, t in (("i", 7), ("going", 9))]
    once, axis = unique(proto, "once"), unique(proto, "front")
    stacked = [unique(proto, f"{x}_stacked") for x in run.outputs]
    loop = helper.make_node(
        "Loop", [once, ""], stacked, body=helper.make_graph(body, "body", starts, ends)
    )
    squeezes = [
        helper.make_node("Squeeze", [x, axis], [y])
        for x, y in zip(stacked, run.outputs, strict=True)
    ]
    _put_back(proto, run, [loop, *squeezes])
    _put_first(
        proto,
        [
            helper.make_node("Constant", [], [once], value_int=1),
            helper.make_node("Constant", [], [axis], value_ints=[0]),
        ],
    )


def _draw_run(proto: onnx.ModelProto, draw: Random) -> Run | None:
    """Take some nodes that follow each other, no Constants alone."""
    nodes = proto.graph.node
    if not nodes:
        return None
    start = draw.randrange(len(nodes))
    stop = min(len(nodes), start + draw.choice((1, 1, 2, 3, 5, 8)))
    inside = list(nodes[start:stop])
    made = {x for node in inside for x in node.output if x}
    reads = [x for node in inside for x in _reads(node) if x not in made]
    later = {x for node in (*nodes[:start], *nodes[stop:]) for x in _reads(node)}
    later |= {x.name for x in proto.graph.output}
    outputs = [x for node in inside for x in node.output if x in later]
    return Run(start, inside, list(dict.fromkeys(reads)), outputs) if outputs else None


def _put_back(proto: onnx.ModelProto, run: Run, nodes: list[onnx.NodeProto]) -> None:
    rest = list(proto.graph.node)
    rest[run.start : run.start + len(run.nodes)] = nodes
    del proto.graph.node[:]
    proto.graph.node.extend(rest)


def _put_first(proto: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
    rest = [*nodes, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(rest)


def _inner_names(count: int, start: str = "") -> list[str]:
    return [f"{start}{INNER[i % len(INNER)]}{i // len(INNER) or ''}" for i in range(count)]


def _renamed(
    run: Run, renamed: dict[str, str], taken: set[str], draw: Random
) -> list[onnx.NodeProto]:
    """Copies of the nodes, with inner names for what they make that are not taken."""
    nodes = [onnx.NodeProto() for _ in run.nodes]
    for node, copy in zip(run.nodes, nodes, strict=True):
        copy.CopyFrom(node)
        if draw.random() < 0.3:
            copy.ClearField("name")
    made = [x for node in run.nodes for x in node.output if x]
    taken = taken | {y for node in run.nodes for body in _bodies(node) for y in _names(body)}
    free = (x for x in _inner_names(len(made) + len(taken)) if x not in taken)
    renamed.update(zip(made, free, strict=False))
    for node in nodes:
        _rename(node, renamed)
    return nodes


def _rename(node: onnx.NodeProto, renamed: dict[str, str]) -> None:
    node.input[:] = [renamed.get(x, x) for x in node.input]
    node.output[:] = [renamed.get(x, x) for x in node.output]
    for body in _bodies(node):
        own = {x.name for x in (*body.input, *body.initializer)}
        own |= {x for inner in body.node for x in inner.output}
        outer = {x: y for x, y in renamed.items() if x not in own}
        for inner in body.node:
            _rename(inner, outer)
        for value in body.output:
            value.name = outer.get(value.name, value.name)


# --- The rest -------------------------------------------------------------------------------------


def more_outputs(proto: onnx.ModelProto, draw: Random) -> None:
    """What is computed on the way is a graph output."""
    values = _inner_values(proto)
    for value in draw.sample(values, min(len(values), draw.choice((1, 1, 2, 4)))):
        proto.graph.output.append(_value_info(value.name, value))


def all_inner_outputs(seed: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which all that is computed on the way is a graph output."""
    return _with_outputs(seed, _inner_values(seed))


def each_inner_output(seed: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Copies in which one of them is."""
    for value in _inner_values(seed):
        yield _with_outputs(seed, [value])


def _with_outputs(seed: onnx.ModelProto, values: Iterable[onnx.ValueInfoProto]) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(seed)
    proto.graph.output.extend(_value_info(x.name, x) for x in values)
    return proto


def _inner_values(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    known, taken = _known_types(proto), {x.name for x in proto.graph.output}
    made = (x for node in proto.graph.node for x in node.output)
    return [known[x] for x in made if x in known and x not in taken]


def plain_outputs(proto: onnx.ModelProto, draw: Random) -> None:
    """An input or an initializer is a graph output as it is."""
    taken = {x.name for x in proto.graph.output}
    values = [x for x in proto.graph.input if x.name not in taken]
    for tensor in proto.graph.initializer:
        if tensor.name not in taken:
            values.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, [*tensor.dims])
            )
    if values:
        proto.graph.output.append(draw.choice(values))


def omitted_inputs(proto: onnx.ModelProto, draw: Random) -> None:
    """Optional inputs at the end are written, without a name."""
    for node in proto.graph.node:
        if not _has_schema(node, proto):
            continue
        schema = onnx.defs.get_schema(node.op_type, _opset(proto), "")
        formal = schema.inputs[len(node.input) :]
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        if formal and formal[0].option == optional and draw.random() < 0.6:
            node.input.append("")


def without_names(proto: onnx.ModelProto, draw: Random) -> None:
    """Nodes have no name, or the same one in a body and outside."""
    for graph in _graphs(proto.graph):
        for i, node in enumerate(graph.node):
            node.name = draw.choice(("", "", f"n{i}"))


def twins(proto: onnx.ModelProto, draw: Random) -> None:
    """A node stands there twice, and some readers read the second."""
    nodes = [x for x in proto.graph.node if len(x.output) == 1]
    if not nodes:
        return
    node, copy = draw.choice(nodes), onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[0], copy.name = unique(proto, f"{node.output[0]}_twin"), ""
    place = list(proto.graph.node).index(node)
    for reader in proto.graph.node:
        if draw.random() < 0.5:
            reader.input[:] = [copy.output[0] if x == node.output[0] else x for x in reader.input]
    proto.graph.node.insert(place + 1, copy)


def identities(proto: onnx.ModelProto, draw: Random) -> None:
    """An Identity stands before an operand."""
    places = [(n, i) for n in proto.graph.node for i, x in enumerate(n.input) if x]
    if not places:
        return
    node, i = draw.choice(places)
    place, name = list(proto.graph.node).index(node), unique(proto, "same")
    proto.graph.node.insert(place, helper.make_node("Identity", [node.input[i]], [name]))
    proto.graph.node[place + 1].input[i] = name


def scalars(proto: onnx.ModelProto, draw: Random) -> None:
    """Constants of one element lose their axes, or get one."""
    for tensor in proto.graph.initializer:
        if tensor.name not in _inputs(proto) and draw.random() < 0.5:
            array = numpy_helper.to_array(tensor)
            if array.size == 1:
                dims = draw.choice(([], [1], [1, 1]))
                tensor.CopyFrom(numpy_helper.from_array(array.reshape(dims), tensor.name))


def swapped(proto: onnx.ModelProto, draw: Random) -> None:
    """The operands of Adds and Muls change places."""
    for node in proto.graph.node:
        if node.op_type in ("Add", "Mul", "And", "Or") and draw.random() < 0.5:
            node.input[:] = [*node.input][::-1]


MUTATIONS: tuple[Mutation, ...] = (
    *(constants_in_nodes, constants_in_nodes, constant_input, constant_operand, constant_operand),
    *(default_inputs, in_function, in_function, in_branches, in_branches, in_loop, more_outputs),
    *(
        more_outputs,
        plain_outputs,
        omitted_inputs,
        without_names,
        twins,
        identities,
        scalars,
        swapped,
    ),
)


# --- What a graph says ----------------------------------------------------------------------------


def array_for(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    """Numbers that fit a graph input: small, and no index out of most tables."""
    tensor = value.type.tensor_type
    dims = [x.dim_value or SIZES.get(x.dim_param, OTHER_SIZE) for x in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.dtype(dtype).kind == "O":
        return np.full(dims, "a", object)
    if np.dtype(dtype).kind in "iub":
        return np.asarray(rng.integers(0, 2, dims)).astype(dtype)
    return np.asarray(rng.standard_normal(dims)).astype(dtype)


def feeds_for(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers for all inputs that have no default."""
    rng, defaults = np.random.default_rng(seed), _initializers(proto)
    return {x.name: array_for(x, rng) for x in proto.graph.input if x.name not in defaults}


def _known_types(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The values of the main graph whose type ONNX infers, with ranks."""
    try:
        graph = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:  # of any kind, for operators that ONNX does not know
        graph = proto.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return {
        x.name: x
        for x in values
        if x.type.tensor_type.elem_type and x.type.tensor_type.HasField("shape")
    }


def _value_info(
    name: str, like: onnx.ValueInfoProto | None, *, stacked: bool = False
) -> onnx.ValueInfoProto:
    """A declaration of the type alone, as torch writes for what it knows no sizes of."""
    info = onnx.ValueInfoProto(name=name)
    if like is not None and not stacked:
        info.CopyFrom(like)
        info.name = name
        for i, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.dim_value:
                dim.dim_param = f"{name}_{i}"
    elif like is not None:
        info.type.tensor_type.elem_type = like.type.tensor_type.elem_type
    return info


def _has_schema(node: onnx.NodeProto, proto: onnx.ModelProto) -> bool:
    return not node.domain and onnx.defs.has(node.op_type, _opset(proto), "")


def _opset(proto: onnx.ModelProto) -> int:
    return next(x.version for x in proto.opset_import if x.domain in ("", "ai.onnx"))


def _inputs(proto: onnx.ModelProto) -> set[str]:
    return {x.name for x in proto.graph.input}


def _initializers(proto: onnx.ModelProto) -> set[str]:
    return {x.name for x in proto.graph.initializer}


def _bodies(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    return (x.g for x in node.attribute if x.type == onnx.AttributeProto.GRAPH)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for body in _bodies(node):
            yield from _graphs(body)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (x.name for x in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for body in _bodies(node):
            yield from _names(body)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, and what its bodies read of the graphs around them."""
    yield from (x for x in node.input if x)
    for body in _bodies(node):
        own = {x.name for x in (*body.input, *body.initializer)}
        own |= {x for inner in body.node for x in inner.output}
        reads = [x for inner in body.node for x in _reads(inner)]
        yield from (x for x in (*reads, *(y.name for y in body.output)) if x not in own)

"""What the passes that fuse ask of a group of nodes."""

from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_float, attr_int, is_op
from graphfix.graph.text import path_of

MICROSOFT = "com.microsoft"

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
"""What the fused operators take on the CPU, on CUDA and on DirectML."""


def used_elsewhere(
    nodes: Iterable[ir.Node], last: ir.Node, more: Collection[ir.Node] = ()
) -> str | None:
    """Why ``nodes`` would have to stay if only ``last`` is replaced; None if they go with it.

    Args:
        nodes: What computes the inputs of ``last``, which take each other's outputs.
        last: The last node.
        more: Other nodes that go.
    """
    group = {*nodes, *more, last}
    for node in nodes:
        for value in node.outputs:
            if value.is_graph_output():
                return f"{value.name!r}, a part of it, is an output"
            for use in value.uses():
                if use.node not in group:
                    return f"{value.name!r}, a part of it, goes into {path_of(use.node)!r} as well"
    return None


def only_user(node: ir.Node) -> ir.Node | None:
    """The node that alone uses the first output of ``node``, in the same graph."""
    value = node.outputs[0]
    users = {use.node for use in value.uses()}
    if len(users) != 1 or value.is_graph_output():
        return None
    (user,) = users
    return user if user.graph is node.graph else None


def beside(node: ir.Node, data: ir.Value) -> Iterable[ir.Node]:
    """The nodes in the graph of ``node`` that read ``data``, as it does, in order."""
    readers = {use.node for use in data.uses() if use.node.graph is node.graph}
    return readers if len(readers) == 1 else (x for x in node.graph or () if x in readers)


def is_weight(value: ir.Value | None, dims: tuple[int | None, ...], view: View) -> bool:
    """Whether a value is in the file, for one operator alone in a run, and of these dims."""
    found = view.shapes.dims(value)
    if value is None or found is None or len(found) != len(dims):
        return False
    if not value.is_initializer() or value.is_graph_input() or value.is_graph_output():
        return False
    # A part that was replaced before has it ordered, which is done once for all.
    users = [use.node for use in value.uses() if not is_op(use.node, "Reshape")]
    # What makes constants of it does so when the model is loaded.
    users = [x for x in users if x.outputs[0] not in view.fixed]
    return len(users) == 1 and all(d in (None, f) for d, f in zip(dims, found, strict=True))


def is_own_constant(value: ir.Value | None, view: View) -> bool:
    """Whether a value is not given, or known when the model is loaded and read by one alone."""
    if value is None:
        return True
    return value in view.fixed and len(value.uses()) == 1 and not value.is_graph_output()


def is_plain(gemm: ir.Node) -> bool:
    """Whether a Gemm has no numbers to multiply with, and turns its second factor at most."""
    numbers = {attr_float(gemm, name, 1) for name in ("alpha", "beta")}
    return numbers == {1} and not attr_int(gemm, "transA", 0)


def varying(node: ir.Node, view: View) -> int | None:
    """Which input of a node, alone, is not known when the model is loaded."""
    found = [i for i, x in enumerate(node.inputs) if x not in view.fixed]
    return found[0] if len(found) == 1 else None


def swaps_last(perm: Sequence[int]) -> bool:
    """Whether a Transpose exchanges the last two axes, and nothing else."""
    return len(perm) > 1 and [*perm] == [*range(len(perm) - 2), len(perm) - 1, len(perm) - 2]


def lies_along(constant: ir.Value | None, width: Dim, behind: int, rank: int, view: View) -> bool:
    """Whether a constant is a list for one axis, ``width`` long, of a tensor of ``rank`` axes.

    Args:
        constant: The constant.
        width: How long the axis is.
        behind: How many axes lie behind it.
        rank: How many axes the tensor has.
        view: The model.
    """
    dims = view.shapes.dims(constant)
    if dims is None or len(dims) > rank or constant not in view.fixed:
        return False
    needed = (width, *[1] * behind)
    return dims[-len(needed) :] == needed and all(x == 1 for x in dims[: -len(needed)])


def is_by_feature(constant: ir.Value, product: ir.Node, view: View) -> bool:
    """Whether a constant has a number for each feature that a MatMul, or a norm, makes."""
    rank, weight = view.shapes.rank(product.outputs[0]), view.shapes.dims(product.inputs[1])
    if rank is None or not weight or is_op(product, "Conv", "ConvTranspose"):
        return False
    behind = rank - 2 if is_op(product, "InstanceNormalization") else 0
    return lies_along(constant, weight[-1], behind, rank, view)

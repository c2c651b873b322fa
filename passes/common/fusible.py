"""Readers, weights and constants around the nodes that a pass fuses."""

from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label
from graphfix.ops.products import read_gemm

MICROSOFT = "com.microsoft"

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
"""The types that the fused operators take on the CPU, on CUDA and on DirectML."""

CONVOLVES = ops.named("Conv ConvTranspose")

SCALED_NORMS = ops.named("LayerNormalization SimplifiedLayerNormalization InstanceNormalization")
"""Norms whose scale is their second input."""


def why_used_elsewhere(
    nodes: Iterable[ir.Node], last: ir.Node, more: Collection[ir.Node] = ()
) -> str | None:
    """Return why ``nodes`` would have to stay if only ``last`` is replaced, or None.

    Args:
        nodes: The nodes that compute the inputs of ``last``.
        last: The last node.
        more: Other nodes that are removed.
    """
    group = {*nodes, *more, last}
    for node in nodes:
        for value in node.outputs:
            if value.is_graph_output():
                return f"{value.name!r}, a part of it, is an output"
            for use in value.uses():
                if use.node not in group:
                    return (
                        f"{value.name!r}, a part of it, goes into {node_label(use.node)!r} as well"
                    )
    return None


def only_user(node: ir.Node) -> ir.Node | None:
    """Return the only node that reads the first output of ``node``, in the same graph, or None."""
    value = node.outputs[0]
    users = {use.node for use in value.uses()}
    if len(users) != 1 or value.is_graph_output():
        return None
    (user,) = users
    return user if user.graph is node.graph else None


def readers_in_graph(node: ir.Node, data: ir.Value) -> Iterable[ir.Node]:
    """Return the nodes in the graph of ``node`` that read ``data`` too, in order."""
    readers = {use.node for use in data.uses() if use.node.graph is node.graph}
    return readers if len(readers) == 1 else (x for x in node.graph or () if x in readers)


def is_weight(value: ir.Value | None, dims: tuple[int | None, ...], view: View) -> bool:
    """Return whether a value is stored, has one reader in a run, and has these dims."""
    value_dims = view.shapes.dims(value)
    if value is None or value_dims is None or len(value_dims) != len(dims):
        return False
    if not value.is_initializer() or value.is_graph_input() or value.is_graph_output():
        return False
    # An earlier repair reorders the weight by a Reshape, once for all of its readers.
    users = [use.node for use in value.uses() if not is_op(use.node, "Reshape")]
    # Readers that compute constants of it do so when the model is loaded.
    users = [x for x in users if x.outputs[0] not in view.constant_values]
    return len(users) == 1 and all(d in (None, f) for d, f in zip(dims, value_dims, strict=True))


def can_scale_weight(product: ir.Node, view: View) -> bool:
    """Return whether the weight of a product can be scaled on load, for it alone."""
    is_product = is_op(product, "MatMul") or product in CONVOLVES or product in SCALED_NORMS
    if not is_product or len(product.outputs) > 1:
        return False
    weight, *bias = product.inputs[1:]
    if weight is None or not {weight, *filter(None, bias)} <= view.constant_values:
        return False
    if weight.is_graph_output() or view.shapes.dtype(weight) != ir.DataType.FLOAT:
        return False
    if product in SCALED_NORMS:
        return view.shapes.rank(weight) == 1
    readers = [x for x, _ in weight.uses() if x.outputs[0] not in view.constant_values]
    return len(readers) == 1 and (not is_op(product, "MatMul") or view.shapes.rank(weight) == 2)


def is_own_constant(value: ir.Value | None, view: View) -> bool:
    """Return whether a value is absent, or known at load time with a single reader."""
    if value is None:
        return True
    return value in view.constant_values and len(value.uses()) == 1 and not value.is_graph_output()


def is_plain_gemm(node: ir.Node) -> bool:
    """Return whether a Gemm has no factors and transposes its second operand at most."""
    gemm = read_gemm(node)
    return gemm.alpha == gemm.beta == 1 and not gemm.trans_a


def only_varying_input(node: ir.Node, view: View) -> int | None:
    """Return the index of the only input unknown at load time, or None."""
    indices = [i for i, x in enumerate(node.inputs) if x not in view.constant_values]
    return indices[0] if len(indices) == 1 else None


def swaps_last_axes(perm: Sequence[int]) -> bool:
    """Return whether a Transpose only exchanges the last two axes."""
    return len(perm) > 1 and [*perm] == [*range(len(perm) - 2), len(perm) - 1, len(perm) - 2]


def lies_along(constant: ir.Value | None, width: Dim, behind: int, rank: int, view: View) -> bool:
    """Return whether a constant is a vector along one axis, ``width`` long, of a tensor.

    Args:
        constant: The constant.
        width: The length of the axis.
        behind: The number of axes behind it.
        rank: The rank of the tensor.
        view: The model.
    """
    dims = view.shapes.dims(constant)
    if dims is None or len(dims) > rank or constant not in view.constant_values:
        return False
    needed = (width, *[1] * behind)
    return dims[-len(needed) :] == needed and all(x == 1 for x in dims[: -len(needed)])


def is_by_feature(constant: ir.Value, product: ir.Node, view: View) -> bool:
    """Return whether a constant has one number per output feature of a MatMul or norm."""
    rank, weight = view.shapes.rank(product.outputs[0]), view.shapes.dims(product.inputs[1])
    if rank is None or not weight or is_op(product, "Conv", "ConvTranspose"):
        return False
    behind = rank - 2 if is_op(product, "InstanceNormalization") else 0
    return lies_along(constant, weight[-1], behind, rank, view)

"""Nodes as text: one line each, in the syntax of ONNX text, and labels that name them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import onnx_ir as ir

from graphfix.graph.constants import const_tensor
from graphfix.graph.dims import GENERATED_SYMBOL
from graphfix.graph.nodes import attribute_dict, is_op, tensor_of_attr
from graphfix.graph.walks import reachable_from
from graphfix.wording import with_article

# The metadata that names the pass that wrote a node, and how the names of such nodes begin.
_PASS, _PASS_PREFIX = "graphfix.pass", re.compile(r"gf_")
# A constant of so many elements is written out.
_MAX_INLINE_ELEMENTS = 8


def size_text(dim: object) -> str:
    """Return a size in the names of the model's inputs, or say that it has none before a run."""
    return "a size known only at run time" if GENERATED_SYMBOL.search(str(dim)) else str(dim)


def node_label(node: ir.Node) -> str:
    """Return a label of a node in the user's names: its own name, else the tensor it makes."""
    if node.name:
        return node.name
    output_name = next((x.name for x in node.outputs if x.name), None)
    return f"{node.op_type} of {output_name}" if output_name else node.op_type


def _qualified_op_type(node: ir.Node) -> str:
    """Return the operator of a node, with its domain where that is not the standard one."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def describe_node(node: ir.Node) -> str:
    """Describe a node in a sentence, by names that a user finds in the original model.

    Example: ``Add 'node_add_3'``. One that a pass has written is named by what it makes, or by the
    nearest of the user's own that follow from it: ``the Mul before Softmax 'node_softmax' (fold
    wrote it)``.
    """
    if not _is_written_by_pass(node):
        return f"{node.op_type} {node_label(node)!r}"
    pass_name = node.metadata_props.get(_PASS, "graphfix")
    output_name = next(
        (x.name for x in node.outputs if x.name and not _PASS_PREFIX.match(x.name)), None
    )
    if output_name:
        return f"the {node.op_type} that makes {output_name!r} ({pass_name} wrote it)"
    # The first node of the user's own that follows, one step after the other.
    successor = next(
        (x for x in reachable_from([node], ir.Node.successors) if not _is_written_by_pass(x)), None
    )
    if successor is not None:
        return (
            f"the {node.op_type} before {successor.op_type} {node_label(successor)!r} "
            f"({pass_name} wrote it)"
        )
    return f"{with_article(node.op_type)} that {pass_name} wrote"


def _is_written_by_pass(node: ir.Node) -> bool:
    return _PASS in node.metadata_props and bool(_PASS_PREFIX.match(node.name or "gf_"))


def module_path(node: ir.Node) -> tuple[str, ...]:
    """Return the PyTorch modules that a node is in, outermost first, as the exporter says.

    Example: ``("encoder", "layers.0", "self_attn")``. The dynamo exporter writes the scopes beside
    the node, outermost first and the node's own name last; TorchScript makes them the node's name,
    ``/encoder/layers.0/self_attn/MatMul``. Joined by dots they are the module's name.
    """
    meta = node.metadata_props
    scope = meta.get("pkg.torch.onnx.name_scopes") or meta.get("namespace")
    if scope is None:
        return tuple(part for part in (node.name or "").split("/")[:-1] if part)
    if scope.startswith("["):
        names = re.findall(r"'([^']*)'", scope)[:-1]
    else:
        names = [part.split(":")[0].strip() for part in scope.split("/")][:-1]
    # A list's index belongs to the list: layers.0, not layers and 0.
    return tuple(re.findall(r"[^.]+(?:\.\d+)*", names[-1] if names else ""))


def node_text(node: ir.Node, name: Callable[[ir.Value | None], str] | None = None) -> str:
    """Return a node as one line of ONNX text; small constants stand where they are used.

    Example: ``y = Reshape <allowzero = 0> (x, {0, 0, 2, 16})``

    Args:
        node: The node.
        name: How to write a tensor, if not by its name or its contents.
    """
    return NodeText.from_node(node, name or operand_text).render()


class NodeText(NamedTuple):
    """A node captured for its line of ONNX text, rendered later: the graph may change, or go.

    Attributes:
        outputs: What it makes: names, or small constants.
        kind: Its operator, with the domain.
        attributes: As text, or as they are.
        inputs: What it reads, in the form of ``outputs``.
    """

    outputs: tuple[str | ir.TensorProtocol, ...]
    kind: str
    attributes: tuple[str | ir.Attr, ...]
    inputs: tuple[str | ir.TensorProtocol, ...]

    @classmethod
    def from_node(
        cls, node: ir.Node, name: Callable[[ir.Value | None], str | ir.TensorProtocol] | None = None
    ) -> NodeText:
        """Capture ``node`` as it is now."""
        name = name or _lazy_operand
        attributes = attribute_dict(node)
        return cls(
            tuple([name(x) for x in node.outputs]),
            _qualified_op_type(node),
            tuple([_lazy_attribute(x) for x in attributes.values()]) if attributes else (),
            tuple([name(x) for x in node.inputs]),
        )

    def render(self) -> str:
        """Render the line of ONNX text."""
        outputs, inputs = (", ".join(map(_render_operand, x)) for x in (self.outputs, self.inputs))
        attributes = ", ".join(
            x if isinstance(x, str) else _render_attribute(x) for x in self.attributes
        )
        middle = f" <{attributes}> " if attributes else " "
        return f"{outputs} = {self.kind}{middle}({inputs})"


def is_inlined_constant(node: ir.Node) -> bool:
    """Return whether ``node`` is a small constant, written in the lines of its readers."""
    return (
        is_op(node, "Constant")
        and const_tensor(node.outputs[0], limit=_MAX_INLINE_ELEMENTS) is not None
    )


def operand_text(value: ir.Value | None) -> str:
    """Return the text of a tensor in a line: its name, or a small constant."""
    return _render_operand(_lazy_operand(value))


def _lazy_operand(value: ir.Value | None) -> str | ir.TensorProtocol:
    """Return the name of a tensor, or a small constant to be rendered later."""
    if value is None:
        return ""
    node = value.producer()
    if node is not None and node.op_type not in ("Constant", "Identity"):  # nearly always
        return value.name or ""
    tensor = const_tensor(value, limit=_MAX_INLINE_ELEMENTS)
    if tensor is None:
        return value.name or ""
    # What lies in another file is read now: later that may be another one.
    return _render_operand(tensor) if isinstance(tensor, ir.ExternalTensor) else tensor


def _render_operand(operand_or_tensor: str | ir.TensorProtocol) -> str:
    if isinstance(operand_or_tensor, str):
        return operand_or_tensor
    array = operand_or_tensor.numpy()
    body = ", ".join(f"{x:g}" if array.dtype.kind == "f" else str(x) for x in array.reshape(-1))
    return f"{{{body}}}" if array.ndim else body


def _lazy_attribute(attr: ir.Attr) -> str | ir.Attr:
    """Return an attribute, or its text if it holds a graph or a tensor that is not written."""
    if attr.is_ref():
        return attr
    if attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return f"{attr.name} = ..."
    if attr.type == ir.AttributeType.TENSOR:
        tensor = tensor_of_attr(attr)
        if tensor.size > _MAX_INLINE_ELEMENTS:
            return f"{attr.name} = ..."
        if isinstance(tensor, ir.ExternalTensor):
            return _render_attribute(attr)
    return attr


def _render_attribute(attr: ir.Attr) -> str:
    if attr.is_ref():
        return f"{attr.name} = @{attr.ref_attr_name}"
    if attr.type == ir.AttributeType.TENSOR:
        elements = ", ".join(str(x) for x in tensor_of_attr(attr).numpy().reshape(-1))
        return f"{attr.name} = {{{elements}}}"
    return f"{attr.name} = {list(attr.value) if isinstance(attr.value, tuple) else attr.value}"

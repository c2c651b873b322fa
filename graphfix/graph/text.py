"""Graphs as text: one line a node, in the syntax of ONNX text, and where a node is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import onnx_ir as ir

from graphfix.graph.constants import const_tensor
from graphfix.graph.dims import MINTED
from graphfix.graph.nodes import is_op, tensor_in
from graphfix.graph.walks import reached
from graphfix.wording import a_or_an

# What says which pass wrote a node, and what its name begins with.
_PASS, _OURS = "graphfix.pass", re.compile(r"gf_")
# A constant of so many elements is written out.
_FEW = 8
_FIXED = ("Constant", "Identity")


def size_told(dim: object) -> str:
    """A size in the names of the model's inputs, if it has one."""
    return "a size known only at run time" if MINTED.search(str(dim)) else str(dim)


def path_of(node: ir.Node) -> str:
    """Where a node is, in the user's names: its own name, else the tensor it makes."""
    if node.name:
        return node.name
    made = next((x.name for x in node.outputs if x.name), None)
    return f"{node.op_type} of {made}" if made else node.op_type


def kind_of(node: ir.Node) -> str:
    """Its operator, with the domain where that is not the standard's."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def told(node: ir.Node) -> str:
    """A node in a sentence, by what a user finds in the model that was given.

    Example: ``Add 'node_add_3'``. One that a pass has written is named by what it makes, or by the
    nearest of the user's own that follow from it: ``the Mul before Softmax 'node_softmax' (fold
    wrote it)``.
    """
    if not _is_ours(node):
        return f"{node.op_type} {path_of(node)!r}"
    by = node.metadata_props.get(_PASS, "graphfix")
    made = next((x.name for x in node.outputs if x.name and not _OURS.match(x.name)), None)
    if made:
        return f"the {node.op_type} that makes {made!r} ({by} wrote it)"
    # The first node of the user's own that follows, one step after the other.
    after = next((x for x in reached([node], ir.Node.successors) if not _is_ours(x)), None)
    if after is not None:
        return f"the {node.op_type} before {after.op_type} {path_of(after)!r} ({by} wrote it)"
    return f"{a_or_an(node.op_type)} that {by} wrote"


def _is_ours(node: ir.Node) -> bool:
    return _PASS in node.metadata_props and bool(_OURS.match(node.name or "gf_"))


def module_path(node: ir.Node) -> tuple[str, ...]:
    """The PyTorch modules that a node is in, outermost first, as far as the exporter says.

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


def line_of(node: ir.Node, name: Callable[[ir.Value | None], str] | None = None) -> str:
    """A node as one line of ONNX text; small constants stand where they are used.

    Example: ``y = Reshape <allowzero = 0> (x, {0, 0, 2, 16})``

    Args:
        node: The node.
        name: How to write a tensor, if not by its name or its contents.
    """
    return Line.of(node, name or operand).text()


class Line(NamedTuple):
    """What :func:`line_of` writes of a node, to be written later: the graph may change, or go.

    Attributes:
        outputs: What it makes: names, or small constants.
        kind: Its operator, with the domain.
        attributes: As text, or as they are.
        inputs: What it is given, as ``outputs``.
    """

    outputs: tuple[str | ir.TensorProtocol, ...]
    kind: str
    attributes: tuple[str | ir.Attr, ...]
    inputs: tuple[str | ir.TensorProtocol, ...]

    @classmethod
    def of(
        cls, node: ir.Node, name: Callable[[ir.Value | None], str | ir.TensorProtocol] | None = None
    ) -> Line:
        """The line of ``node`` as it is now."""
        name = name or _kept
        given = node.attributes.data
        return cls(
            tuple([name(x) for x in node.outputs]),
            kind_of(node),
            tuple([_attribute(x) for x in given.values()]) if given else (),
            tuple([name(x) for x in node.inputs]),
        )

    def text(self) -> str:
        """The line."""
        outputs, inputs = (", ".join(map(_text, x)) for x in (self.outputs, self.inputs))
        attributes = ", ".join(x if isinstance(x, str) else _said(x) for x in self.attributes)
        middle = f" <{attributes}> " if attributes else " "
        return f"{outputs} = {self.kind}{middle}({inputs})"


def stands_in_place(node: ir.Node) -> bool:
    """Whether ``node`` is a small constant, which the lines of those that read it tell."""
    return is_op(node, "Constant") and const_tensor(node.outputs[0], limit=_FEW) is not None


def operand(value: ir.Value | None) -> str:
    """A tensor in a line: its name, or a small constant."""
    return _text(_kept(value))


def _kept(value: ir.Value | None) -> str | ir.TensorProtocol:
    """What stands for a tensor: its name, or a small constant."""
    if value is None:
        return ""
    node = value.producer()
    if node is not None and node.op_type not in _FIXED:  # nearly always
        return value.name or ""
    tensor = const_tensor(value, limit=_FEW)
    if tensor is None:
        return value.name or ""
    # What lies in another file is read now: later that may be another one.
    return _text(tensor) if isinstance(tensor, ir.ExternalTensor) else tensor


def _text(kept: str | ir.TensorProtocol) -> str:
    if isinstance(kept, str):
        return kept
    array = kept.numpy()
    body = ", ".join(f"{x:g}" if array.dtype.kind == "f" else str(x) for x in array.reshape(-1))
    return f"{{{body}}}" if array.ndim else body


def _attribute(attr: ir.Attr) -> str | ir.Attr:
    """An attribute, or the text of one that holds a graph or a tensor that is not written."""
    if attr.is_ref():
        return attr
    if attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return f"{attr.name} = ..."
    if attr.type == ir.AttributeType.TENSOR:
        tensor = tensor_in(attr)
        if tensor.size > _FEW:
            return f"{attr.name} = ..."
        if isinstance(tensor, ir.ExternalTensor):
            return _said(attr)
    return attr


def _said(attr: ir.Attr) -> str:
    if attr.is_ref():
        return f"{attr.name} = @{attr.ref_attr_name}"
    if attr.type == ir.AttributeType.TENSOR:
        return f"{attr.name} = {{{', '.join(str(x) for x in tensor_in(attr).numpy().reshape(-1))}}}"
    return f"{attr.name} = {list(attr.value) if isinstance(attr.value, tuple) else attr.value}"

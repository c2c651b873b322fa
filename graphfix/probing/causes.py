"""Why two runs part at a node, as far as its operator, its shapes and its neighbours tell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphfix.model.values import const_of, is_op

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

# A Conv of one channel with so long a kernel is a Fourier transform, not a layer.
_FRAME = 64

_MEANS = ("ReduceMean", "GlobalAveragePool", "InstanceNormalization", "GroupNormalization")
_NORMS = (
    "BatchNormalization",
    "LayerNormalization",
    "MeanVarianceNormalization",
    "LpNormalization",
)
_SUMS = ("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceProd")
_LARGEST = ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK", "GlobalMaxPool")
_RECURRENT = ("LSTM", "GRU", "RNN")
_STACKS = ("Gather", "GatherND", "GatherElements", "Slice", "Concat", "Reshape", "Split")
_NEIGHBOURS = ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "AveragePool", "MaxPool")
_PRODUCTS = ("MatMul", "Gemm", "Einsum", "MatMulInteger", "QLinearMatMul")
_ARITHMETIC = ("Div", "Mul", "Sub", "Add", "Pow", "Min", "Max")

MIXES = frozenset(
    {*_MEANS, *_NORMS, *_SUMS, *_LARGEST, *_RECURRENT, *_NEIGHBOURS, *_PRODUCTS}
    | {"Softmax", "LogSoftmax", "CumSum", "STFT", "DFT", "DynamicQuantizeLinear", "Attention"}
)
"""Operators that compute one element from many others: what comes out wrong went in wrong, or is
their own doing."""


@dataclass(frozen=True)
class Cause:
    """A suspicion.

    Attributes:
        kind: A word or two: ``mean pollution``, ``boundary leak``, ``attention dilution``, ...
        text: What probably happens at the node, and what is missing, in a sentence.
    """

    kind: str
    text: str


def of_padding(node: ir.Node, sizes: Sequence[ir.Value], masked_before: int) -> Cause:
    """Why padding shows in what ``node`` makes, although it does not in what it takes.

    Args:
        node: The node.
        sizes: Its inputs that are computed from sizes alone, and differ with the container's.
        masked_before: How many Softmax nodes over the padded axis before it keep padding out.
    """
    op = node.op_type
    if is_op(node, "Softmax", "LogSoftmax", "Attention", "MultiHeadAttention"):
        if masked_before:
            text = (
                f"{masked_before} Softmax nodes before this one keep padding out, this one does "
                "not: the mask is not carried to this layer"
            )
            return Cause("mask not carried", text)
        return Cause(
            "attention dilution", "this Softmax gives weight to padding: a mask is missing"
        )
    if op in ("STFT", "DFT") or _is_transform(node):
        text = (
            "the last frames of this Fourier transform reach into padding: a hard zero is missing"
        )
        return Cause("hard zero missing", f"{text} before it (STFT)")
    if op == "Pad":
        mode = node.attributes["mode"].as_string() if "mode" in node.attributes else "constant"
        if mode == "reflect":
            text = "this Pad reflects padding instead of the clip's end (STFT with centre padding)"
            return Cause("reflection missing", text)
        if mode == "edge":
            text = "this Pad copies padding instead of the last valid frame"
            return Cause("edge copy missing", text)
        text = "alone, this Pad's constant follows the clip, in the container padding does: a zero "
        return Cause("boundary leak", text + "tail is missing before it")
    if op in _NEIGHBOURS or op.endswith("Conv"):
        text = f"this {op} sees padding beside the last valid frames: a zero tail is missing"
        return Cause("boundary leak", f"{text} before it")
    if op in _MEANS or op in _NORMS:
        return Cause("mean pollution", f"this {op} takes its mean over padding too")
    if op in _SUMS or op in ("CumSum", *_PRODUCTS):
        return Cause(
            "mean pollution", f"this {op} adds padding up: a zero tail is missing before it"
        )
    if op in _LARGEST:
        return Cause("mean pollution", f"this {op} looks at padding too: a low tail is missing")
    if op in _RECURRENT:
        return Cause("boundary leak", f"this {op} runs through padding: sequence_lens is missing")
    if op == "DynamicQuantizeLinear":
        return Cause("mean pollution", "the range of this quantization is taken over padding too")
    if sizes and op in _ARITHMETIC:
        name = sizes[0].name or ""
        text = f"this {op} computes with {name!r}, the container's size, not the clip's length"
        return Cause("length as data", text)
    if _counts_from_the_end(node):
        text = (
            f"this {op} counts from the container's end, not from the clip's: valid length missing"
        )
        return Cause("last frame", text)
    if op in _STACKS:
        text = f"this {op} takes frames from beyond the clip's end"
        return Cause("edge copy missing", f"{text} (frame stack: edge copy missing)")
    return Cause("unknown", f"this {op} makes something else of the same valid inputs")


def _is_transform(node: ir.Node) -> bool:
    """Whether a Conv is a Fourier transform: one channel in, and a kernel as long as a frame."""
    if not is_op(node, "Conv") or len(node.inputs) < 2 or node.inputs[1] is None:
        return False
    shape = node.inputs[1].shape
    if shape is None or len(shape) < 3 or not all(isinstance(d, int) for d in shape):
        return False
    _, channels, *kernel = shape.numpy()
    return channels == 1 and max(kernel) >= _FRAME and sum(k > 1 for k in kernel) == 1


def _counts_from_the_end(node: ir.Node) -> bool:
    """Whether a Slice or Gather takes what is so far from the end: ``x[:, -1]``, ``x[:, -19:]``."""
    if not is_op(node, "Slice", "Gather") or len(node.inputs) < 2:
        return False
    index = const_of(node.inputs[1])
    return index is not None and index.size > 0 and bool(np.any(np.less(index, 0)))


def of_models(before: ir.Node | None, after: ir.Node, ep: str) -> Cause:
    """Why two models part at a tensor that both have, although what it is made of agrees."""
    if before is None:
        return Cause("other input", "an input of one model is no input of the other")
    if before.op_type != after.op_type:
        text = f"computed by {before.op_type} in one model and by {after.op_type} in the other"
        return Cause("another operator", text)
    for name in dict.fromkeys([*before.attributes, *after.attributes]):
        ours, theirs = before.attributes.get(name), after.attributes.get(name)
        if ours is None or theirs is None or _text(ours) != _text(theirs):
            text = f"the attribute {name} of this {after.op_type} is {_text(ours)} in one model"
            return Cause("another attribute", f"{text} and {_text(theirs)} in the other")
    for index, (ours_in, theirs_in) in enumerate(zip(before.inputs, after.inputs, strict=False)):
        one, other = const_of(ours_in, sys.maxsize), const_of(theirs_in, sys.maxsize)
        if one is None or other is None:
            continue
        if one.shape != other.shape or not np.array_equal(one, other):
            name = (theirs_in.name if theirs_in is not None else "") or str(index)
            return Cause("another constant", f"the constant {name!r} differs between the models")
    if len(before.inputs) != len(after.inputs):
        return Cause("another input", f"this {after.op_type} has another number of inputs")
    if ep != "cpu":
        return Cause("another provider", f"{ep} computes this {after.op_type} differently")
    return Cause("another input", f"this {after.op_type} takes something that only one model has")


def _text(attribute: ir.Attr | None) -> str:
    if attribute is None:
        return "absent"
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if attribute.type.name == "TENSOR":
        return np.array2string(attribute.as_tensor().numpy(), threshold=8)
    return str(attribute.value) if attribute.type.name not in ("GRAPH", "GRAPHS") else "a graph"

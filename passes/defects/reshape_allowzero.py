"""reshape-allowzero: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import PASS_KEY, Builder
from graphfix.facts.shapes import Dim, Shapes, is_known_dim, same_dim
from graphfix.facts.view import View
from graphfix.graph.constants import Array, ints_of
from graphfix.graph.text import size_text
from graphfix.ops.reshapes import copies_zeros


@dataclass(frozen=True)
class ZeroSite(Match):
    """A Reshape that does not need its allowzero.

    Attributes:
        data: The tensor that is reshaped.
        shape: The new shape: the old one, or a constant with a number instead of the -1.
    """

    data: ir.Value
    shape: ir.Value | Array


@dataclass(frozen=True)
class ReshapeAllowzero(NodePass[ZeroSite]):
    """Removes allowzero=1 from Reshapes whose shape cannot hold a 0.

    With allowzero=1 a 0 in the shape means an empty tensor; without, it means "as the input has it
    here". Where there is no 0 the two are one. A -1 in a constant shape becomes the number it
    stands for, if that is known.

    Why:
        DirectML does not read a -1 if allowzero=1: ORT's ReshapeHelper copies the shape verbatim
        into unsigned integers, and -1 becomes 4294967295. A static model then fails with 80070057
        when its session is made, a dynamic one with 8007023E at its first run. torch's dynamo
        exporter writes allowzero=1 on every Reshape. Run on onnxruntime-directml 1.24.4: 83 of 93
        dynamo exports crash as exported, 5 with allowzero=0 (see convtranspose-2d). Of 29 in
        the zoo 25 crash as exported and none after this pass, alone or behind the others; they
        differ from the CPU by 6.3e-6 at most in float32.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        views (float[B, T, 64] x) => (float[B, U, 4, 16] heads, float[V, 64] rows)
        <int64[1] minus_one = {-1}, int64[2] tail = {4, 16}, int64[2] flat = {-1, 64}>
        {
            batch = Shape <start = 0, end = 1> (x)
            target = Concat <axis = 0> (batch, minus_one, tail)
            heads = Reshape <allowzero = 1> (x, target)
            rows = Reshape <allowzero = 1> (x, flat)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        views (float[B, T, 64] x) => (float[B, U, 4, 16] heads, float[V, 64] rows)
        <int64[1] minus_one = {-1}, int64[2] tail = {4, 16}, int64[2] flat = {-1, 64}>
        {
            batch = Shape <start = 0, end = 1> (x)
            target = Concat <axis = 0> (batch, minus_one, tail)
            heads = Reshape (x, target)
            rows = Reshape (x, flat)
        }

    Left alone:
        A size that is 0 in each run, "it is meant to be empty":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        empty (float[B, T, 8] x) => (float[I, 8] y)
        <int64[2] shape = {0, 8}>
        {
            y = Reshape <allowzero = 1> (x, shape)
        }

    Safety:
        Exact where every entry is proved harmless: a number above 0; the input's own size at the
        same place, which a 0 copies; a size that is never 0, such as a Conv's length. ONNX and
        torch forbid a 0 beside a -1, so entries beside a -1 are never 0 either (ORT's CPU kernel
        makes an empty tensor of such a shape, and without allowzero it refuses). Any other entry
        rests on assume-nonempty, and the change says so in its note. A literal 0 in the shape asks
        for an empty tensor and is skipped, unless the input has that 0 at the same place.

    Options:
        assume_nonempty: Take it that no tensor is ever empty (yes), or leave a Reshape alone if
            that is not proved for it (no). Say no for models that start from an empty cache.
    """

    safety = "conditional"
    anchors = ("Reshape",)

    assume_nonempty: bool = True

    def match(self, node: ir.Node, view: View) -> ZeroSite | Skip | None:
        """Return the site if a Reshape with allowzero=1 does not need it."""
        attribute = node.attributes.get("allowzero")
        if attribute is not None and attribute.is_ref():
            return Skip(node, f"its allowzero is {attribute.ref_attr_name!r} of the local function")
        data, shape = (*node.inputs, None)[:2]
        if data is None or shape is None or copies_zeros(node):
            return None
        if PASS_KEY in node.metadata_props and _has_no_minus_one(shape, view):
            return None  # ours, for a size that may be 0; DirectML reads it
        doubts = _possible_zeros(
            _shape_entries(node, shape, view), view.shapes.dims(data), view.shapes
        )
        if (place := _place_of_zero(doubts)) is not None:
            return Skip(node, f"entry {place} of its shape is 0: it is meant to be empty")
        reason = _doubt_text(shape, doubts)
        if reason and not self.assume_nonempty:
            return Skip(node, f"{reason}; assume-nonempty=yes takes it that no tensor is empty")
        note = f"rests on assume-nonempty: {reason}" if reason else ""
        resolved = _resolve_minus_one(shape, view.shapes.dims(node.outputs[0]))
        return ZeroSite(node, data, shape if resolved is None else resolved, note=note)

    def message(self, site: Match) -> str:
        """Describe what DirectML does with the shape, as far as it is known."""
        shape = site.node.inputs[1]
        target = None if shape is None else ints_of(shape)
        fails = target is None or -1 in target
        return "Reshape has allowzero=1" + (": DirectML cannot read a -1 in it" if fails else "")

    def rewrite(self, match: ZeroSite, op: Builder) -> ir.Value:
        """Build the same Reshape without allowzero."""
        return op.Reshape(match.data, match.shape)


def _has_no_minus_one(shape: ir.Value, view: View) -> bool:
    """Return whether a shape is known to hold no -1."""
    entries = view.shapes.known_elements(shape)
    return entries is not None and -1 not in entries


def _place_of_zero(doubts: Sequence[tuple[int, Dim]] | None) -> int | None:
    """Return the first entry that is 0 itself, not only perhaps."""
    return next((place for place, entry in doubts or () if entry == 0), None)


def _doubt_text(shape: ir.Value, doubts: Sequence[tuple[int, Dim]] | None) -> str:
    """Return why an entry of a shape may be 0; "" if none may."""
    if doubts is None:
        return f"what {shape.name!r} holds is not known"
    entries = " and ".join(f"{i} ({size_text(x)})" for i, x in doubts)
    return f"nothing says that entry {entries} of {shape.name!r} is never 0" if doubts else ""


def _shape_entries(node: ir.Node, shape: ir.Value, view: View) -> Sequence[Dim] | None:
    """Return the entries of the shape, else the dims that result, or None."""
    candidates = (
        view.shapes.known_elements(shape),
        ints_of(shape),
        view.shapes.dims(node.outputs[0]),
    )
    return next((x for x in candidates if x is not None), None)


def _possible_zeros(
    entries: Sequence[Dim] | None, source: Sequence[Dim] | None, shapes: Shapes
) -> list[tuple[int, Dim]] | None:
    """Return the entries that might be 0, with their places; None if none is known."""
    if entries is None:
        return None
    if -1 in entries:  # ONNX and torch forbid any other to be 0
        return [(i, entry) for i, entry in enumerate(entries) if entry == 0]
    return [
        (i, entry)
        for i, entry in enumerate(entries)
        if not (source is not None and i < len(source) and same_dim(source[i], entry))
        and not (is_known_dim(entry) and shapes.is_never_empty(entry))
    ]


def _resolve_minus_one(shape: ir.Value, sizes: Sequence[Dim] | None) -> Array | None:
    """Return a constant shape with the known size instead of its -1, or None."""
    target = ints_of(shape)
    if target is None or sizes is None or target.count(-1) != 1:
        return None
    size = sizes[target.index(-1)]
    if not isinstance(size, int) or size <= 0:
        return None
    return np.array([size if x == -1 else x for x in target], np.int64)

"""fuse-attention: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.core import Match, NodePass, Safety, Skip

from ._attention_inputs import bias_of_terms, joined_biases, key_padding_of
from ._attention_site import Attention, attention_at

if TYPE_CHECKING:
    from graphfix.build import Builder
    from graphfix.model.view import View


@dataclass(frozen=True)
class FuseAttention(NodePass[Attention]):
    """The nodes of an attention become one MultiHeadAttention.

    Why: TODO
    """

    name: ClassVar[str] = "fuse-attention"
    safety: ClassVar[Safety] = "valid-rows"
    anchors: ClassVar[tuple[str, ...]] = ("MatMul", "Einsum")

    def match(self, node: ir.Node, view: View) -> Attention | Skip | None:
        """An attention, at its second product."""
        found = attention_at(node, view)
        return Skip(node, found) if isinstance(found, str) else found

    def message(self, site: Match) -> str:
        """What it is."""
        return "an attention in pieces, which one MultiHeadAttention computes"

    def rewrite(self, match: Attention, op: Builder) -> ir.Value:
        """MultiHeadAttention(query, key, value, bias, key_padding_mask, attention_bias)."""
        view, sizes = op.view, match.sizes
        op.at(match.product)
        dtype = view.shapes.dtype(match.operands[0].place.value) or ir.DataType.FLOAT
        built = [
            fit.build(fit.place.value, op) if split is None else split[0]
            for fit, split in zip(match.operands, match.biases, strict=True)
        ]
        query, key, value = built
        parts = [None if split is None else split[1] for split in match.biases]
        widths = [sizes.width, sizes.width, match.operands[2].dims[2]]
        inputs = [query, key, value, joined_biases(parts, widths, dtype, op), None, None]
        attributes: dict[str, int | float] = {"num_heads": sizes.heads, "scale": match.scale}
        if match.keys is not None:
            inputs[4] = key_padding_of(match.keys, sizes, key, op, view)
            attributes["mask_filter_value"] = match.keys.low
        if match.terms:
            inputs[5] = bias_of_terms(match.terms, sizes, query, key, op, view)
        while inputs[-1] is None:
            inputs.pop()
        fused = op.make("com.microsoft.MultiHeadAttention", *inputs, **attributes)
        return match.out.build(fused, op)

"""float16: the manual is the docstring of the class."""

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Change, Feeds, Finding, Match, Pass, Skip
from graphfix.editing.local_functions import inline_functions, inlined_copy
from graphfix.errors import UsageError
from graphfix.facts import shapes
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_text
from graphfix.graph.walks import bodies_of
from graphfix.wording import group_pairs

from .conversion.constants import constants_of
from .conversion.edit import Float16Conversion
from .conversion.float32_nodes import Float32Nodes
from .conversion.gain import IN_INT8, explain_no_gain, is_quantized, is_worth_converting
from .conversion.name_patterns import NamePatterns
from .conversion.value_types import ElementTypes

# So many constants that lose numbers are named, in a report; check names all.
_MAX_NAMED_CONSTANTS = 5


@dataclass(frozen=True)
class Float16(Pass):
    """Converts float32 to float16, except numerically unsafe nodes.

    Why:
        On DirectML float16 is what people ship: half the memory, and 55 ms where float32 takes 170
        (published for SenseVoice, 30 s). Converters break on the exports that graphfix repairs:
        of 121 float32 exports, 95 of what onnxconverter_common makes do not load, and 9 of what
        onnxruntime.transformers makes do not load or are off.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 2] x, int64[B] lens) => (float[B, T, 2] y)
        <float[2, 2] w = {0.5, 0.25, 0.125, 2.0}>
        {
            count = Cast <to = 1> (lens)
            spread = Cos (count)
            mixed = MatMul (x, w)
            y = Mul (mixed, spread)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 2] x, int64[B] lens) => (float[B, T, 2] y)
        <float16[2, 2] w = {14336, 13312, 12288, 16384}>
        {
            x_half = Cast <to = 10> (x)
            count = Cast <to = 1> (lens)
            spread = Cos (count)
            spread_half = Cast <to = 10> (spread)
            mixed = MatMul (x_half, w)
            y_half = Mul (mixed, spread_half)
            y = Cast <to = 1> (y_half)
        }

    Left alone:
        A model of little else than "a sum that grows with length":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sums (float[B, T] x) => (float[B, T] y)
        <int64 axis = {1}>
        {
            total = CumSum (x, axis)
            y = Identity (total)
        }

        Numbers that were quantized, of which "scales of quantized numbers are float32":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        quantized (float[B, T, 4] x) => (float[B, T, 4] y)
        <float scale = {0.1}, int8 zero = {0}>
        {
            q = QuantizeLinear (x, scale, zero)
            y = DequantizeLinear (q, scale, zero)
        }

    Safety:
        A promise of its own: what verification states. No element is off by more than 1e-2 of the
        largest, the cosine is 0.9999 at least, and there is no NaN or infinity where float32 has a
        number. By itself the pass leaves in float32, each with its reason: operators without
        float16 in ONNX or on DirectML; whole numbers that may pass 2,048, such as lengths and
        positions; inputs with one number a row, and what only depends on them; means of squares;
        constants beyond 65504 or too small. What hides scores becomes -30000 instead: a row of
        scores that is hidden whole was uniform and becomes the Softmax of the raw scores, or stays
        uniform where every sum is rounded; it stays a number. ``graphfix run`` also runs the model
        in float32, keeps what would overflow, and looks for what else must stay if the result
        misses the gate. Where less than a tenth of the nodes and of the weights can change, or the
        gate is missed all the same, the model is left as it is. Local functions are inlined.

    Options:
        io: keep: inputs and outputs stay float32. half: those of at least two dims become float16.
        keep: What stays in float32: nodes, tensors or operators, with * and ?, joined by +.
        only: What alone becomes float16, in the same way.
        store: Weights of what stays that are float16 in the file, and float32 behind a Cast, which
            ONNX Runtime folds when it loads the model: half the file, not half the memory.
    """

    sentence = "the model computes in float32: float16 takes half the memory"
    safety = "valid-rows"
    needs_calibration = True
    advice = "keep=OPERATOR leaves more in float32; --rtol allows more"

    # A weight that is an input too becomes float16 with the others.
    may_change = frozenset({"inputs"})

    io: Literal["keep", "half"] = "keep"
    keep: str = ""
    only: str = ""
    store: str = ""

    def __post_init__(self) -> None:
        if self.io == "half":
            object.__setattr__(self, "may_change", frozenset({"inputs", "outputs"}))

    @property
    def optional(self) -> bool:
        """Return whether only memory is gained, so that the float32 model will do."""
        return self.io == "keep"

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield one site for the model, and a Skip for each reason to stay in float32."""
        yield from self._sites_from(self._find_float32_nodes(_without_functions(model)))

    def _sites_from(self, kept_nodes: Float32Nodes) -> Iterator[Match | Skip]:
        """Yield the sites, from what stays in float32."""
        convertible = [
            x
            for x in kept_nodes.nodes
            if kept_nodes.uses_float32(x) and x not in kept_nodes.reasons
        ]
        if convertible and not self._has_no_gain(kept_nodes):
            yield Match(convertible[0])
        yield from _group_skips(kept_nodes)

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """Yield what stays in float32, as notes."""
        kept_nodes = self._find_float32_nodes(_without_functions(model))
        for site in self._sites_from(kept_nodes):
            yield replace(self.finding(site), severity="note")
        for value, reason in kept_nodes.unfit:
            yield Finding(self.name, "note", value.name or "", reason, None)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Convert the model."""
        kept_nodes = self._find_float32_nodes(_without_functions(model))
        if self._has_no_gain(kept_nodes):
            yield from explain_no_gain(kept_nodes)
            return
        if model.functions:
            inline_functions(model)
            shapes.drop_shapes(model)
            kept_nodes = self._find_float32_nodes(model)
        yield from _group_skips(kept_nodes)
        edit = Float16Conversion(kept_nodes, self.io)
        edit.apply()
        if edit.has_changes:
            first = next(iter(kept_nodes.nodes), None)
            at = model.graph.name or (first.name if first is not None else "") or ""
            added = tuple(map(node_text, edit.casts))
            yield Change(self.name, at, "", (), added, _summarize_conversion(kept_nodes, edit))

    def feeds(self, old: Feeds) -> Feeds:
        """Return the feeds, as float16 where the inputs have become float16."""
        if self.io == "keep":
            return old
        return {
            name: x.astype(np.float16) if x.dtype == np.float32 and x.ndim > 1 else x
            for name, x in old.items()
        }

    def _has_no_gain(self, kept_nodes: Float32Nodes) -> bool:
        """Return whether nothing is gained and no option asks for a conversion."""
        graph = kept_nodes.view.model.graph
        interface = (x for x in (*graph.inputs, *graph.outputs) if kept_nodes.types.is_float(x))
        converts_interface = self.io == "half" and any(
            x.shape is None or len(x.shape) > 1 for x in interface
        )
        return not converts_interface and not (
            is_worth_converting(kept_nodes, min_share=0.0)
            if self.only
            else is_worth_converting(kept_nodes)
        )

    def _find_float32_nodes(self, model: ir.Model) -> Float32Nodes:
        """Return the float32 nodes, with the reasons of those that stay."""
        keep, only, store = map(_split_names, (self.keep, self.only, self.store))
        view = View(model)
        patterns = map(NamePatterns, (keep, only, store))
        kept_nodes = Float32Nodes(view, ElementTypes(view), *patterns)
        if not only and is_quantized(kept_nodes):
            for node in kept_nodes.nodes:
                kept_nodes.keep_node(node, IN_INT8)
        names = {x.op_type for x in kept_nodes.nodes} | {x.name for x in kept_nodes.nodes}
        names |= {value.name for x in kept_nodes.nodes for value in x.outputs}
        if (name := _first_unknown((*keep, *only), names)) is not None:
            raise UsageError(f"float16: there is no node, tensor or operator {name!r} to keep")
        constant_names = {x.name for x, _ in constants_of(model.graph)}
        if (name := _first_unknown(store, constant_names)) is not None:
            raise UsageError(f"float16: there is no constant {name!r} to store")
        return kept_nodes


# Names and numbers, in which reasons of one kind differ.
_DETAIL = re.compile(r"'[^']*'|\d[\d.e+-]*")


def _without_functions(model: ir.Model) -> ir.Model:
    """Return the model, or a copy with its local functions inlined."""
    return inlined_copy(model) if model.functions else model


def _split_names(names: str) -> tuple[str, ...]:
    """Return the names in an option, which ``+`` separates."""
    return tuple(x for x in names.split("+") if x)


def _first_unknown(patterns: Iterable[str], names: Container[str | None]) -> str | None:
    """Return the first pattern without wildcards that is none of the names, or None."""
    plain = (x for x in patterns if not any(c in x for c in "*?["))
    return next((x for x in plain if x not in names), None)


def _group_skips(kept_nodes: Float32Nodes) -> Iterator[Skip]:
    """Yield one Skip for each kind of reason; hundreds may differ only in a number."""
    float32_nodes = (node for node in kept_nodes.nodes if node in kept_nodes.reasons)
    alike = group_pairs((_DETAIL.sub("", kept_nodes.reasons[node]), node) for node in float32_nodes)
    for first, *similar_nodes in alike.values():
        others = f" (and {len(similar_nodes)} like it)" if similar_nodes else ""
        yield Skip(first, f"stays in float32{others}: {kept_nodes.reasons[first]}")


def _summarize_conversion(kept_nodes: Float32Nodes, edit: Float16Conversion) -> str:
    """Return how many nodes and weights became float16, and which lost digits."""
    plain = (x for x in kept_nodes.nodes if not is_op(x, "Constant") and not bodies_of(x))
    floats = [x for x in plain if kept_nodes.uses_float32(x)]
    stay = sum(x in kept_nodes.reasons for x in floats)
    converted = total = 0
    for _, tensor in constants_of(kept_nodes.view.model.graph):
        if tensor.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
            total += tensor.size
            converted += tensor.size * (tensor.dtype == ir.DataType.FLOAT16)
    share = 100 * converted / total if total else 100.0
    lost = [reason for _, reason in kept_nodes.unfit]
    unnamed = (
        [f"{len(lost) - _MAX_NAMED_CONSTANTS:,} more constants lose some"]
        if len(lost) > _MAX_NAMED_CONSTANTS
        else []
    )
    counts = (
        f"{len(floats) - stay:,} of {len(floats):,} nodes and {share:.1f} % of the weights are "
        f"float16; {len(edit.casts)} Casts"
    )
    return "; ".join([counts, *lost[:_MAX_NAMED_CONSTANTS], *unnamed])

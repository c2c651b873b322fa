"""float16: the manual is the docstring of the class."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Change, Feeds, Finding, Match, Pass, Skip
from graphfix.editing.local_functions import inline, inlined
from graphfix.errors import UsageError
from graphfix.facts import shapes
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import line_of
from graphfix.graph.walks import bodies_of
from graphfix.wording import grouped

from .conversion.constants import constants_of
from .conversion.edit import Edit
from .conversion.float32_nodes import Wide
from .conversion.gain import IN_INT8, gains, gains_nothing, is_quantized
from .conversion.value_types import Types

# So many constants that lose numbers are named, in a report; check names all.
_NAMED = 5


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

    Safety:
        A promise of its own: what verification states. No element is off by more than 1e-2 of the
        largest, the cosine is 0.9999 at least, and there is no NaN or infinity where float32 has a
        number. By itself the pass leaves in float32, each with its reason: operators without
        float16 in ONNX or on DirectML; whole numbers that may pass 2,048, such as lengths and
        positions, inputs of one number a row, and what is computed of them alone; means of squares;
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
    measured = True
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
    def may_gain_nothing(self) -> bool:
        """It is half the memory, and no more than that where inputs and outputs stay."""
        return self.io == "keep"

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """The model as a whole, and what would stay in float32."""
        wide = self._look(_inlined(model))
        left = [x for x in wide.nodes if wide.touches(x) and x not in wide.reasons]
        if left and not self._is_done(wide):
            yield Match(left[0])
        yield from _skips(wide)

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """What stays is no fault of the model's."""
        for site in self.sites(model):
            yield replace(self.finding(site), severity="note")
        for value, what in self._look(_inlined(model)).unfit:
            yield Finding(self.name, "note", value.name or "", what, None)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Convert the model."""
        wide = self._look(_inlined(model))
        if self._is_done(wide):
            yield from gains_nothing(wide)
            return
        if model.functions:
            inline(model)
            shapes.forget(model)
            wide = self._look(model)
        yield from _skips(wide)
        edit = Edit(wide, self.io)
        edit.apply()
        if edit.changed:
            first = next(iter(wide.nodes), None)
            at = model.graph.name or (first.name if first is not None else "") or ""
            added = tuple(map(line_of, edit.casts))
            yield Change(self.name, at, "", (), added, _summary(wide, edit))

    def feeds(self, old: Feeds) -> Feeds:
        """float16 where the inputs have become that."""
        if self.io == "keep":
            return old
        return {
            name: x.astype(np.float16) if x.dtype == np.float32 and x.ndim > 1 else x
            for name, x in old.items()
        }

    def _is_done(self, wide: Wide) -> bool:
        """Whether there is nothing to gain, and nothing that was asked for."""
        graph = wide.view.model.graph
        ends = (x for x in (*graph.inputs, *graph.outputs) if wide.types.is_float(x))
        asked = self.io == "half" and any(x.shape is None or len(x.shape) > 1 for x in ends)
        return not asked and not (gains(wide, least=0.0) if self.only else gains(wide))

    def _look(self, model: ir.Model) -> Wide:
        keep, only = _listed(self.keep), _listed(self.only)
        view = View(model)
        wide = Wide(view, Types(view), keep, only, _listed(self.store))
        if not only and is_quantized(wide):
            for node in wide.nodes:
                wide.add(node, IN_INT8)
        known = {x.op_type for x in wide.nodes} | {x.name for x in wide.nodes}
        known |= {value.name for x in wide.nodes for value in x.outputs}
        for name in (*keep, *only):
            if not any(c in name for c in "*?[") and name not in known:
                raise UsageError(f"float16: there is no node, tensor or operator {name!r} to keep")
        held = {x.name for x, _ in constants_of(model.graph)}
        for name in wide.store:
            if not any(c in name for c in "*?[") and name not in held:
                raise UsageError(f"float16: there is no constant {name!r} to store")
        return wide


# Names and numbers, in which reasons of one kind differ.
_DETAIL = re.compile(r"'[^']*'|\d[\d.e+-]*")


def _inlined(model: ir.Model) -> ir.Model:
    """The model, or a copy without local functions."""
    return inlined(model) if model.functions else model


def _listed(names: str) -> tuple[str, ...]:
    return tuple(x for x in names.split("+") if x)


def _skips(wide: Wide) -> Iterator[Skip]:
    """Nodes that stay, once for each reason; there may be hundreds that differ in a number."""
    kept = (node for node in wide.nodes if node in wide.reasons)
    alike = grouped((_DETAIL.sub("", wide.reasons[node]), node) for node in kept)
    for first, *others in alike.values():
        more = f" (and {len(others)} like it)" if others else ""
        yield Skip(first, f"stays in float32{more}: {wide.reasons[first]}")


def _summary(wide: Wide, edit: Edit) -> str:
    plain = (x for x in wide.nodes if not is_op(x, "Constant") and not bodies_of(x))
    floats = [x for x in plain if wide.touches(x)]
    stay = sum(x in wide.reasons for x in floats)
    held = total = 0
    for _, tensor in constants_of(wide.view.model.graph):
        if tensor.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
            total += tensor.size
            held += tensor.size * (tensor.dtype == ir.DataType.FLOAT16)
    share = 100 * held / total if total else 100.0
    lost = [what for _, what in wide.unfit]
    more = [f"{len(lost) - _NAMED:,} more constants lose some"] if len(lost) > _NAMED else []
    counts = (
        f"{len(floats) - stay:,} of {len(floats):,} nodes and {share:.1f} % of the weights are "
        f"float16; {len(edit.casts)} Casts"
    )
    return "; ".join([counts, *lost[:_NAMED], *more])

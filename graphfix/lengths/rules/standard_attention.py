"""ONNX's own Attention and RotaryEmbedding, of opset 23 and 24: [B, H, T, D] or [B, T, F] each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.lengths.joint_axes import RefusedError, check_maskable, join
from graphfix.lengths.length_nodes import Lengths
from graphfix.lengths.repairs.repair import Repair, input_of
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.tail_state import Axis, State, carries_time
from graphfix.model.values import attr_int

_MASK, _ONE = 3, np.array([1], np.int64)


@dataclass(frozen=True)
class MaskKeys(Repair):
    """An Attention without a mask gets one of its valid keys.

    Attributes:
        state: What is known of the keys, as [batch, time].
        at: Their axis of time.
    """

    state: State
    at: int
    what: ClassVar[str] = "the keys of its padding are hidden"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """A mask of keys, bool [B, 1, S, T]: ONNX Runtime broadcasts no other axes."""
        query, key = input_of(self.node, 0), input_of(self.node, 1)
        valid = lengths.mask(key, self.state.axes or (), 1)

        def build() -> ir.Value:
            sizes = (lengths.count(query, 0), _ONE, lengths.count(query, self.at))
            shape = op.Concat(*sizes, lengths.count(key, self.at), axis=0)
            return op.Expand(lengths.unsqueeze(valid, [1, 2]), shape)

        sizes = tuple(map(str, lengths.source.shapes.dims(query) or (query.name,)))
        op.rewire(_MASK, op.once(("standard keys", valid, sizes), build, valid))


def attention(site: Site) -> list[State | None]:
    """Keys behind the valid length must weigh nothing, and be numbers."""
    query, key, value = (site.state(i) for i in range(3))
    at = query.rank - 2
    if at not in (1, 2) or {key.rank, value.rank} != {query.rank}:
        raise RefusedError("its queries, keys and values are not [batch, heads, time, features]")
    if any(map(site.has, (4, 5, 6))) or any(x.name for x in site.node.outputs[1:]):
        raise RefusedError("its keys are joined to those of earlier runs, or counted")
    others = [i for i in range(1, query.rank) if i != at]
    if any(carries_time(x.at(i)) for x in (query, key, value) for i in others):
        raise RefusedError("time is its axis of heads or of features")
    batch = join([x.at(0) for x in (query, key, value)])
    keys = join([key.at(at), value.at(at)])
    if carries_time(keys):
        for i in (1, 2):
            site.need_finite(i, "attention dilution")
        if not (attr_int(site.node, "is_causal", 0) and query.at(at) == keys):
            _hide(site, batch, keys, at)
    axes = (batch, *query.axes[1:-1], site.axis_of(site.out_dims()[-1]))  # type: ignore[index]
    tails = (*query.tails[:-1], None)
    return [site.recomputed(axes, tails), *[None] * (len(site.node.outputs) - 1)]


def _hide(site: Site, batch: Axis, keys: Axis, at: int) -> None:
    """Hide keys by the mask that there is, or by one of its own."""
    if not site.has(_MASK):
        state = State((batch, keys), (site.state(1).tails[0], site.state(1).tails[at]))
        check_maskable(state.axes or (), 1, site.source)
        site.repair(MaskKeys(site.node, "attention dilution", state, at))
        return
    mask = site.state(_MASK)
    last = mask.rank - 1
    if last != 3 or mask.tails[last] is None:
        raise RefusedError("its mask is not [batch, heads, queries, keys]")
    join([mask.at(last), keys])
    # A mask for all rows becomes one for each.
    site.states[_MASK] = dataclasses.replace(mask, axes=(batch, *(mask.axes or ())[1:]))
    if site.source.shapes.dtype(site.node.inputs[_MASK]) == ir.DataType.BOOL:
        site.need_zero(_MASK, last, "attention dilution")
    else:
        site.need_hidden(_MASK, last)


def rotary_embedding(site: Site) -> State:
    """Each place is turned by its own row of the tables, which it has or looks up."""
    state = site.state()
    if state.rank not in (3, 4) or carries_time(state.at(state.rank - 1)):
        raise RefusedError("time is its feature axis, or its rank is not known")
    tables = [site.state(i) for i in (1, 2)]
    if any(x.physical or (site.has(3) and x.timed) for x in tables):
        raise RefusedError("its tables hold padded sizes, or rows that are looked up")
    for table in tables if not site.has(3) else ():
        join([table.at(1), state.at(state.rank - 2)])
    return site.recomputed(state.axes, state.tails)


RULES = {"Attention": Rule(attention), "RotaryEmbedding": Rule(rotary_embedding)}

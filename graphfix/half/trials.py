"""What a pass makes of a model with more and more kept, and the model beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from graphfix.core import Pass
from graphfix.editing.local_functions import inlined
from graphfix.facts import shapes
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import full_lengths
from graphfix.feeds.signature import Signature
from graphfix.graph.walks import nodes_of
from graphfix.half.emulate import rounded, without_shapes
from graphfix.proof.inner_tensors import Run, Sizes, Stream
from graphfix.wording import grouped

Progress = Callable[[str], None]

# Bytes of inner tensors at once: both models are run again for each group of them.
_BUDGET = 1 << 30


@dataclass(frozen=True)
class Kept:
    """What a candidate is made with.

    Attributes:
        reasons: Why a node stays, by the name of its first tensor.
        stored: Weights of what stays that are float16 in the file nonetheless.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()

    def more(self, reasons: Mapping[str, str]) -> Kept:
        """With more nodes; the first reason that was given stays."""
        return Kept({**reasons, **self.reasons}, self.stored)

    def __len__(self) -> int:
        return len(self.reasons)


class Trials:
    """A model, and the candidates that a pass makes of it.

    Args:
        model: The model before the pass; it is not changed.
        chosen: The pass, with options ``keep`` and ``store``: names joined by ``+``.
        tell: Called with a short text at each step.

    Attributes:
        before: The model, its local functions inlined.
    """

    def __init__(self, model: ir.Model, chosen: Pass, tell: Progress) -> None:
        self.before = inlined(model)
        self.chosen, self.tell = chosen, tell
        self._last: tuple[Pass, ir.Model] | None = None

    def made(self, kept: Kept) -> Pass:
        """The pass that keeps these as well."""
        given = {"keep": kept.reasons, "store": kept.stored}
        options = {x: names for x, names in given.items() if hasattr(self.chosen, x)}
        new = {x: _joined(getattr(self.chosen, x), names) for x, names in options.items()}
        return replace(self.chosen, **new)  # type: ignore[type-var]

    def candidate(self, kept: Kept) -> ir.Model:
        """What the pass makes of the model, which nobody is to change: it is asked for again."""
        made = self.made(kept)
        if self._last is None or self._last[0] != made:
            self._last = None  # one at a time is enough to hold
            copy = self.before.clone()
            shapes.carry(self.before, copy)  # what they are does not depend on what is kept
            made(copy)
            self._last = made, copy
        return self._last[1]

    # The model before

    @cached_property
    def nodes(self) -> list[ir.Node]:
        """What computes with floats, in the order of the graph."""
        nodes = nodes_of(self.before.graph)
        nodes = (x for x in nodes if x.op_type not in ("Constant", "Shape", "Size"))
        return [x for x in nodes if self._touches(x)]

    def _touches(self, node: ir.Node) -> bool:
        known = shapes.shapes_of(self.before)
        values = (*node.inputs, *node.outputs)
        return any(known.dtype(x) in (ir.DataType.FLOAT, None) for x in values if x is not None)

    @cached_property
    def makers(self) -> dict[str, ir.Node]:
        """Which of them makes a tensor."""
        return {x.name: node for node in self.nodes for x in node.outputs if x.name}

    @cached_property
    def takers(self) -> dict[str, list[ir.Node]]:
        """Which of them take it."""
        fed = ((value, node) for node in self.nodes for value in node.inputs)
        return grouped((x.name, node) for x, node in fed if x is not None and x.name)

    @cached_property
    def tensors(self) -> list[str]:
        """Inner tensors of the main graph that may hold floats."""
        known = shapes.shapes_of(self.before)
        nodes = (x for x in self.before.graph if x.op_type != "Constant")
        made = (x for node in nodes for x in node.outputs)
        return [x.name for x in made if x.name and known.dtype(x) in (ir.DataType.FLOAT, None)]

    # The two side by side

    @cached_property
    def _bare(self) -> ir.Model:
        return without_shapes(inlined(self.before))

    def shared(self, candidate: ir.Model) -> list[str]:
        """Inner tensors that a candidate has as well: a needless Cast is gone."""
        theirs = {x.name for node in candidate.graph for x in node.outputs}
        return [x for x in self.tensors if x in theirs]

    def stream(self, candidate: ir.Model, case: Case) -> Stream:
        """Inner tensors of the model, and of a candidate as a device would round them."""
        before = Run(self._bare, self._bare, case.feeds)
        after = rounded(candidate)
        run = Run(after, after, full_lengths(after, case.feeds))
        return Stream(before, run, Sizes(Signature(self.before), case.dims), budget=_BUDGET)


def extremes(cases: Sequence[Case]) -> list[Case]:
    """The largest case, and the shortest: padding is most of a row there."""
    clean = [x for x in cases if not x.poison] or list(cases)
    by_size = sorted(clean, key=lambda case: sum(x.size for x in case.feeds.values()))
    return by_size[-1:] if len(by_size) == 1 else [by_size[-1], by_size[0]]


def name_of(node: ir.Node) -> str:
    """The name of the first tensor that a node makes: nodes may have none of their own."""
    return next((x.name for x in node.outputs if x.name), node.name or "")


def _joined(given: str, names: Iterable[str]) -> str:
    """An option with more names: what means something in an option becomes ``?``."""
    plain = (re.sub(r"[,:+=\[\]*\s]", "?", x) for x in names)
    return "+".join(dict.fromkeys([*filter(None, given.split("+")), *plain]))

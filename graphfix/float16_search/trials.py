"""Candidates: the model after a pass that keeps some nodes in float32, beside the original."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from graphfix.core import Pass
from graphfix.editing.local_functions import inlined_copy
from graphfix.facts import shapes
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.feeds.signature import Signature
from graphfix.float16_search.emulate import drop_inner_shapes, emulate_float16
from graphfix.graph.walks import nodes_of
from graphfix.proof.inner_tensors import ModelRun, TensorPairs, TensorSizes
from graphfix.wording import group_pairs

Progress = Callable[[str], None]

# Bytes of inner tensors at once: both models are run again for each group of them.
_BUDGET = 1 << 30


@dataclass(frozen=True)
class KeepSet:
    """Nodes that a candidate keeps in float32, and weights of theirs that it stores in float16.

    Attributes:
        reasons: Why a node stays in float32, by the name of its first tensor.
        stored: Weights of such nodes that are stored in float16 nonetheless.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()

    def with_reasons(self, reasons: Mapping[str, str]) -> KeepSet:
        """Return the set with more nodes; a node keeps its first reason."""
        return KeepSet({**reasons, **self.reasons}, self.stored)

    def __len__(self) -> int:
        return len(self.reasons)


class Trials:
    """A model, and the candidates that a pass makes from it.

    Args:
        model: The model before the pass; it is not changed.
        chosen: The pass, with options ``keep`` and ``store``: names joined by ``+``.
        tell: Called with a short text at each step.

    Attributes:
        before: The model, its local functions inlined.
    """

    def __init__(self, model: ir.Model, chosen: Pass, tell: Progress) -> None:
        self.before = inlined_copy(model)
        self.chosen, self.tell = chosen, tell
        self._last: tuple[Pass, ir.Model] | None = None

    def pass_keeping(self, keep_set: KeepSet) -> Pass:
        """Return the pass that keeps these as well."""
        additions = {"keep": keep_set.reasons, "store": keep_set.stored}
        options = {x: names for x, names in additions.items() if hasattr(self.chosen, x)}
        new = {x: _extend_option(getattr(self.chosen, x), names) for x, names in options.items()}
        return replace(self.chosen, **new)  # type: ignore[type-var]

    def build_candidate(self, keep_set: KeepSet) -> ir.Model:
        """Return the model after the pass, cached: it must not be changed."""
        keeping_pass = self.pass_keeping(keep_set)
        if self._last is None or self._last[0] != keeping_pass:
            self._last = None  # freed first: one candidate at a time is in memory
            copy = self.before.clone()
            shapes.copy_shapes(self.before, copy)  # shapes do not depend on the kept nodes
            keeping_pass(copy)
            self._last = keeping_pass, copy
        return self._last[1]

    # The model before

    @cached_property
    def float_nodes(self) -> list[ir.Node]:
        """Return the nodes that compute with floats, in the order of the graph."""
        nodes = nodes_of(self.before.graph)
        nodes = (x for x in nodes if x.op_type not in ("Constant", "Shape", "Size"))
        return [x for x in nodes if self._touches_floats(x)]

    def _touches_floats(self, node: ir.Node) -> bool:
        model_shapes = shapes.shapes_of(self.before)
        values = (*node.inputs, *node.outputs)
        return any(
            model_shapes.dtype(x) in (ir.DataType.FLOAT, None) for x in values if x is not None
        )

    @cached_property
    def producer_by_tensor(self) -> dict[str, ir.Node]:
        """Return the float node that makes each tensor, by the tensor's name."""
        return {x.name: node for node in self.float_nodes for x in node.outputs if x.name}

    @cached_property
    def consumers_by_tensor(self) -> dict[str, list[ir.Node]]:
        """Return the float nodes that read each tensor, by the tensor's name."""
        fed = ((value, node) for node in self.float_nodes for value in node.inputs)
        return group_pairs((x.name, node) for x, node in fed if x is not None and x.name)

    @cached_property
    def float_tensors(self) -> list[str]:
        """Return the inner tensors of the main graph that may hold floats."""
        model_shapes = shapes.shapes_of(self.before)
        nodes = (x for x in self.before.graph if x.op_type != "Constant")
        values = (x for node in nodes for x in node.outputs)
        return [
            x.name for x in values if x.name and model_shapes.dtype(x) in (ir.DataType.FLOAT, None)
        ]

    # The two side by side

    @cached_property
    def _without_shapes(self) -> ir.Model:
        return drop_inner_shapes(inlined_copy(self.before))

    def shared_tensors(self, candidate: ir.Model) -> list[str]:
        """Return the inner tensors that a candidate has as well; it may lack a needless Cast."""
        theirs = {x.name for node in candidate.graph for x in node.outputs}
        return [x for x in self.float_tensors if x in theirs]

    def stream_tensors(self, candidate: ir.Model, case: Case) -> TensorPairs:
        """Stream inner tensors of the model, and of a candidate as a device would round them."""
        before = ModelRun(self._without_shapes, self._without_shapes, case.feeds)
        after = emulate_float16(candidate)
        run = ModelRun(after, after, add_full_lengths(after, case.feeds))
        return TensorPairs(
            before, run, TensorSizes(Signature(self.before), case.dims), budget=_BUDGET
        )


def extreme_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the largest case, and the shortest: padding is most of a row there.

    One of them where all are as large, and none has padding.
    """
    clean = [x for x in cases if not x.poison] or list(cases)
    by_size = sorted(clean, key=lambda case: case.element_count)
    one_size = by_size[0].element_count == by_size[-1].element_count
    alike = one_size and not any(x.is_ragged for x in clean)
    return by_size[-1:] if len(by_size) == 1 or alike else [by_size[-1], by_size[0]]


def first_tensor_name(node: ir.Node) -> str:
    """Return the name of the first tensor that a node makes: nodes may have none of their own."""
    return next((x.name for x in node.outputs if x.name), node.name or "")


def _extend_option(option: str, names: Iterable[str]) -> str:
    """Add names to an option; characters that have a meaning in options become ``?``."""
    plain = (re.sub(r"[,:+=\[\]*\s]", "?", x) for x in names)
    return "+".join(dict.fromkeys([*filter(None, option.split("+")), *plain]))

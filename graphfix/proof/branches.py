"""Branches of an If that no case takes: both models are forced to take them.

A condition such as ``T > 4096`` or ``sum(x) > 1000`` may never hold in a small case. The condition
is replaced by a constant, in the original and in the repaired model alike, and both are run. So is
that of an If inside a branch or the body of a Loop, together with those of the branches around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.facts.numbering import ValueNumbering
from graphfix.facts.shapes import shapes_of
from graphfix.feeds.graph_uses import node_title
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of, nodes_of, reachable_from
from graphfix.proof.compare import Array
from graphfix.runtime.random_nodes import is_random


@dataclass(frozen=True)
class Branch:
    """One branch of an If.

    Attributes:
        outputs: The outputs of the If, which both models have as far as they are used.
        conditions: The names of its condition, which the main graph may compute several times.
        name: What a user calls the If.
        is_then: Whether it is the branch of a true condition.
        around: The branches that it is in, the outermost first.
    """

    outputs: tuple[str, ...]
    conditions: frozenset[str]
    name: str
    is_then: bool
    around: tuple[Branch, ...] = ()

    def __str__(self) -> str:
        return f"the {'then' if self.is_then else 'else'} branch of {self.name}"


class BranchRecord:
    """A record of which branches have been taken.

    Args:
        model: The original.
        constants: Inputs that are fed the same in every case: branches that they rule out are not
            reported.
    """

    def __init__(self, model: ir.Model, constants: Collection[str] = ()) -> None:
        self._ifs = _computed_ifs(model, constants)
        self._model, self._constants = model, constants
        self._seen_conditions: set[tuple[str, bool]] = set()
        self._runs: list[dict[str, bool]] = []
        self._inner_ifs = [x for node in model.graph for x in _inner_ifs(node)]
        own = {value.name for value in model.graph.outputs}
        condition_names = dict.fromkeys(name for _, name in self._ifs)
        condition_names |= dict.fromkeys(
            condition.name
            for inner in self._inner_ifs
            for condition in inner.conditions
            if _is_computed_in(condition, model.graph) and condition.name
        )
        self.conditions = [name for name in condition_names if name not in own]
        """Inner tensors to make outputs, so that :meth:`record_run` reads them."""

    def record_run(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Note the conditions of a run; return its outputs without them."""
        names = [*self.conditions, *(name for _, name in self._ifs)]
        scalars = {x: outputs[x] for x in names if x in outputs and outputs[x].size == 1}
        run = {name: bool(x.item()) for name, x in scalars.items()}
        self._seen_conditions.update(run.items())
        if run not in self._runs:
            self._runs.append(run)
        return {name: x for name, x in outputs.items() if name not in self.conditions}

    def iter_untaken(self) -> Iterator[Branch]:
        """Yield the branches that no run took, of each If that a run has reached.

        Branches that shapes rule out are skipped: a repair may remove them.
        """
        for node, name in self._ifs:
            for is_then in (True, False):
                if (name, is_then) in self._seen_conditions or (
                    name,
                    not is_then,
                ) not in self._seen_conditions:
                    continue
                condition = node.inputs[0]
                data = shapes_of(self._model).known_elements(condition)
                if condition is None or (data and all(isinstance(x, int) for x in data)):
                    continue
                outputs = tuple(x.name for x in node.outputs if x.name)
                yield Branch(
                    outputs,
                    _names_of_condition(condition, self._model),
                    node_title(node),
                    is_then,
                )
        for inner in self._inner_ifs:
            yield from self._untaken_of(inner)

    def _untaken_of(self, inner: _InnerIf) -> Iterator[Branch]:
        """Yield the branches of an If inside others that no run took for sure.

        Only conditions that the main graph computes are known of each run.
        """
        if self._is_decided(inner.condition):
            return
        around = [self._branch_of(*x) for x in inner.around]
        for node, is_then in inner.around:
            if self._is_decided(node.inputs[0]) and not self._was_seen(node.inputs[0], is_then):
                return
        for is_then in (True, False):
            wanted = [(node.inputs[0], x) for node, x in (*inner.around, (inner.node, is_then))]
            if not any(
                all(x is not None and run.get(x.name or "") == y for x, y in wanted)
                for run in self._runs
            ):
                yield replace(self._branch_of(inner.node, is_then), around=tuple(around))

    def _was_seen(self, condition: ir.Value | None, is_then: bool) -> bool:
        return condition is not None and (condition.name, is_then) in self._seen_conditions

    def _is_decided(self, condition: ir.Value | None) -> bool:
        """Return whether shapes or inputs that are constants decide a condition."""
        if condition is None or (self._constants and _depends_only_on(condition, self._constants)):
            return True
        data = shapes_of(self._model).known_elements(condition)
        return bool(data) and all(isinstance(x, int) for x in data or ())

    def _branch_of(self, node: ir.Node, is_then: bool) -> Branch:
        outputs = tuple(x.name for x in node.outputs if x.name)
        condition = node.inputs[0]
        names = (
            frozenset[str]() if condition is None else _names_of_condition(condition, self._model)
        )
        return Branch(outputs, names, node_title(node), is_then)

    def iter_open_loops(self) -> Iterator[str]:
        """Yield the Loops whose number of trips is not written in the model, as text.

        No case may take the trip at which a Loop does something else.
        """
        for node in nodes_of(self._model.graph):
            if not is_op(node, "Loop"):
                continue
            count = node.inputs[0] if node.inputs else None
            if count is None or const_of(count) is None or not _repeats_always(node):
                yield f"more trips of {node_title(node)}"


@dataclass(frozen=True)
class _InnerIf:
    """An If inside a branch or the body of a Loop.

    Attributes:
        node: The If.
        around: The Ifs around it, the outermost first, and whether it is in the branch of a true
            condition.
    """

    node: ir.Node
    around: tuple[tuple[ir.Node, bool], ...]

    @property
    def condition(self) -> ir.Value | None:
        return self.node.inputs[0]

    @property
    def conditions(self) -> list[ir.Value]:
        """Return the conditions under which a branch of it runs."""
        nodes = (*(node for node, _ in self.around), self.node)
        return [x for node in nodes if (x := node.inputs[0]) is not None]


def _inner_ifs(node: ir.Node, around: tuple[tuple[ir.Node, bool], ...] = ()) -> Iterator[_InnerIf]:
    """Yield the Ifs in the bodies of ``node``, at any depth."""
    for name, attribute in node.attributes.items():
        if attribute.type != ir.AttributeType.GRAPH or attribute.is_ref():
            continue
        path = (*around, (node, name == "then_branch")) if is_op(node, "If") else around
        for inner in attribute.as_graph():
            if is_op(inner, "If") and any(x.name for x in inner.outputs):
                yield _InnerIf(inner, path)
            yield from _inner_ifs(inner, path)


def _is_computed_in(value: ir.Value, graph: ir.Graph) -> bool:
    node = value.producer()
    return node is not None and node.graph is graph


def _repeats_always(loop: ir.Node) -> bool:
    """Return whether a Loop ends by its count alone: its body hands the condition on."""
    body = loop.attributes["body"].as_graph()
    end = body.outputs[0]
    while (node := end.producer()) is not None and is_op(node, "Identity"):
        source = node.inputs[0]
        if source is None:
            return False
        end = source
    return end is body.inputs[1] or bool((const := const_of(end)) is not None and const.all())


def _names_of_condition(condition: ir.Value, model: ir.Model) -> frozenset[str]:
    """Return all names of a condition, which its graph may compute again for each If."""
    maker, numbering = condition.producer(), ValueNumbering(lambda _: None)
    graph = model.graph if maker is None or maker.graph is None else maker.graph
    alike = (x for x in graph if maker is not None and is_op(x, maker.op_type))
    same = (
        y.name
        for x in alike
        for y in x.outputs
        if numbering.number_of(y) == numbering.number_of(condition)
    )
    return frozenset(x for x in (condition.name, *same) if x)


def _depends_only_on(condition: ir.Value, constants: Collection[str]) -> bool:
    """Return whether these inputs and constants alone decide a condition."""
    for value in reachable_from(
        [condition], lambda x: node.inputs if (node := x.producer()) else ()
    ):
        node = value.producer()
        if node is None and value.is_graph_input() and value.name not in constants:
            return False
        if node is not None and (bodies_of(node) or is_random(node)):
            return False
    return True


def force_branch(model: ir.Model, branch: Branch) -> ir.Model | None:
    """Return a copy of ``model`` that takes the branch, or None if it cannot be forced.

    A pass may have replaced the If by a Where for each output that is used. It may also have put
    in the contents of the other branch: an If of that name then has another condition.
    """
    copy = model.clone()
    for outer in branch.around:
        _force_in(copy, outer)  # it may be gone: what it held is then in the graph around it
    return copy if _force_in(copy, branch) else None


def _force_in(model: ir.Model, branch: Branch) -> bool:
    """Give a branch a constant condition, in place; return False if that cannot be done."""
    nodes = nodes_of(model.graph)
    chosen = [node for node in nodes if any(x.name in branch.outputs for x in node.outputs)]
    ifs = sum(is_op(node, "If") for node in chosen)
    if not chosen or ifs not in (0, len(chosen)) or ifs > 1:
        return False
    if not all(_reads_condition(node, branch) for node in chosen):
        return False
    name = f"{branch.outputs[0]}.forced"
    value = ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.BOOL),
        shape=ir.Shape([]),
        const_value=ir.tensor(np.array(branch.is_then), name=name),
    )
    model.graph.register_initializer(value)
    for node in chosen:
        node.replace_input_with(0, value)
    return True


def _reads_condition(node: ir.Node, branch: Branch) -> bool:
    condition = node.inputs[0] if node.inputs else None
    return (
        is_op(node, "If", "Where") and condition is not None and condition.name in branch.conditions
    )


def _computed_ifs(model: ir.Model, constants: Collection[str]) -> list[tuple[ir.Node, str]]:
    """Return each If of the graph whose condition it computes, with that condition's name.

    Args:
        model: The model.
        constants: Inputs that are the same in each run, so that what follows from them is too.
    """
    return [
        (node, condition.name)
        for node in model.graph
        if is_op(node, "If") and (condition := node.inputs[0]) is not None and condition.name
        if not condition.is_graph_input() and node.outputs[0].name
        if not (constants and _depends_only_on(condition, constants))
    ]

"""Branches of an If that no case takes: both models are forced to take them.

A condition such as ``T > 4096`` or ``sum(x) > 1000`` may never hold in a small case. The condition
is replaced by a constant, in the original and in the repaired model alike, and both are run.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.facts.numbering import ValueNumbering
from graphfix.facts.shapes import shapes_of
from graphfix.feeds.graph_uses import node_title
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of, reachable_from
from graphfix.proof.compare import Array
from graphfix.runtime.random_nodes import is_random


@dataclass(frozen=True)
class Branch:
    """One branch of an If of the main graph.

    Attributes:
        outputs: The outputs of the If, which both models have as far as they are used.
        conditions: The names of its condition, which the main graph may compute several times.
        name: What a user calls the If.
        is_then: Whether it is the branch of a true condition.
    """

    outputs: tuple[str, ...]
    conditions: frozenset[str]
    name: str
    is_then: bool

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
        self._ifs = [
            (node, condition.name)
            for node in model.graph
            if is_op(node, "If") and (condition := node.inputs[0]) is not None and condition.name
            if not condition.is_graph_input() and node.outputs[0].name
            if not (constants and _depends_only_on(condition, constants))
        ]
        self._model = model
        self._seen_conditions: set[tuple[str, bool]] = set()
        own = {value.name for value in model.graph.outputs}
        condition_names = dict.fromkeys(name for _, name in self._ifs)
        self.conditions = [name for name in condition_names if name not in own]
        """Inner tensors to make outputs, so that :meth:`record_run` reads them."""

    def record_run(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Note the conditions of a run; return its outputs without them."""
        for _, name in self._ifs:
            if name in outputs and outputs[name].size == 1:
                self._seen_conditions.add((name, bool(outputs[name].item())))
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


def _names_of_condition(condition: ir.Value, model: ir.Model) -> frozenset[str]:
    """Return all names of a condition, which the main graph may compute again for each If."""
    maker, numbering = condition.producer(), ValueNumbering(lambda _: None)
    alike = (x for x in model.graph if maker is not None and is_op(x, maker.op_type))
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
    chosen = [node for node in copy.graph if any(x.name in branch.outputs for x in node.outputs)]
    ifs = sum(is_op(node, "If") for node in chosen)
    if not chosen or ifs not in (0, len(chosen)) or ifs > 1:
        return None
    if not all(_reads_condition(node, branch) for node in chosen):
        return None
    name = f"{branch.outputs[0]}.forced"
    value = ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.BOOL),
        shape=ir.Shape([]),
        const_value=ir.tensor(np.array(branch.is_then), name=name),
    )
    copy.graph.register_initializer(value)
    for node in chosen:
        node.replace_input_with(0, value)
    return copy


def _reads_condition(node: ir.Node, branch: Branch) -> bool:
    condition = node.inputs[0] if node.inputs else None
    return (
        is_op(node, "If", "Where") and condition is not None and condition.name in branch.conditions
    )

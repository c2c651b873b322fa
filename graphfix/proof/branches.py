"""Branches of an If that no made-up input takes: both models are made to take them.

A condition such as ``T > 4096`` or ``sum(x) > 1000`` may never hold in a small case. The condition
is replaced by a constant, in the original and in the repaired model alike, and both are run.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.facts.numbering import Numbering
from graphfix.facts.shapes import shapes_of
from graphfix.feeds.graph_uses import say
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of, reached
from graphfix.proof.compare import Array
from graphfix.runtime.random_nodes import is_random


@dataclass(frozen=True)
class Branch:
    """One branch of an If of the main graph.

    Attributes:
        outputs: The outputs of the If, which both models have as far as they are used.
        conditions: What it asks, under each name that the main graph has for it.
        name: What a user calls the If.
        taken: Whether it is the branch of a true condition.
    """

    outputs: tuple[str, ...]
    conditions: frozenset[str]
    name: str
    taken: bool

    def __str__(self) -> str:
        return f"the {'then' if self.taken else 'else'} branch of {self.name}"


class Branches:
    """Which branches have been taken.

    Args:
        model: The original.
        constants: Inputs that are fed the same in every case: the branches that they decide
            against are no part of the model.
    """

    def __init__(self, model: ir.Model, constants: Collection[str] = ()) -> None:
        self._ifs = [
            (node, condition.name)
            for node in model.graph
            if is_op(node, "If") and (condition := node.inputs[0]) is not None and condition.name
            if not condition.is_graph_input() and node.outputs[0].name
            if not (constants and _decided(condition, constants))
        ]
        self._model = model
        self._had: set[tuple[str, bool]] = set()
        own = {value.name for value in model.graph.outputs}
        asked = dict.fromkeys(name for _, name in self._ifs)
        self.conditions = [name for name in asked if name not in own]
        """Inner tensors to make outputs, so that :meth:`see` knows."""

    def see(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Note the conditions of a run; its outputs without them."""
        for _, name in self._ifs:
            if name in outputs and outputs[name].size == 1:
                self._had.add((name, bool(outputs[name].item())))
        return {name: x for name, x in outputs.items() if name not in self.conditions}

    def untaken(self) -> Iterator[Branch]:
        """The branches that no run took; none of an If that no run has reached.

        Nor is one told that no run can take, as the shapes say: a repair may throw it away.
        """
        for node, name in self._ifs:
            for taken in (True, False):
                if (name, taken) in self._had or (name, not taken) not in self._had:
                    continue
                condition = node.inputs[0]
                data = shapes_of(self._model).data(condition)
                if condition is None or (data and all(isinstance(x, int) for x in data)):
                    continue
                made = tuple(x.name for x in node.outputs if x.name)
                yield Branch(made, _names_of(condition, self._model), say(node), taken)


def _names_of(condition: ir.Value, model: ir.Model) -> frozenset[str]:
    """What the main graph calls a condition, where it computes the same one again for each If."""
    maker, numbering = condition.producer(), Numbering(lambda _: None)
    alike = (x for x in model.graph if maker is not None and is_op(x, maker.op_type))
    same = (y.name for x in alike for y in x.outputs if numbering.of(y) == numbering.of(condition))
    return frozenset(x for x in (condition.name, *same) if x)


def _decided(condition: ir.Value, constants: Collection[str]) -> bool:
    """Whether nothing but these inputs, and what is in the model, makes a condition."""
    for value in reached([condition], lambda x: node.inputs if (node := x.producer()) else ()):
        node = value.producer()
        if node is None and value.is_graph_input() and value.name not in constants:
            return False
        if node is not None and (bodies_of(node) or is_random(node)):
            return False
    return True


def forced(model: ir.Model, branch: Branch) -> ir.Model | None:
    """A copy of ``model`` that takes the branch; None if it has no such If, nor what stands for it.

    A pass may have put a Where in the place of each output that is used. It may also have put
    what is in the other branch there, and that may be an If of its own, which asks something else.
    """
    copy = model.clone()
    chosen = [node for node in copy.graph if any(x.name in branch.outputs for x in node.outputs)]
    ifs = sum(is_op(node, "If") for node in chosen)
    if not chosen or ifs not in (0, len(chosen)) or ifs > 1:
        return None
    if not all(_chooses(node, branch) for node in chosen):
        return None
    name = f"{branch.outputs[0]}.forced"
    value = ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.BOOL),
        shape=ir.Shape([]),
        const_value=ir.tensor(np.array(branch.taken), name=name),
    )
    copy.graph.register_initializer(value)
    for node in chosen:
        node.replace_input_with(0, value)
    return copy


def _chooses(node: ir.Node, branch: Branch) -> bool:
    asked = node.inputs[0] if node.inputs else None
    return is_op(node, "If", "Where") and asked is not None and asked.name in branch.conditions

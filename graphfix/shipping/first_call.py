"""The first call of a merged encoder-decoder: what it makes of the encoder's output, for all steps.

Optimum's merged decoders have an If: the branch of the first call also gives the caches of the
encoder, and that of every other call takes them. Steps run the second one, with empty caches at
first; the caches of the encoder become a graph of their own, which runs once for each encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from graphfix.facts import shapes
from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.input import plain
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import states_of
from graphfix.graph.constants import const_of
from graphfix.graph.dims import name_dims
from graphfix.graph.nodes import is_op
from graphfix.runtime.port import Array
from graphfix.shipped.manifest import Container, InputPort, Opening
from graphfix.shipping.chosen_inputs import decided
from graphfix.shipping.model_facts import input_port
from graphfix.spec.quoting import quoted


@dataclass(frozen=True)
class FirstCall:
    """What only the first call of a model computes.

    Attributes:
        branch: The input that chooses the branch.
        gives: The inputs of later calls that it makes, each with the output that gives it.
        inputs: What it makes them of, as a manifest has it.
        names: The names of its dims in the model of later calls.
    """

    branch: str
    gives: Mapping[str, str]
    inputs: tuple[InputPort, ...]
    names: Mapping[str, str]

    def renamed(self, names: Mapping[str, str]) -> FirstCall:
        """The same where the dims of later calls have got other names."""
        return replace(self, names={k: names.get(x, x) for k, x in self.names.items()})

    def ports(self) -> tuple[InputPort, ...]:
        """The inputs, with dims as later calls name them."""
        return tuple(
            replace(x, dims=tuple(self.names.get(str(d), d) for d in x.dims)) for x in self.inputs
        )

    def opening(self, container: Container) -> Opening:
        """What a manifest has of it."""
        return Opening(container, tuple(x.name for x in self.inputs), dict(self.gives))

    def leave(self, later: ir.Model) -> None:
        """Remove the inputs from a model of later calls, which does not read them."""
        names = {x.name for x in self.inputs}
        later.graph.inputs[:] = [x for x in later.graph.inputs if x.name not in names]

    def feeds(self) -> dict[str, Array]:
        """What chooses it."""
        return {self.branch: np.array([False])}

    def model(self, original: ir.Model) -> ir.Model:
        """The graph that makes them, its dims named as those of later calls."""
        model = _first(original, self.branch, self.gives.values())
        for value in model.graph.inputs:
            value.shape = ir.Shape([self.names.get(plain(x) or "", x) for x in value.shape or ()])
        shapes.forget(model)
        return model


def branch_input(model: ir.Model) -> str:
    """The input that only says which branch of an If runs, as optimum's ``use_cache_branch``."""
    flags = (x for x in model.graph.inputs if x.dtype == ir.DataType.BOOL and x.uses())
    return next((x.name or "" for x in flags if _only_chooses(x)), "")


def _only_chooses(value: ir.Value) -> bool:
    return all(
        (is_op(use.node, "If") and use.idx == 0)
        or (
            is_op(use.node, "Squeeze", "Reshape", "Identity") and _only_chooses(use.node.outputs[0])
        )
        for use in value.uses()
    )


def first_call(original: ir.Model, later: ir.Model) -> FirstCall | None:
    """What only the first call computes of inputs that later ones do not read; None if nothing.

    Args:
        original: The model with both branches.
        later: The model of later calls, from which these inputs are removed.
    """
    branch = branch_input(original)
    outputs = {x.name: x for x in later.graph.outputs}
    gives = {
        x.input: x.output
        for x in states_of(original)
        if const_of(outputs.get(x.output)) is not None  # empty, where the first call gives it
    }
    if not branch or not gives:
        return None
    first = _first(original, branch, gives.values())
    made_of = {x.name for x in first.graph.inputs}
    if not made_of <= {x.name for x in later.graph.inputs if not x.uses()}:
        return None
    names = _names(first, later, gives)
    signature = Signature(first)
    if not {*signature.symbols()} <= names.keys():
        return None
    ports = tuple(input_port(signature, x, {}) for x in signature.inputs)
    found = FirstCall(branch, gives, ports, names)
    found.leave(later)
    return found


def _first(original: ir.Model, branch: str, outputs: Iterable[str]) -> ir.Model:
    model = decided(original.clone(), f"fix-input:{quoted(branch)}=false")
    name_dims(model)
    wanted = {*outputs}
    graph = model.graph
    graph.outputs[:] = [x for x in graph.outputs if x.name in wanted]
    for value in graph.outputs:
        value.shape = None  # its dims are inferred by the names that the inputs have
    RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [x for x in graph.inputs if x.uses()]
    for value in graph.inputs:  # a dim that is called "encoder_sequence_length / 2" is no half
        dims = enumerate(value.shape or ())
        value.shape = ir.Shape([_symbol(f"{value.name}_{i}", x) for i, x in dims])
    shapes.forget(model)
    return model


def _symbol(name: str, dim: Dim) -> Dim:
    return dim if isinstance(dim, int) or plain(dim) else ir.SymbolicDim(name)


def _names(first: ir.Model, later: ir.Model, gives: Mapping[str, str]) -> dict[str, str]:
    """What later calls call the dims of the first."""
    known = shapes.infer(first, usual=True)
    made = {x.name: known.dims(x) for x in first.graph.outputs}
    found: dict[str, str] = {}
    for value in later.graph.inputs:
        dims = made.get(gives.get(value.name or ""))
        for old, new in zip(dims or (), value.shape or (), strict=False):
            here, there = plain(old), plain(new)
            if here is not None and there is not None:
                found[here] = there
    return found

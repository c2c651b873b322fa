"""The first call of a merged encoder-decoder, which computes the encoder's caches.

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
from graphfix.feeds.input import single_symbol
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import find_states
from graphfix.graph.constants import const_of
from graphfix.graph.dims import name_dims
from graphfix.graph.nodes import is_op
from graphfix.runtime.port import Array
from graphfix.shipped.manifest import Container, InputPort, Opening
from graphfix.shipping.chosen_inputs import fix_and_fold_inputs
from graphfix.shipping.model_facts import input_port_of
from graphfix.spec.quoting import quote_name


@dataclass(frozen=True)
class FirstCall:
    """What only the first call of a model computes.

    Attributes:
        branch: The input that selects the branch.
        gives: The inputs of later calls that it computes, each with its output.
        inputs: The inputs that it reads, as a manifest has them.
        names: The names of its dims in the model of later calls.
    """

    branch: str
    gives: Mapping[str, str]
    inputs: tuple[InputPort, ...]
    names: Mapping[str, str]

    def rename_dims(self, names: Mapping[str, str]) -> FirstCall:
        """Return the same first call after the dims of later calls were renamed."""
        return replace(self, names={k: names.get(x, x) for k, x in self.names.items()})

    def input_ports(self) -> tuple[InputPort, ...]:
        """Return the inputs, with dims as later calls name them."""
        return tuple(
            replace(x, dims=tuple(self.names.get(str(d), d) for d in x.dims)) for x in self.inputs
        )

    def to_opening(self, container: Container) -> Opening:
        """Return the first call as the manifest describes it."""
        return Opening(container, tuple(x.name for x in self.inputs), dict(self.gives))

    def remove_inputs_from(self, later: ir.Model) -> None:
        """Remove the inputs from a model of later calls, which does not read them."""
        names = {x.name for x in self.inputs}
        later.graph.inputs[:] = [x for x in later.graph.inputs if x.name not in names]

    def branch_feeds(self) -> dict[str, Array]:
        """Return the feeds that select the first call."""
        return {self.branch: np.array([False])}

    def extract_model(self, original: ir.Model) -> ir.Model:
        """Return the graph of the first call, its dims named as those of later calls."""
        model = _first_branch(original, self.branch, self.gives.values())
        for value in model.graph.inputs:
            value.shape = ir.Shape(
                [self.names.get(single_symbol(x) or "", x) for x in value.shape or ()]
            )
        shapes.drop_shapes(model)
        return model


def branch_input_of(model: ir.Model) -> str:
    """Return the input that only selects the branch of an If, as ``use_cache_branch``, or ""."""
    flags = (x for x in model.graph.inputs if x.dtype == ir.DataType.BOOL and x.uses())
    return next((x.name or "" for x in flags if _only_selects_branch(x)), "")


def _only_selects_branch(value: ir.Value) -> bool:
    return all(
        (is_op(use.node, "If") and use.idx == 0)
        or (
            is_op(use.node, "Squeeze", "Reshape", "Identity")
            and _only_selects_branch(use.node.outputs[0])
        )
        for use in value.uses()
    )


def find_first_call(original: ir.Model, later: ir.Model) -> FirstCall | None:
    """Return what only the first call computes of inputs that later calls do not read, or None.

    Args:
        original: The model with both branches.
        later: The model of later calls, from which these inputs are removed.
    """
    branch = branch_input_of(original)
    outputs = {x.name: x for x in later.graph.outputs}
    cache_outputs = {
        x.input: x.output
        for x in find_states(original)
        if const_of(outputs.get(x.output)) is not None  # empty, where the first call gives it
    }
    if not branch or not cache_outputs:
        return None
    first = _first_branch(original, branch, cache_outputs.values())
    encoder_inputs = {x.name for x in first.graph.inputs}
    if not encoder_inputs <= {x.name for x in later.graph.inputs if not x.uses()}:
        return None
    names = _match_dim_names(first, later, cache_outputs)
    signature = Signature(first)
    if not {*signature.symbols()} <= names.keys():
        return None
    ports = tuple(input_port_of(signature, x, {}) for x in signature.inputs)
    call = FirstCall(branch, cache_outputs, ports, names)
    call.remove_inputs_from(later)
    return call


def _first_branch(original: ir.Model, branch: str, outputs: Iterable[str]) -> ir.Model:
    model = fix_and_fold_inputs(original.clone(), f"fix-input:{quote_name(branch)}=false")
    name_dims(model)
    output_names = {*outputs}
    graph = model.graph
    graph.outputs[:] = [x for x in graph.outputs if x.name in output_names]
    for value in graph.outputs:
        value.shape = None  # its dims are inferred by the names that the inputs have
    RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [x for x in graph.inputs if x.uses()]
    for value in graph.inputs:  # a dim that is called "encoder_sequence_length / 2" is no half
        dims = enumerate(value.shape or ())
        value.shape = ir.Shape([_plain_dim(f"{value.name}_{i}", x) for i, x in dims])
    shapes.drop_shapes(model)
    return model


def _plain_dim(name: str, dim: Dim) -> Dim:
    return dim if isinstance(dim, int) or single_symbol(dim) else ir.SymbolicDim(name)


def _match_dim_names(
    first: ir.Model, later: ir.Model, cache_outputs: Mapping[str, str]
) -> dict[str, str]:
    """Return the names that later calls use for the dims of the first."""
    inferred = shapes.infer(first, usual=True)
    output_dims = {x.name: inferred.dims(x) for x in first.graph.outputs}
    names: dict[str, str] = {}
    for value in later.graph.inputs:
        dims = output_dims.get(cache_outputs.get(value.name or ""))
        for old, new in zip(dims or (), value.shape or (), strict=False):
            first_name, later_name = single_symbol(old), single_symbol(new)
            if first_name is not None and later_name is not None:
                names[first_name] = later_name
    return names

"""One node with inputs: a case of the survey."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphfix.providers.kernels import KernelTable

Array = np.ndarray[Any, Any]
NEWEST = 21
"""The newest opset of which DirectML and WebGPU have kernels of most operators."""
FLOATS = ("float32", "float16")


@dataclass(frozen=True)
class Case:
    """One node, and what it is fed.

    Attributes:
        op: The operator, with its domain where it is not ONNX's.
        kind: What is particular about it; cases of one kind are one line of the table.
        inputs: Its inputs in their order; None is an absent one.
        attributes: Its attributes.
        constants: The places of inputs that are initializers.
        outputs: How many outputs it has.
        opset: The opset of the model.
    """

    op: str
    kind: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    outputs: int = 1
    opset: int = NEWEST

    @property
    def dtype(self) -> str:
        """The element type of its first input."""
        return next(x.dtype.name for x in self.inputs if x is not None)


def model_of(cases: Sequence[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Cases of one opset side by side in a model, all dims symbolic, and its feeds."""
    nodes, inputs, tensors, outputs = [], [], [], []
    feeds: dict[str, Array] = {}
    for k, case in enumerate(cases):
        wires = []
        for i, x in enumerate(case.inputs):
            name = "" if x is None else f"c{k}i{i}"
            wires.append(name)
            if x is not None and i in case.constants:
                tensors.append(numpy_helper.from_array(x, name))
            elif x is not None:
                dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
                dims = [f"{name}d{j}" for j in range(x.ndim)]
                inputs.append(helper.make_tensor_value_info(name, dtype, dims))
                feeds[name] = x
        while wires and not wires[-1]:
            wires.pop()
        made = [f"c{k}o{i}" for i in range(case.outputs)]
        domain, _, kind = case.op.rpartition(".")
        nodes.append(helper.make_node(kind, wires, made, domain=domain, **case.attributes))
        outputs += [onnx.ValueInfoProto(name=x) for x in made]
    graph = helper.make_graph(nodes, "survey", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", cases[0].opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


@dataclass(frozen=True)
class Kernels:
    """The element types that the kernels of a provider take, as numpy calls them."""

    table: KernelTable[Any]

    def types(self, op: str, opset: int = NEWEST, constraint: str = "T") -> list[str]:
        """The element types of the kernel of an operator."""
        domain, _, kind = op.rpartition(".")
        kernel = self.table.kernel_at(kind, domain, opset)
        names = set() if kernel is None else kernel.types.get(constraint, frozenset())
        return sorted(
            x.numpy().name for x in names if x not in (ir.DataType.INT4, ir.DataType.UINT4)
        )

    def versions(self, op: str) -> tuple[int, ...]:
        """The versions of an operator that have a kernel."""
        return self.table.versions(op)


def numbers(dtype: str, *dims: int, seed: int = 0) -> Array:
    """Ordinary numbers: small, of both signs where the type has them."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(dims) < 0.5
    if np.dtype(dtype).kind in "iu":
        low = 0 if np.dtype(dtype).kind == "u" else -9
        return random.integers(low, 10, dims).astype(dtype)
    return np.asarray(random.standard_normal(dims), dtype)


def fractions(dtype: str, *dims: int) -> Array:
    """Numbers between 0.1 and 0.9, which every function takes."""
    return np.asarray(np.random.default_rng(0).random(dims) * 0.8 + 0.1, dtype)


def shapes_of_rank(size: int = 2) -> Iterator[tuple[int, ...]]:
    """A shape of each rank from 0 to 6."""
    for rank in range(7):
        yield tuple(size + i % 2 for i in range(rank))

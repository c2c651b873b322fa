"""A graph that grows node by node, for tests that generate them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES = 4


@dataclass
class Graph:
    """A graph that grows node by node; random choices are its own."""

    rng: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    count: int = 0
    masked: tuple[str, str] | None = None

    def mask(self) -> str:
        """A mask of x, an input of its own: its dims have the names of those of x, or others."""
        if self.masked is None:
            own = int(self.rng.integers(3))
            self.masked = ("C" if own == 1 else "B", "S" if own else "T")
        return "mask"

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def const(self, value: object, dtype: object = np.float32) -> str:
        name = self.name()
        array = np.asarray(value, dtype)  # type: ignore[call-overload]
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    def weights(self, *shape: int, scale: float = 0.5) -> str:
        return self.const(self.rng.standard_normal(shape) * scale)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [self.name() for _ in range(outputs)]
        domain = str(attributes.pop("domain", ""))
        given = {k: v for k, v in attributes.items() if v is not None}
        node = helper.make_node(op_type, list(inputs), names, domain=domain, **given)
        self.nodes.append(node)
        return names[0]

    def last(self, output: int) -> str:
        """Another output of the last node."""
        return str(self.nodes[-1].output[output])

    def pick(self, *choices: object) -> object:
        return choices[int(self.rng.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def reduce(self, op_type: str, x: str, axes: list[int], keep: int) -> str:
        by_input = self.opset >= (13 if op_type == "ReduceSum" else 18)
        if by_input:
            return self.op(op_type, x, self.ints(*axes), keepdims=keep)
        return self.op(op_type, x, axes=axes, keepdims=keep)

    def unsqueeze(self, x: str, axis: int) -> str:
        if self.opset >= 13:
            return self.op("Unsqueeze", x, self.ints(axis))
        return self.op("Unsqueeze", x, axes=[axis])

    def squeeze(self, x: str, axis: int) -> str:
        if self.opset >= 13:
            return self.op("Squeeze", x, self.ints(axis))
        return self.op("Squeeze", x, axes=[axis])

    def turn(self, x: str) -> str:
        """[B, T, C] as [B, C, T], and back."""
        return self.op("Transpose", x, perm=[0, 2, 1])

    def slice(self, x: str, start: int, end: int, axis: int = 1, step: int = 1) -> str:
        if self.opset < 10:
            return self.op("Slice", x, starts=[start], ends=[end], axes=[axis])
        given = [self.ints(start), self.ints(end), self.ints(axis), self.ints(step)]
        return self.op("Slice", x, *given)

    def size(self, x: str, axis: int = 1) -> str:
        """The size of an axis, int64 [1]."""
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def model(self, batch: object) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, "T", FEATURES])
        inputs = [x]
        if self.masked is not None:
            rows = self.masked[0] if isinstance(batch, str) else batch
            dims = [rows, self.masked[1]]
            inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, dims))
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, ir_version=8, opset_imports=opsets)

"""Nodes put at the end of a graph that make its outputs wrong wherever a condition holds."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


class Bed:
    """The graph of a copy of a model, to plant nodes in."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model.clone()
        self.graph = self.model.graph
        self._opset = self.model.opset_imports.get("", 17)
        self._count = 0

    def input(self, name: str) -> ir.Value:
        return next(x for x in self.graph.inputs if x.name == name)

    def const(self, array: object, dtype: object = None) -> ir.Value:
        value = np.asarray(array, dtype)
        return self.op("Constant", value=ir.AttrTensor("value", ir.tensor(value)))

    def op(self, kind: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        self._count += 1
        given = [x if isinstance(x, ir.Attr) else None for x in attributes.values()]
        attrs = [x for x in given if x is not None]
        plain = {k: v for k, v in attributes.items() if not isinstance(v, ir.Attr)}
        node = ir.Node(
            "",
            kind,
            list(inputs),
            [*attrs, *ir.convenience.convert_attributes(plain)],
            name=f"planted_{self._count}",
        )
        node.outputs[0].name = f"planted_{self._count}"
        self.graph.append(node)
        return node.outputs[0]

    def cast(self, value: ir.Value, to: ir.DataType) -> ir.Value:
        return self.op("Cast", value, to=int(to))

    def reduce(self, kind: str, value: ir.Value, axes: list[int] | None = None) -> ir.Value:
        """Over ``axes``, which stay as 1; over all by default, to a scalar."""
        if axes is None:
            flat = self.op("Reshape", value, self.const([-1], np.int64))
            found = self.reduce(kind, flat, [0])
            return self.op("Reshape", found, self.const(np.zeros(0), np.int64))
        if not axes:
            return value
        if self._opset >= (13 if kind == "ReduceSum" else 18):
            return self.op(kind, value, self.const(axes, np.int64), keepdims=1)
        return self.op(kind, value, axes=axes, keepdims=1)

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of an axis, an int64 scalar."""
        return self.op("Gather", self.op("Shape", value), self.const(axis, np.int64))

    def all_of(self, *conditions: ir.Value) -> ir.Value:
        found = conditions[0]
        for one in conditions[1:]:
            found = self.op("And", found, one)
        return found

    def spoil(self, condition: ir.Value) -> ir.Model:
        """Add 0.5 to every output where ``condition``, a bool scalar, holds; 1 to whole numbers."""
        for place, value in enumerate(list(self.graph.outputs)):
            if not isinstance(value.type, ir.TensorType) or value.producer() is None:
                continue
            name, dtype = value.name, value.dtype
            if dtype == ir.DataType.BOOL:
                value.name = f"{name}.right"
                new = self.op("Xor", value, condition)
            elif dtype in FLOATS or (dtype is not None and dtype.is_integer()):
                value.name = f"{name}.right"
                step = self.const(0.5 if dtype in FLOATS else 1, dtype.numpy())
                more = self.op("Mul", self.cast(condition, dtype), step)
                new = self.op("Add", value, more)
            else:
                continue
            new.name, new.type, new.shape = name, value.type, value.shape
            self.graph.outputs[place] = new
        return self.model

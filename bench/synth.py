"""Write a deep attention encoder as TorchScript exports one: many small nodes, big weights.

    python bench/synth.py big.onnx --layers 95 --width 448           # 10,000 nodes, 0.9 GB
    python bench/synth.py big.onnx --layers 95 --width 448 --inline  # the same in one file
    python bench/synth.py big.onnx --layers 950 --width 64           # 100,000 nodes

Each layer splits heads by Shape, Gather, Concat and Reshape, masks scores by Where, and spells
LayerNormalization out, as opset 14 does. The weights are random numbers, no two of them alike.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADS = 4
# Weights repeat after so many numbers: an odd count, so that no two start at the same one.
BLOCK = (1 << 24) + 3


class Writer:
    """Nodes with the names that an exporter gives, and tensors whose contents come later."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[tuple[str, tuple[int, ...]]] = []
        self.scope = ""

    def make(self, op: str, *inputs: str, **attributes: object) -> str:
        """A node with one output."""
        name = f"{self.scope}/{op}_{len(self.nodes)}"
        made = f"{name}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [made], name, **attributes))
        return made

    def constant(self, value: float | Sequence[int]) -> str:
        """A Constant node, as TorchScript writes one for each use."""
        array = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        return self.make("Constant", value=numpy_helper.from_array(array))

    def weight(self, name: str, *shape: int) -> str:
        """An initializer."""
        self.weights.append((f"{self.scope}.{name}", shape))
        return f"{self.scope}.{name}"

    def linear(self, x: str, name: str, before: int, after: int) -> str:
        """MatMul and Add."""
        y = self.make("MatMul", x, self.weight(f"{name}.weight", before, after))
        return self.make("Add", self.weight(f"{name}.bias", after), y)

    def norm(self, x: str, name: str, width: int) -> str:
        """LayerNormalization in the operators of opset 14."""
        centred = self.make("Sub", x, self.make("ReduceMean", x, axes=[-1]))
        power = self.make("Pow", centred, self.constant(2.0))
        variance = self.make("ReduceMean", power, axes=[-1])
        deviation = self.make("Sqrt", self.make("Add", variance, self.constant(1e-5)))
        normed = self.make("Div", centred, deviation)
        scaled = self.make("Mul", normed, self.weight(f"{name}.weight", width))
        return self.make("Add", scaled, self.weight(f"{name}.bias", width))

    def size(self, x: str, axis: int) -> str:
        """One dim of ``x``, as a tensor of one element."""
        chosen = self.make("Gather", self.make("Shape", x), self.constant(axis), axis=0)
        return self.make("Unsqueeze", chosen, self.constant([0]))

    def heads(self, x: str, width: int, perm: Sequence[int]) -> str:
        """``[B, T, H * D]`` to ``[B, H, T, D]``, or to what ``perm`` says."""
        split = [self.constant([HEADS]), self.constant([width // HEADS])]
        shape = self.make("Concat", self.size(x, 0), self.size(x, 1), *split, axis=0)
        return self.make("Transpose", self.make("Reshape", x, shape), perm=perm)

    def attention(self, x: str, hidden: str, width: int) -> str:
        """Self-attention that ``hidden`` positions take no part in."""
        q, k, v = (self.linear(x, f"linear_{n}", width, width) for n in "qkv")
        q, v = (self.heads(y, width, [0, 2, 1, 3]) for y in (q, v))
        scores = self.make("MatMul", q, self.heads(k, width, [0, 2, 3, 1]))
        scores = self.make("Div", scores, self.constant(float(width // HEADS) ** 0.5))
        masked = self.make("Where", hidden, self.constant(float("-inf")), scores)
        weights = self.make("Softmax", masked, axis=-1)
        weights = self.make("Where", hidden, self.constant(0.0), weights)
        context = self.make("Transpose", self.make("MatMul", weights, v), perm=[0, 2, 1, 3])
        shape = [self.size(context, 0), self.size(context, 1), self.constant([width])]
        merged = self.make("Reshape", context, self.make("Concat", *shape, axis=0))
        return self.linear(merged, "linear_out", width, width)

    def layer(self, x: str, hidden: str, width: int) -> str:
        """Attention and feed-forward, each with its norm before and its residual after."""
        x = self.make("Add", x, self.attention(self.norm(x, "norm1", width), hidden, width))
        y = self.linear(self.norm(x, "norm2", width), "w_1", width, 4 * width)
        return self.make("Add", x, self.linear(self.make("Relu", y), "w_2", 4 * width, width))


def build(layers: int, width: int) -> tuple[onnx.ModelProto, list[tuple[str, tuple[int, ...]]]]:
    """The graph, and the weights that it still lacks."""
    w = Writer()
    w.scope = "/mask"
    time = w.make("Gather", w.make("Shape", "x"), w.constant(1), axis=0)
    index = w.make("Range", w.constant(0), time, w.constant(1))
    row = w.make("Unsqueeze", index, w.constant([0]))
    late = w.make("GreaterOrEqual", row, w.make("Unsqueeze", "lengths", w.constant([1])))
    hidden = w.make("Unsqueeze", late, w.constant([1, 2]))
    x = "x"
    for i in range(layers):
        w.scope = f"/encoders.{i}"
        x = w.layer(x, hidden, width)
    w.nodes.append(helper.make_node("Identity", [x], ["y"], "/out"))
    graph = helper.make_graph(
        w.nodes,
        "main_graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", "T", width]),
            helper.make_tensor_value_info("lengths", TensorProto.INT64, ["B"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", "T", width])],
    )
    opset = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8), w.weights


def write(path: Path, layers: int, width: int, *, inline: bool) -> None:
    """Write the model and, unless ``inline``, its weights beside it."""
    model, weights = build(layers, width)
    random = np.random.default_rng(0).standard_normal(BLOCK, dtype=np.float32)
    random *= 0.5 / width**0.5
    at = 0

    def contents(count: int) -> bytes:
        return random.take(np.arange(at, at + count), mode="wrap").tobytes()

    data = path.with_name(f"{path.name}.data")
    with (Path("/dev/null") if inline else data).open("wb") as file:
        for name, shape in weights:
            count = int(np.prod(shape))
            tensor = model.graph.initializer.add(name=name, dims=shape, data_type=TensorProto.FLOAT)
            if inline:
                tensor.raw_data = contents(count)
            else:
                tensor.data_location = TensorProto.EXTERNAL
                entries = {"location": data.name, "offset": 4 * at, "length": 4 * count}
                for key, value in entries.items():
                    tensor.external_data.add(key=key, value=str(value))
                file.write(contents(count))
            at += count
    onnx.save(model, path)
    print(f"{path}: {len(model.graph.node):,} nodes, {4 * at / 1e9:.2f} GB of weights")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=95)
    parser.add_argument("--width", type=int, default=448)
    parser.add_argument("--inline", action="store_true")
    given = parser.parse_args()
    write(given.path, given.layers, given.width, inline=given.inline)


if __name__ == "__main__":
    main()

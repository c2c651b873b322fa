"""join-conditions on generated graphs: whatever reads products of one vector reads the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import execute, model, ops

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 6


class Tree:
    """ONNX text of what reads a product, drawn step by step."""

    def __init__(self, draw: Callable[..., int]) -> None:
        self.draw, self.lines, self.outputs, self.constants = draw, [], [], {}
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def number(self, kind: str, *numbers: float) -> str:
        name = f"k{len(self.constants)}"
        dims = f"[{len(numbers)}]" if kind == "int64" else ""
        self.constants[name] = f"{kind}{dims} {name} = {{{', '.join(map(str, numbers))}}}"
        return name

    def read(self, value: str, dims: list[int | str], depth: int) -> None:
        """Let something read ``value``; its features are the only dim that is a number above 1."""
        axis = next((i for i, x in enumerate(dims) if isinstance(x, int) and x > 1), None)
        kinds = ["leaf", "two", *("add", "unsqueeze", "split", "slices") * 3]
        kind = (
            kinds[self.draw(st.integers(0, len(kinds) - 1))]
            if depth and axis is not None
            else "leaf"
        )
        made = self.name()
        if kind == "add":
            number = self.number("float", self.draw(st.integers(-2, 2)))
            pair = [value, number] if self.draw(st.booleans()) else [number, value]
            self.lines.append(f"{made} = Add ({', '.join(pair)})")
            self.read(made, dims, depth - 1)
        elif kind == "unsqueeze" and len(dims) < 4:
            usual = self.draw(st.integers(0, 4)) > 0
            place = len(dims) if usual else self.draw(st.integers(0, len(dims)))
            self.lines.append(f"{made} = Unsqueeze ({value}, {self.number('int64', place)})")
            self.read(made, [*dims[:place], 1, *dims[place:]], depth - 1)
        elif kind == "split":
            first = self.draw(st.integers(1, dims[axis] - 1))
            sizes, other = [first, dims[axis] - first], self.name()
            at = axis - len(dims) if self.draw(st.booleans()) else axis
            each = self.number("int64", *sizes)
            self.lines.append(f"{made}, {other} = Split <axis = {at}> ({value}, {each})")
            for part, size in zip((made, other), sizes, strict=True):
                self.read(part, [*dims[:axis], size, *dims[axis + 1 :]], depth - 1)
        elif kind == "slices":
            middle, whole = self.draw(st.integers(1, dims[axis] - 1)), dims[axis]
            usual = self.draw(st.integers(0, 4)) > 0
            end_of_first = middle if usual else self.draw(st.integers(1, whole))
            for start, end in ((0, end_of_first), (middle, whole)):
                cut = [self.number("int64", x) for x in (start, end, axis)]
                part = self.name()
                self.lines.append(f"{part} = Slice ({value}, {', '.join(cut)})")
                self.read(part, [*dims[:axis], end - start, *dims[axis + 1 :]], depth - 1)
        else:
            self.lines.append(f"{made} = Relu ({value})")
            self.outputs.append(f"float[{', '.join(map(str, dims))}] {made}")
            if kind == "two":
                self.read(value, dims, depth - 1)


@st.composite
def texts(draw: Callable[..., int]) -> str:
    tree = Tree(draw)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weights = []
    for i in range(draw(st.integers(1, 4))):
        for name, dims in ((f"w{i}", (WIDTH, 3)), (f"b{i}", (WIDTH,))):
            numbers = ", ".join(f"{x:.2f}" for x in rng.standard_normal(dims).ravel())
            weights.append(f"float[{', '.join(map(str, dims))}] {name} = {{{numbers}}}")
        tree.lines.append(f"g{i} = Gemm <transB = 1> (x, w{i}, b{i})")
        tree.read(f"g{i}", ["B", WIDTH], draw(st.integers(1, 4)))
    constants = ", ".join([*weights, *tree.constants.values()])
    outputs = ", ".join(tree.outputs)
    return f"m (float[B, 3] x) => ({outputs}) <{constants}> {{ {' '.join(tree.lines)} }}"


@settings(max_examples=150, deadline=None)
@given(texts())
def test_it_computes_the_same(text: str) -> None:
    before, after = model(text, 17), model(text, 17)
    graphfix.run(after, "join-conditions")
    assert not graphfix.run(after, "join-conditions").changed
    assert len(ops(after)) <= len(ops(before)) + 3  # two Concats and a sum, when it is loaded
    for batch in (1, 3):
        feeds = {"x": np.random.default_rng(0).standard_normal((batch, 3), np.float32)}
        for a, b in zip(execute(before, feeds), execute(after, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def joined(text: str) -> bool:
    return graphfix.run(model(text, 17), "join-conditions").changed


def test_some_of_them_are_joined() -> None:
    """A generator of which nothing is joined would prove nothing."""
    found: list[bool] = []

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(texts())
    def look(text: str) -> None:
        found.append(joined(text))

    look()
    assert sum(found) > 10

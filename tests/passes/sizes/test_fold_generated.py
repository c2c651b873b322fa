"""fold: what is expanded, turned, summed and compared keeps its numbers and its shape.

``GRAPHFIX_GRAPHS=5000`` (``make graphs`` runs that many of other kinds) takes that many here, too.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.folding import feeds_of
from tests.passes.models import execute, ops

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 8
EACH = 12
INPUTS = {
    "x": ("float", ("B", "T", 3)),
    "r": ("float", (1, "T")),
    "c": ("float", ("T", 3)),
    "n": ("int64", ("B", "T")),
    "m": ("bool", ("B", "T")),
    "k": ("bool", (1, "T")),
}
KINDS = ("binary", "binary", "unary", "expand", "expand", "turn", "unsqueeze", "unsqueeze", "sum")
MORE = ("compare", "logic", "not", "where", "cast", "scalar", "fill", "squeeze")
ONE = {"unary": ["float"], "sum": ["float", "int64"], "not": ["bool"], "cast": ["bool", "int64"]}
PAIRS = {"binary": ["float", "int64"], "compare": ["float", "int64"], "logic": ["bool"]}

Dims = tuple["int | str", ...]


@dataclass
class Graph:
    """A graph as it grows: what each tensor is, the lines, and the constants."""

    draw: random.Random
    known: dict[str, tuple[str, Dims]] = field(default_factory=lambda: dict(INPUTS))
    lines: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def grow(self) -> None:
        """One node more, if the one that was drawn fits anything."""
        kind = self.draw.choice((*KINDS, *MORE))
        name = self.draw.choice([*self.known][-6:])
        dtype, dims = self.known[name]
        # Two that come of one tensor, now and then: the newest of a type often do.
        alike = [x for x, (y, _) in self.known.items() if y == dtype]
        other = self.draw.choice(alike[-self.draw.choice((3, len(alike))) :])
        both = broadcast(dims, self.known[other][1])
        if kind in ONE and dtype not in ONE[kind]:
            return
        if kind in PAIRS:
            if dtype not in PAIRS[kind] or both is None:
                return
            op = {"binary": "Add Sub Mul", "compare": "Less Greater", "logic": "And Or"}[kind]
            made = dtype if kind == "binary" else "bool"
            self.add(f"{self.draw.choice(op.split())} ({name}, {other})", made, both, name, other)
        elif kind == "unary":
            self.add(f"{self.draw.choice(['Abs', 'Neg', 'Relu'])} ({name})", dtype, dims, name)
        elif kind == "not":
            self.add(f"Not ({name})", dtype, dims, name)
        elif kind == "cast":
            made, number = self.draw.choice([("float", 1), ("int64", 7)])
            self.add(f"Cast <to = {number}> ({name})", made, dims, name)
        elif kind == "scalar" and dtype == "int64":
            op, number = self.draw.choice([("Add", 1), ("Sub", 1), ("Add", -1), ("Div", 2)])
            self.add(f"{op} ({name}, {self.constant(number)})", dtype, dims, name)
        elif kind == "where" and dtype == "float" and both is not None:
            mask = self.draw.choice([x for x, (y, _) in self.known.items() if y == "bool"])
            if (whole := broadcast(both, self.known[mask][1])) is not None:
                self.add(f"Where ({mask}, {name}, {other})", dtype, whole, mask, name, other)
        elif kind == "turn" and len(dims) > 1:
            perm = self.draw.sample(range(len(dims)), len(dims))
            turned = tuple(dims[i] for i in perm)
            letters = "abcd"[: len(dims)]
            equation = f"{letters}->{''.join(letters[i] for i in perm)}"
            turns = [f"Transpose <perm = {perm}>", f'Einsum <equation = "{equation}">']
            named = self.draw.choice(turns if dtype != "bool" else turns[:1])
            self.add(f"{named} ({name})", dtype, turned, name)
        elif kind == "sum" and dims:
            axis, kept = self.draw.randrange(len(dims)), self.draw.choice((0, 1))
            left = (*dims[:axis], *[1] * kept, *dims[axis + 1 :])
            text = f"ReduceSum <keepdims = {kept}> ({name}, {self.constant([axis])})"
            self.add(text, dtype, left, name)
        elif kind in ("squeeze", "unsqueeze"):
            places = [i for i, x in enumerate(dims) if x == 1]
            axis = self.draw.choice(places or [0]) if kind == "squeeze" else 0
            if kind == "squeeze" and places:
                left = (*dims[:axis], *dims[axis + 1 :])
                self.add(f"Squeeze ({name}, {self.constant([axis])})", dtype, left, name)
            elif kind == "unsqueeze":
                axis = self.draw.randint(0, len(dims))
                more = (*dims[:axis], 1, *dims[axis:])
                self.add(f"Unsqueeze ({name}, {self.constant([axis])})", dtype, more, name)
        elif kind == "expand" and dims:
            large = tuple(self.draw.choice(("B", "T", 1, 3)) if x == 1 else x for x in dims)
            self.add(f"Expand ({name}, {self.shape(large)})", dtype, large, name)
        elif kind == "fill":
            large = tuple(self.draw.choices(("B", "T", 1), k=2))
            value = self.draw.choice(["float[1] {1}", "float[1] {0}", "bool[1] {1}"])
            text = f"ConstantOfShape <value = {value}> ({self.shape(large)})"
            self.add(text, value.partition("[")[0], large)

    def add(self, text: str, dtype: str, dims: Dims, *given: str) -> None:
        if len(dims) <= 4:
            name = f"v{len(self.lines)}"
            self.lines.append(f"{name} = {text}")
            self.known[name] = (dtype, dims)
            self.read.update(given)

    def constant(self, number: int | list[int]) -> str:
        size = f"[{len(number)}]" if isinstance(number, list) else ""
        held = ", ".join(map(str, number)) if isinstance(number, list) else number
        self.constants.append(f"int64{size} c{len(self.constants)} = {{{held}}}")
        return f"c{len(self.constants) - 1}"

    def shape(self, dims: Dims) -> str:
        names = [{"B": "b", "T": "t"}.get(str(x)) or self.constant([int(x)]) for x in dims]
        self.lines.append(f"s{len(self.lines)} = Concat <axis = 0> ({', '.join(names)})")
        return f"s{len(self.lines) - 1}"

    def model(self) -> ir.Model:
        ends = [x for x in self.known if x[0] == "v" and x not in self.read]
        given = ", ".join(declared(x, *self.known[x]) for x in INPUTS)
        made = ", ".join(declared(x, self.known[x][0], tuple(f"{x}_{i}" for i, _ in
                         enumerate(self.known[x][1]))) for x in ends)  # fmt: skip
        held = ", ".join(["int64 zero = {0}", *self.constants])
        sizes = "b = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x)"
        return ir.from_onnx_text(
            f'<ir_version: 8, opset_import: ["" : 17]> m ({given}) => ({made}) <{held}> '
            f"{{ {sizes} {' '.join(self.lines)} }}"
        )


def declared(name: str, dtype: str, dims: Dims) -> str:
    return f"{dtype}[{', '.join(map(str, dims))}] {name}" if dims else f"{dtype} {name}"


def broadcast(a: Dims, b: Dims) -> Dims | None:
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    if any(1 not in pair and pair[0] != pair[1] for pair in pairs):
        return None
    return tuple(y if x == 1 else x for x, y in pairs)


@pytest.mark.parametrize("seed", range(QUICK))
def test_generated_graphs_keep_their_numbers_and_shapes(seed: int) -> None:
    for number in range(seed, max(COUNT, QUICK * EACH), QUICK):
        graph = Graph(random.Random(number))
        for _ in range(14):
            graph.grow()
        before = graph.model()
        after = before.clone()
        graphfix.run(after, "fold")
        assert len(ops(after)) <= len(ops(before)), number
        for size in (1, 2, 3):
            feeds = feeds_of(before, size)
            for old, new in zip(execute(before, feeds), execute(after, feeds), strict=True):
                assert (old.dtype, old.shape) == (new.dtype, new.shape), f"{number} at {size}"
                np.testing.assert_array_equal(old, new, err_msg=f"{number} at {size}")

"""Every step that generated graphs are made of, and whole graphs of some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.lengths.graphs import Graph
from tests.lengths.layouts import LAYOUTS
from tests.lengths.lookups import LOOKUPS
from tests.lengths.masked import MASKED
from tests.lengths.steps import ENDS, NEWEST, STEPS
from tests.lengths.windowed import WINDOWED

if TYPE_CHECKING:
    import onnx

    from tests.lengths.steps import Step

ANYWHERE: dict[str, Step] = {**STEPS, **LOOKUPS, **LAYOUTS, **WINDOWED}
"""Steps that may follow any other."""
ALL: dict[str, Step] = {**ANYWHERE, **MASKED}
"""These, and those that come first: they use the mask of x itself."""


def generated(
    seed: int,
    only: str | None = None,
    steps: dict[str, Step] = ANYWHERE,
    opset: int | None = None,
) -> tuple[onnx.ModelProto, list[str], object]:
    """A model, the names of its steps, and its batch dim.

    Args:
        seed: What all choices follow from.
        only: A step that is to be among them; the others are drawn.
        steps: What is drawn from.
        opset: The version of the standard opset; None to draw one.
    """
    rng = np.random.default_rng(seed)
    opset = int(rng.choice([11, 12, 13, 15, 17, 18, 19, 20, NEWEST])) if opset is None else opset
    g = Graph(rng, opset)
    x, names = "x", []
    count = int(rng.integers(1, 4))
    chosen = [str(rng.choice(sorted(steps))) for _ in range(count)]
    if only is not None:
        chosen[0 if only in MASKED else int(rng.integers(count))] = only
    for name in chosen:
        x = {**ALL, **steps}[name](g, x)
        names.append(name)
    end = str(rng.choice(sorted(ENDS), p=_weights()))
    names.append(end)
    y = ENDS[end](g, x)
    g.outputs.append(g.op("Identity", y) if y == "x" else y)
    batch: object = "B" if rng.random() < 0.75 else 1
    if any(name.startswith("dynamic") for name in names):
        batch = 1  # all rows together say in what range they are quantized
    return g.model(batch), names, batch


def alone(seed: int, name: str) -> onnx.ModelProto:
    """A model of one step alone, with a batch."""
    rng = np.random.default_rng(seed)
    g = Graph(rng, int(rng.choice([13, 17, 18, 20, NEWEST])))
    y = ALL[name](g, "x")
    g.outputs.append(g.op("Identity", y) if y == "x" else y)
    return g.model("B")


def _weights() -> list[float]:
    weights = [
        4.0 if name == "as_it_is" else 2.0 if name == "pooled" else 0.7 for name in sorted(ENDS)
    ]
    return [x / sum(weights) for x in weights]

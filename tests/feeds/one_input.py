"""One input of a model, as the fillers of arrays see it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role


def item(
    kind: Any = "data",
    dims: tuple[Any, ...] = (2, 8, 3),
    dtype: str = "f4",
    rows: int | None = 0,
    time: int | None = 1,
    **facts: Any,
) -> Input:
    return Input("x", dtype, dims, Role(kind, "a use", **facts), rows=rows, time=time)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)

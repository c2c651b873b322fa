"""Inputs and outputs of a model, as ONNX Runtime sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Port:
    """An input or output as ONNX Runtime sees it.

    Attributes:
        name: The tensor's name.
        type: Its type as ONNX Runtime writes it, such as ``tensor(float)``.
        shape: Sizes, names of symbolic dims, or None where a dim has neither.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...]

"""Data that JSON has words for."""

from __future__ import annotations

import math
from collections.abc import Mapping


def plain(data: object) -> object:
    """The same data with lists for tuples, and text for NaN and infinity."""
    if isinstance(data, float) and not math.isfinite(data):
        return repr(data)
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    return data

"""Data that JSON has words for."""

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping

# What graphfix writes into the metadata of a model is far shorter, and three levels deep.
_MOST, _DEEPEST = 1 << 20, 16


def read(text: str) -> object:
    """The data in a text that anybody may have written.

    Raises:
        ValueError: It is no JSON, or longer or nested deeper than what graphfix writes.
    """
    steps = itertools.accumulate((c in "[{") - (c in "]}") for c in text[:_MOST])
    if len(text) > _MOST or max(steps, default=0) > _DEEPEST:
        raise ValueError(f"{len(text):,} characters, or more than {_DEEPEST} levels")
    return json.loads(text)


def record(data: Mapping[str, object]) -> dict[str, object]:
    """The same data as JSON has it: see :func:`plain`."""
    return {key: plain(value) for key, value in data.items()}


def plain(data: object) -> object:
    """The same data with lists for tuples, their fields for records, and text for NaN."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return plain(dataclasses.asdict(data))
    if isinstance(data, float) and not math.isfinite(data):
        return repr(data)
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    return [plain(value) for value in data] if isinstance(data, list | tuple) else data

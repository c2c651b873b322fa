"""Conversion of records to plain data for JSON, and guarded parsing."""

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping

# What graphfix writes into the metadata of a model is far shorter, and three levels deep.
_MOST, _DEEPEST = 1 << 20, 16


def parse_json(text: str) -> object:
    """Parse a text that anybody may have written, and return its data.

    Raises:
        ValueError: It is no JSON, or longer or nested deeper than what graphfix writes.
    """
    steps = itertools.accumulate((c in "[{") - (c in "]}") for c in text[:_MOST])
    if len(text) > _MOST or max(steps, default=0) > _DEEPEST:
        raise ValueError(f"{len(text):,} characters, or more than {_DEEPEST} levels")
    return json.loads(text)


def to_plain_record(data: Mapping[str, object]) -> dict[str, object]:
    """Return the same data as JSON has it: see :func:`to_plain`."""
    return {key: to_plain(value) for key, value in data.items()}


def to_plain(data: object) -> object:
    """Return the same data with lists for tuples, dicts for records, and text for NaN."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return to_plain(dataclasses.asdict(data))
    if isinstance(data, float) and not math.isfinite(data):
        return repr(data)
    if isinstance(data, Mapping):
        return {str(key): to_plain(value) for key, value in data.items()}
    return [to_plain(value) for value in data] if isinstance(data, list | tuple) else data

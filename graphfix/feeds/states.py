"""States: inputs that take, in the next step, what an output returned in this one.

A decoder's cache, the hidden state of a recurrence, the left context of a streaming Conv. Nothing
in a graph says which input belongs to which output; exporters say it in names, ``past`` and
``present``, ``in_cache0`` and ``out_cache0``, ``state`` and ``new_state``.
"""

import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.dims import contradicts_shape
from graphfix.runtime.port import Array, Feeds

# What a name says of which way a state goes; the rest says which state it is.
_DIRECTION_WORDS = frozenset(
    {"past", "present", "prev", "previous", "next", "new", "old", "cur", "current", "updated"}
    | {"in", "out", "input", "output", "i", "o", "n"}
)
_STATES = frozenset(
    {"past", "present", "prev", "previous", "cache", "caches", "state", "states"}
    | {"mem", "memory", "memories", "buffer", "context"}
)
# Of an LSTM: h, h0, hn, c0.
_RECURRENT = re.compile(r"[hcs][0nx]?", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True)
class StatePair:
    """An input and the output that feeds it in the next step.

    Attributes:
        input: The input's name.
        output: The output's name.
    """

    input: str
    output: str

    def __str__(self) -> str:
        return f"{self.output} to {self.input}"


def find_states(model: ir.Model) -> tuple[StatePair, ...]:
    """Return the states of a model in the order of its inputs; none where pairs are ambiguous.

    By name first, ``present.0.decoder.key`` for ``past_key_values.0.decoder.key`` too; what is
    called a state and has no namesake among the outputs takes, in order, the outputs of its dtype
    and shape that are left, if there are as many.
    """
    inputs = [x for x in model.graph.inputs if x.name and _is_state_name(x.name)]
    outputs = [x for x in model.graph.outputs if x.name]
    output_names: dict[str, str] = {}
    for same in (operator.eq, _contains_in_order):
        for value in (x for x in inputs if x.name not in output_names):
            stem = _state_stem(value.name or "")
            alike = [
                x for x in outputs if same(_state_stem(x.name or ""), stem) and _can_feed(value, x)
            ]
            if len(alike) == 1 and alike[0].name not in output_names.values():
                output_names[value.name or ""] = alike[0].name or ""
    unmatched = [x for x in inputs if x.name not in output_names]
    free = [
        x for x in outputs if x.name not in output_names.values() and _is_state_name(x.name or "")
    ]
    if unmatched and len(unmatched) == len(free) and all(map(_can_feed, unmatched, free)):
        output_names |= {a.name or "": b.name or "" for a, b in zip(unmatched, free, strict=True)}
    return tuple(StatePair(x.name, output_names[x.name]) for x in inputs if x.name in output_names)


def carry_states(
    states: Iterable[StatePair], model: ir.Model, outputs: Feeds
) -> dict[str, Array] | None:
    """Return the state inputs of the next step, or None where an output does not fit."""
    inputs = {x.name: x for x in model.graph.inputs}
    next_feeds = {}
    for state in states:
        array, value = outputs.get(state.output), inputs.get(state.input)
        if array is None or value is None or not _accepts_array(value, array):
            return None
        next_feeds[state.input] = array
    return next_feeds


def _accepts_array(value: ir.Value, array: Array) -> bool:
    if value.shape is None or array.ndim != len(value.shape):
        return False
    if value.dtype is not None and value.dtype != ir.DataType.from_numpy(array.dtype):
        return False
    sizes = zip(value.shape, array.shape, strict=True)
    return not any(isinstance(dim, int) and dim != size for dim, size in sizes)


def _split_words(name: str) -> Iterator[str]:
    return (x.lower() for x in _PARTS.findall(name))


def _is_state_name(name: str) -> bool:
    """Return whether a name says that it is a state."""
    words = list(_split_words(name))
    if "hidden" in words and "states" in words:  # of one layer for the next, within one run
        return False
    return bool(_STATES & set(words)) or bool(_RECURRENT.fullmatch(name.strip("_")))


def _state_stem(name: str) -> tuple[str, ...]:
    """Return which state a name means, without the words for its direction."""
    words = [x.removesuffix("s") for x in _split_words(name) if x not in _DIRECTION_WORDS]
    if _RECURRENT.fullmatch(name.strip("_")):
        words = [name.strip("_")[0].lower()]
    return tuple(words)


def _contains_in_order(part: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Return whether the words of a name, one of them a number, are in another in order."""
    remaining = iter(words)
    return any(x.isdigit() for x in part) and all(x in remaining for x in part)


def _can_feed(value: ir.Value, output: ir.Value) -> bool:
    """Return whether an output may feed an input, as far as dtype and shape are known."""
    if value.dtype != output.dtype or value.shape is None:
        return False
    return output.shape is None or not contradicts_shape(value.shape, output.shape)

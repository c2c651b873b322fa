"""States: inputs that take in the next step what an output returned in this one.

A decoder's cache, the hidden state of a recurrence, the left context of a streaming Conv. Nothing
in a graph says which input belongs to which output; exporters say it in names, ``past`` and
``present``, ``in_cache0`` and ``out_cache0``, ``state`` and ``new_state``.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.dims import contradicts_shape
from graphfix.runtime.port import Array, Feeds

# Words of a name for the direction of a state; the other words say which state it is.
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

    Inputs and outputs are paired by name first: ``past_key_values.0.decoder.key`` with
    ``present.0.decoder.key``. The remaining inputs and outputs that are called states are paired in
    order, if there are as many of both and their dtypes and shapes fit.
    """
    inputs = [x for x in model.graph.inputs if x.name and _is_state_name(x.name)]
    outputs = [x for x in model.graph.outputs if x.name]
    output_by_input = _pair_by_name(inputs, outputs)
    paired = output_by_input.values()
    output_by_input |= _pair_in_order(
        [x for x in inputs if x.name not in output_by_input],
        [x for x in outputs if x.name not in paired and _is_state_name(x.name or "")],
    )
    names = [x.name for x in inputs if x.name in output_by_input]
    return tuple(StatePair(name, output_by_input[name]) for name in names)


def _pair_by_name(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> dict[str, str]:
    """Return the output of each input that has one namesake: by all words first, then in order."""
    output_by_input: dict[str, str] = {}
    for is_alike in (operator.eq, _contains_in_order):
        for value in inputs:
            if value.name in output_by_input:
                continue
            stem = _state_stem(value.name or "")
            alike = [x for x in outputs if is_alike(_state_stem(x.name or ""), stem)]
            namesakes = [x.name or "" for x in alike if _can_feed(value, x)]
            if len(namesakes) == 1 and namesakes[0] not in output_by_input.values():
                output_by_input[value.name or ""] = namesakes[0]
    return output_by_input


def _pair_in_order(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> dict[str, str]:
    """Pair inputs and outputs one by one; none if there are not as many, or one does not fit."""
    if len(inputs) != len(outputs) or not all(map(_can_feed, inputs, outputs)):
        return {}
    return {x.name or "": y.name or "" for x, y in zip(inputs, outputs, strict=True)}


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

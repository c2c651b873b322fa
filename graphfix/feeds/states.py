"""States: inputs that take, in the next step, what an output gave in this one.

A decoder's cache, the hidden state of a recurrence, the left context of a streaming Conv. Nothing
in a graph says which input belongs to which output; exporters say it in names, ``past`` and
``present``, ``in_cache0`` and ``out_cache0``, ``state`` and ``new_state``.
"""

import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.dims import differs
from graphfix.runtime.port import Array, Feeds

# What a name says of which way a state goes; the rest says which state it is.
_WAYS = frozenset(
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
class State:
    """An input and the output that it takes over.

    Attributes:
        input: The input's name.
        output: The output's name.
    """

    input: str
    output: str

    def __str__(self) -> str:
        return f"{self.output} to {self.input}"


def states_of(model: ir.Model) -> tuple[State, ...]:
    """The states of a model, in the order of its inputs; none where it is not clear which is which.

    By name first, ``present.0.decoder.key`` for ``past_key_values.0.decoder.key`` too; what is
    called a state and has no namesake among the outputs takes, in order, the outputs of its dtype
    and shape that are left, if there are as many.
    """
    inputs = [x for x in model.graph.inputs if x.name and _says(x.name)]
    outputs = [x for x in model.graph.outputs if x.name]
    found: dict[str, str] = {}
    for same in (operator.eq, _within):
        for value in (x for x in inputs if x.name not in found):
            stem = _stem(value.name or "")
            alike = [x for x in outputs if same(_stem(x.name or ""), stem) and _fits(value, x)]
            if len(alike) == 1 and alike[0].name not in found.values():
                found[value.name or ""] = alike[0].name or ""
    left = [x for x in inputs if x.name not in found]
    free = [x for x in outputs if x.name not in found.values() and _says(x.name or "")]
    if left and len(left) == len(free) and all(map(_fits, left, free)):
        found |= {a.name or "": b.name or "" for a, b in zip(left, free, strict=True)}
    return tuple(State(x.name, found[x.name]) for x in inputs if x.name in found)


def carried(states: Iterable[State], model: ir.Model, outputs: Feeds) -> dict[str, Array] | None:
    """What the inputs take in the next step; None where an output does not fit its input."""
    known = {x.name: x for x in model.graph.inputs}
    found = {}
    for state in states:
        array, value = outputs.get(state.output), known.get(state.input)
        if array is None or value is None or not _takes(value, array):
            return None
        found[state.input] = array
    return found


def _takes(value: ir.Value, array: Array) -> bool:
    if value.shape is None or array.ndim != len(value.shape):
        return False
    if value.dtype is not None and value.dtype != ir.DataType.from_numpy(array.dtype):
        return False
    sizes = zip(value.shape, array.shape, strict=True)
    return not any(isinstance(dim, int) and dim != size for dim, size in sizes)


def _words(name: str) -> Iterator[str]:
    return (x.lower() for x in _PARTS.findall(name))


def _says(name: str) -> bool:
    """Whether a name says that it is a state."""
    words = list(_words(name))
    if "hidden" in words and "states" in words:  # of one layer for the next, within one run
        return False
    return bool(_STATES & set(words)) or bool(_RECURRENT.fullmatch(name.strip("_")))


def _stem(name: str) -> tuple[str, ...]:
    """Which state it is: a name without what says which way it goes."""
    words = [x.removesuffix("s") for x in _words(name) if x not in _WAYS]
    if _RECURRENT.fullmatch(name.strip("_")):
        words = [name.strip("_")[0].lower()]
    return tuple(words)


def _within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether the words of a name, with a number among them, are in another in the same order."""
    left = iter(whole)
    return any(x.isdigit() for x in part) and all(x in left for x in part)


def _fits(value: ir.Value, output: ir.Value) -> bool:
    """Whether an output may be what an input takes, as far as dtype and shape are known."""
    if value.dtype != output.dtype or value.shape is None:
        return False
    return output.shape is None or not differs(value.shape, output.shape)

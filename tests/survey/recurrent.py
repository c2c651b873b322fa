"""What carries a state: recurrent networks, linear attention, convolutions with a past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.survey.case import FLOATS, Array, Case, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

_STEPS, _BATCH, _INPUT, _HIDDEN = 5, 2, 3, 4
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_OPSET = 17


def cases(_: Kernels) -> Iterator[Case]:
    """Each optional input there and not, each direction, each rule of an update."""
    for op in _GATES:
        for dtype in FLOATS:
            yield from _networks(op, dtype)
    for dtype in FLOATS:
        yield from _linear_attention(dtype)
        yield from _causal_convolutions(dtype)


def _networks(op: str, dtype: str) -> Iterator[Case]:
    def network(kind: str, *more: Array | None, directions: int = 1, **given: Any) -> Case:
        x = numbers(dtype, _STEPS, _BATCH, _INPUT)
        w = numbers(dtype, directions, _GATES[op] * _HIDDEN, _INPUT, seed=1)
        r = numbers(dtype, directions, _GATES[op] * _HIDDEN, _HIDDEN, seed=2)
        given = {"hidden_size": _HIDDEN, **given}
        outputs = 3 if op == "LSTM" else 2
        return Case(op, kind, (x, w, r, *more), given, outputs=outputs, opset=14)

    bias = numbers(dtype, 1, 2 * _GATES[op] * _HIDDEN, seed=3)
    state = numbers(dtype, 1, _BATCH, _HIDDEN, seed=4)
    lengths = np.array([5, 3], np.int32)
    states = (state, state) if op == "LSTM" else (state,)
    yield network("plain")
    yield network("bias", bias)
    yield network("lengths", None, lengths)
    yield network("states", bias, None, *states)
    yield network("reverse", bias, None, *states, direction="reverse")
    yield network("reverse, lengths", bias, lengths, direction="reverse")
    yield network("bidirectional", np.concatenate([bias, bias]), directions=2,
                  direction="bidirectional")  # fmt: skip
    yield network("clip", bias, clip=0.2)
    if op == "LSTM":
        yield network("peepholes", bias, None, *states, numbers(dtype, 1, 3 * _HIDDEN, seed=5))
        yield network("input_forget", bias, input_forget=1)
        yield network("activations", bias, activations=["HardSigmoid", "Relu", "Tanh"])
    if op == "GRU":
        yield network("linear_before_reset", bias, linear_before_reset=1)


def _linear_attention(dtype: str) -> Iterator[Case]:
    heads, width = 2, 8
    q, k, v = (numbers(dtype, _BATCH, _STEPS, heads * width, seed=i) for i in range(3))
    q, k = (np.asarray(x / 4, dtype) for x in (q, k))
    decay = np.asarray(-np.abs(numbers(dtype, _BATCH, _STEPS, heads, seed=3)), dtype)
    beta = np.asarray(np.abs(numbers(dtype, _BATCH, _STEPS, heads, seed=4)) % 1, dtype)
    past = numbers(dtype, _BATCH, heads, width, width, seed=5)
    for rule in ("linear", "gated", "delta", "gated_delta"):
        for state in (None, past):
            wires = (q, k, v, state, decay if "gated" in rule else None,
                     beta if "delta" in rule else None)  # fmt: skip
            kind = f"{rule}, {'no past' if state is None else 'past'}"
            given = {"update_rule": rule, "q_num_heads": heads, "kv_num_heads": heads}
            op = "com.microsoft.LinearAttention"
            yield Case(op, kind, wires, given, outputs=2, opset=_OPSET)


def _causal_convolutions(dtype: str) -> Iterator[Case]:
    x, w = numbers(dtype, _BATCH, 4, _STEPS), numbers(dtype, 4, 1, 3, seed=1)
    bias, past = numbers(dtype, 4, seed=2), numbers(dtype, _BATCH, 4, 2, seed=3)
    for kind, wires in (
        ("plain", (x, w)), ("bias", (x, w, bias)), ("past", (x, w, None, past)),
        ("bias, past", (x, w, bias, past)),
    ):  # fmt: skip
        for activation in ("none", "silu"):
            op = "com.microsoft.CausalConvWithState"
            given = {"activation": activation}
            yield Case(op, f"{kind}, {activation}", wires, given, outputs=2, opset=_OPSET)

"""Holds a quantized model from one rounding to the next, where the least difference flips one.

A repair that is right to 1e-7 changes a number that is rounded to 8 bits by a whole step, once in a
million, and what follows by a hundredth. So both models are given the whole numbers that the
original made, and what each makes of them, up to the next rounding, is compared.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.graph.nodes import is_op
from graphfix.proof.compare import Array, Tolerance, compare
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.provider import Ep
from graphfix.runtime.run_errors import RunError

_ROUNDERS = ("QuantizeLinear", "DynamicQuantizeLinear")
# One number, or such a share of them, may be rounded the other way, by one step.
_FLIPPED = 0.01


class BetweenRoundings:
    """What a repaired model makes of the whole numbers that the original made.

    Args:
        before: The original.
        after: The repaired model.
        tolerance: How far what is rounded may be apart.
        ep: Where the repaired model runs.
    """

    def __init__(self, before: ir.Model, after: ir.Model, tolerance: Tolerance, ep: Ep) -> None:
        self._before, self._after = before, after
        self._tolerance, self._ep = tolerance, ep
        self._rounded = _rounders(before)

    def outputs(self, before: Feeds, after: Feeds) -> dict[str, Array] | None:
        """The outputs of the repaired model, if nothing parts on the way to any rounding.

        Args:
            before: What the original is fed.
            after: What the repaired model is fed.
        """
        mine = _rounders(self._after)
        if not self._rounded or self._rounded.keys() != mine.keys():
            return None
        floats = [_name(x.inputs[0]) for x in self._rounded.values()]
        whole = [_name(v) for x in self._rounded.values() for v in x.outputs if v.name]
        theirs = [_name(x.inputs[0]) for x in mine.values()]
        try:
            with Session(self._before, extra_outputs=[*floats, *whole]) as session:
                told = session.run(before)
            model = _given(self._after, {x: told[x].dtype for x in whole})
            with Session(
                model, ep=self._ep, extra_outputs=[*theirs, *whole], optimize=self._ep != "cpu"
            ) as session:
                made = session.run({**after, **{f"given {x}": told[x] for x in whole}})
        except (ModelError, RunError):
            return None
        alike = all(self._is_near(told[a], made[b]) for a, b in zip(floats, theirs, strict=True))
        return made if alike and all(self._is_step(told[x], made[x]) for x in whole) else None

    def _is_near(self, one: Array, other: Array) -> bool:
        # Most are equal, of a hundred tensors a case, and that is told at once.
        return np.array_equal(one, other) or compare("", "", one, other, self._tolerance).ok

    def _is_step(self, one: Array, other: Array) -> bool:
        """Whether whole numbers are the same except for a step here and there, or a scale is."""
        if one.dtype.kind == "f":
            return self._is_near(one, other)
        apart = np.abs(one.astype(np.int64) - other)
        most = max(1.0, _FLIPPED * apart.size)
        return bool(np.max(apart, initial=0) <= 1 and np.count_nonzero(apart) <= most)


def _rounders(model: ir.Model) -> dict[str, ir.Node]:
    """The nodes that round, by the name of what they make."""
    return {_name(x.outputs[0]): x for x in model.graph if is_op(x, *_ROUNDERS)}


def _name(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or ""


def _given(model: ir.Model, types: Mapping[str, np.dtype[np.generic]]) -> ir.Model:
    """The model with what its roundings make as inputs; they are still made, beside that."""
    model = model.clone()
    for node in list(_rounders(model).values()):
        for value in node.outputs:
            if (name := _name(value)) in types:
                dtype = ir.TensorType(ir.DataType.from_numpy(types[name]))
                given = ir.Value(name=f"given {name}", type=dtype)
                value.replace_all_uses_with(given)
                model.graph.inputs.append(given)
    return model

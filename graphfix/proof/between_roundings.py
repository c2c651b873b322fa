"""Comparison of a quantized model between its roundings, where a tiny difference flips a step.

A repair that is right to 1e-7 moves one number in a million to the next step of 8 bits, and the
results behind it by a hundredth. So both models are fed the integers of the original, and compared
up to the next rounding.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.errors import ModelError
from graphfix.proof.compare import Array, Tolerance, compare
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.provider import Ep
from graphfix.runtime.run_errors import RunError

# One number, or this share of them, may be rounded the other way, by one step.
_FLIPPED = 0.01


class RoundingSegments:
    """Runs a repaired model between roundings, on the whole numbers of the original.

    Args:
        before: The original.
        after: The repaired model.
        tolerance: The largest allowed difference of the numbers before they are rounded.
        ep: Where the repaired model runs.
    """

    def __init__(self, before: ir.Model, after: ir.Model, tolerance: Tolerance, ep: Ep) -> None:
        self._before, self._after = before, after
        self._tolerance, self._ep = tolerance, ep
        self._rounded = _rounding_nodes(before)

    def compare_segments(self, before: Feeds, after: Feeds) -> dict[str, Array] | None:
        """Return the repaired model's outputs if both models agree up to each rounding, or None.

        Args:
            before: The inputs of the original.
            after: The inputs of the repaired model.
        """
        after_rounded = _rounding_nodes(self._after)
        if not self._rounded or self._rounded.keys() != after_rounded.keys():
            return None
        before_floats = [_name_of(x.inputs[0]) for x in self._rounded.values()]
        integers = [_name_of(v) for x in self._rounded.values() for v in x.outputs if v.name]
        after_floats = [_name_of(x.inputs[0]) for x in after_rounded.values()]
        try:
            with Session(self._before, extra_outputs=[*before_floats, *integers]) as session:
                before_values = session.run(before)
            model = _feed_rounded(self._after, {x: before_values[x].dtype for x in integers})
            with Session(
                model,
                ep=self._ep,
                extra_outputs=[*after_floats, *integers],
                optimize=self._ep != "cpu",
            ) as session:
                after_values = session.run(
                    {**after, **{f"given {x}": before_values[x] for x in integers}}
                )
        except (ModelError, RunError):
            return None
        alike = all(
            self._is_near(before_values[a], after_values[b])
            for a, b in zip(before_floats, after_floats, strict=True)
        )
        return (
            after_values
            if alike
            and all(self._differs_by_steps(before_values[x], after_values[x]) for x in integers)
            else None
        )

    def _is_near(self, expected: Array, actual: Array) -> bool:
        # Most of a hundred tensors are equal, and that is the faster question.
        return (
            np.array_equal(expected, actual)
            or compare("", "", expected, actual, self._tolerance).ok
        )

    def _differs_by_steps(self, expected: Array, actual: Array) -> bool:
        """Return whether integers differ by one step in few elements; of floats, whether near."""
        if expected.dtype.kind == "f":
            return self._is_near(expected, actual)
        steps = np.abs(expected.astype(np.int64) - actual)
        most = max(1.0, _FLIPPED * steps.size)
        return bool(np.max(steps, initial=0) <= 1 and np.count_nonzero(steps) <= most)


def _rounding_nodes(model: ir.Model) -> dict[str, ir.Node]:
    """Return the nodes that round, by the name of their output."""
    return {_name_of(x.outputs[0]): x for x in model.graph if x in ops.ROUNDS_TO_INTEGERS}


def _name_of(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or ""


def _feed_rounded(model: ir.Model, types: Mapping[str, np.dtype[np.generic]]) -> ir.Model:
    """Return a copy of the model that reads its rounded values from new inputs."""
    model = model.clone()
    for node in list(_rounding_nodes(model).values()):
        for value in node.outputs:
            if (name := _name_of(value)) in types:
                dtype = ir.TensorType(ir.DataType.from_numpy(types[name]))
                graph_input = ir.Value(name=f"given {name}", type=dtype)
                value.replace_all_uses_with(graph_input)
                model.graph.inputs.append(graph_input)
    return model

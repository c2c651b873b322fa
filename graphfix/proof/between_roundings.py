"""Comparison of a quantized model between its roundings, where a tiny difference flips a step.

A repair that is right to 1e-7 moves one number in a million to the next step of 8 bits, and the
results behind it by a hundredth. So both models are fed the integers of the original, and compared
up to the next rounding. A product that rounds its data itself is fed as a whole: it stays as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.errors import ModelError
from graphfix.graph.constants import const_of
from graphfix.graph.walks import all_nodes
from graphfix.ops.products import rounds_data
from graphfix.proof.compare import Array, Tolerance, compare
from graphfix.providers.table import Ep
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError

# This share of the numbers may be rounded the other way, by one step.
_FLIPPED = 0.01


@dataclass(frozen=True)
class Segments:
    """What a comparison between roundings found.

    Attributes:
        outputs: The repaired model's outputs, given the original's integers; None if the models
            cannot be compared so.
        differing: A tensor that differs at a rounding although all others are the same, by more
            than rounding explains; "" if there is none.
    """

    outputs: Mapping[str, Array] | None = None
    differing: str = ""


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

    @cached_property
    def _pairs(self) -> dict[str, tuple[ir.Node, ir.Node]]:
        """Return the nodes that round in both models; none if they are not the same ones."""
        before, after = (_rounding_nodes(x) for x in (self._before, self._after))
        if before.keys() != after.keys() or len(before) != sum(
            map(rounds, all_nodes(self._before))
        ):
            return {}
        pairs = {name: (node, after[name]) for name, node in before.items()}
        return pairs if all(_may_pair(*x) for x in pairs.values()) else {}

    def compare_segments(self, before: Feeds, after: Feeds) -> Segments:
        """Compare the models up to each rounding, the repaired one given the original's integers.

        Args:
            before: The inputs of the original.
            after: The inputs of the repaired model.
        """
        if not self._pairs:
            return Segments()
        names = [(_name_of(x.inputs[0]), _name_of(y.inputs[0])) for x, y in self._pairs.values()]
        try:
            before_values, after_values = self._run_both(before, after, names)
        except (ModelError, RunError):
            return Segments()
        for x, y in names:
            if not self._is_near(before_values[x], after_values[y]):
                return Segments(differing=x)
        shares = {}
        for name, (ours, theirs) in self._pairs.items():
            shares[name] = self._share_rounded_otherwise(ours, theirs, before_values, after_values)
        if differing := next((x for x, share in shares.items() if share is None), ""):
            return Segments(differing=differing)
        is_alike = all(x is not None and x <= _FLIPPED for x in shares.values())
        return Segments(after_values) if is_alike else Segments()

    def _run_both(
        self, before: Feeds, after: Feeds, names: Sequence[tuple[str, str]]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what is rounded, and the integers, of either model.

        Args:
            before: The inputs of the original.
            after: The inputs of the repaired model, which is given the original's integers.
            names: What each rounding reads, in the original and in the repaired model.
        """
        rounded = [_name_of(v) for x, _ in self._pairs.values() for v in x.outputs if v.name]
        with open_session(self._before, "cpu", [*(x for x, _ in names), *rounded]) as session:
            before_values = dict(session.run(before))
        model = _feed_rounded(self._after, {x: before_values[x].dtype for x in rounded})
        with Session(
            model,
            ep=self._ep,
            extra_outputs=[*(x for _, x in names), *rounded],
            optimize=self._ep != "cpu",
        ) as session:
            given = {f"given {x}": before_values[x] for x in rounded}
            return before_values, dict(session.run({**after, **given}))

    def _is_near(self, expected: Array, actual: Array) -> bool:
        # Most of a hundred tensors are equal, and that is the faster question.
        return (
            np.array_equal(expected, actual)
            or compare("", "", expected, actual, self._tolerance).ok
        )

    def _share_rounded_otherwise(
        self,
        before: ir.Node,
        after: ir.Node,
        expected: Mapping[str, Array],
        actual: Mapping[str, Array],
    ) -> float | None:
        """Return the share of integers that are off by one step; None if rounding cannot be why.

        One number may always be; of a product that rounds its data nothing is seen.
        """
        if before not in ops.ROUNDS_TO_INTEGERS:
            return 0.0
        integers, *scale_and_point = (_name_of(x) for x in before.outputs)
        gaps = expected[integers].astype(np.int64) - actual[integers]
        if scale_and_point:  # a zero point that is rounded the other way moves all integers
            scale, point = scale_and_point
            shift = int(expected[point]) - int(actual[point])
            if abs(shift) > 1 or not self._is_near(expected[scale], actual[scale]):
                return None
            gaps -= shift
        elif not _has_same_scale(before, after):
            return None
        steps = np.abs(gaps)
        if np.max(steps, initial=0) > 1:
            return None
        count = int(np.count_nonzero(steps))
        return count / steps.size if count > 1 else 0.0


def rounds(node: ir.Node) -> bool:
    """Return whether a node rounds real numbers to integers, or what it multiplies."""
    return node in ops.ROUNDS_TO_INTEGERS or rounds_data(node)


def rounds_somewhere(model: ir.Model) -> bool:
    """Return whether any node of a model rounds, in bodies and functions, too."""
    return any(map(rounds, all_nodes(model)))


def _rounding_nodes(model: ir.Model) -> dict[str, ir.Node]:
    """Return the nodes that round, by the name of their output."""
    return {_name_of(x.outputs[0]): x for x in model.graph if rounds(x)}


def _may_pair(before: ir.Node, after: ir.Node) -> bool:
    """Return whether two nodes round alike, as far as it is not their results that tell."""
    if before in ops.ROUNDS_TO_INTEGERS and after in ops.ROUNDS_TO_INTEGERS:
        return True
    attributes = [{k: x.value for k, x in y.attributes.items()} for y in (before, after)]
    return (
        before.op_identifier() == after.op_identifier()
        and attributes[0] == attributes[1]
        and len(before.inputs) == len(after.inputs)
        and all(map(_is_same_parameter, before.inputs[1:], after.inputs[1:]))
    )


def _has_same_scale(before: ir.Node, after: ir.Node) -> bool:
    """Return whether the scales of two QuantizeLinear are the same constant, or are computed."""
    scales = [const_of(x.inputs[1]) for x in (before, after)]
    if scales[0] is None or scales[1] is None:
        return True
    return bool(np.allclose(scales[0], scales[1], rtol=1e-6, atol=0))


def _is_same_parameter(before: ir.Value | None, after: ir.Value | None) -> bool:
    if before is None or after is None:
        return before is after
    first, second = before.const_value, after.const_value
    if first is None or second is None:
        return first is second and before.name == after.name
    return first is second or np.array_equal(first.numpy(), second.numpy())


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

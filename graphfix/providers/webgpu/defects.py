"""What WebGPU takes and then refuses in a run, or does not read: ``defects.csv``.

From survey.csv, of onnxruntime-webgpu 1.27.0. A row is an operator, and what a node must have so
that it is wrong: the element type and the rank of its first input, an input that is given or
absent, an attribute that has none of the values that are right. An empty cell asks for nothing.
"""

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.graph.nodes import input_at
from graphfix.ops.op_set import qualified_name

Verdict = Literal["fails", "dies", "differs"]
_ABSENT = "absent"


@dataclass(frozen=True)
class Defect:
    """A way in which a node of an operator goes wrong.

    Attributes:
        operator: The operator.
        verdict: Whether a run fails, the process dies, or other numbers come out.
        what: What WebGPU does or lacks, as a clause.
        dtype: The element type of the first input, or None for all.
        rank: The rank of the first input, or None for all.
        given: An input that the node has, by its place, or None.
        absent: An input that it lacks, by its place, or None.
        attribute: The attribute that matters, or "".
        right: The values of it that are right, as text.
    """

    operator: str
    verdict: Verdict
    what: str
    dtype: ir.DataType | None
    rank: int | None
    given: int | None
    absent: int | None
    attribute: str
    right: frozenset[str]

    def is_of(self, node: ir.Node, shapes: Shapes) -> bool:
        """Return whether a node of the operator goes wrong so, as far as the graph tells."""
        data = node.inputs[0] if node.inputs else None
        if self.dtype is not None and shapes.dtype(data) != self.dtype:
            return False
        dims = shapes.dims(data)
        if self.rank is not None and (dims is None or len(dims) != self.rank):
            return False
        if self.given is not None and input_at(node, self.given) is None:
            return False
        if self.absent is not None and input_at(node, self.absent) is not None:
            return False
        return not self.attribute or _attribute_text(node, self.attribute) not in self.right


@functools.cache
def load_defects() -> tuple[Defect, ...]:
    """Return all that are known."""
    text = resources.files(__package__).joinpath("defects.csv").read_text(encoding="utf-8")
    return tuple(
        Defect(
            operator=row["operator"],
            verdict=row["verdict"],  # type: ignore[arg-type]
            what=row["what"],
            dtype=ir.DataType[row["dtype"].upper()] if row["dtype"] else None,
            rank=_number(row["rank"]),
            given=_number(row["given"]),
            absent=_number(row["absent"]),
            attribute=row["attribute"],
            right=frozenset(row["right"].split("|")),
        )
        for row in csv.DictReader(text.splitlines())
    )


def defect_of(node: ir.Node, shapes: Shapes, verdicts: Sequence[Verdict]) -> Defect | None:
    """Return the first way in which a node goes wrong, or None."""
    name = qualified_name(node)
    of_operator = (x for x in load_defects() if x.operator == name and x.verdict in verdicts)
    return next((x for x in of_operator if x.is_of(node, shapes)), None)


def _number(text: str) -> int | None:
    return int(text) if text else None


def _attribute_text(node: ir.Node, name: str) -> str:
    """Return the value of an attribute as text; ``absent`` where there is none."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return _ABSENT
    value = attribute.value
    if isinstance(value, str):
        return value
    return " ".join(map(str, value)) if isinstance(value, Sequence) else f"{value:g}"

"""What the schemas of operators ask of a node: how many inputs and outputs, which attributes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BODIES = frozenset({"If", "Loop", "Scan"})
"""The operators of the standard whose graphs have inputs and outputs that match the node's."""

_STANDARD = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})
_NUMBERS = dict(onnx.AttributeProto.AttributeType.items())
_NAMES = {value: name for name, value in _NUMBERS.items()}
_OPTION = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True, eq=False)
class Facts:
    """What a schema says, in the form in which it is asked for.

    Attributes:
        domain: The operator set.
        inputs: The fewest and the most inputs.
        outputs: The same of outputs.
        needed: Places of inputs that may not be left out.
        types: The type of each attribute, as a number of ``AttributeProto.AttributeType``.
        required: The attributes that have no default.
        open: Whether there may be more than is known: the set is newer than this ``onnx``.
    """

    domain: str
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed: tuple[int, ...]
    types: Mapping[str, int]
    required: frozenset[str]
    open: bool

    def refusal(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Iterable[onnx.AttributeProto],
    ) -> str | None:
        """Why a node with these is none of this operator, as the end of a sentence."""
        given, made = len(inputs), len(outputs)
        (least, most), (fewest, highest) = self.inputs, self.outputs
        if not (least <= given <= most and fewest <= made <= highest):
            reason = self._count("input", given, *self.inputs) or self._count(
                "output", made, *self.outputs
            )
            if reason:
                return reason
        if "" in inputs:
            for place in self.needed:
                if place < given and not inputs[place]:
                    return f"lacks its input {place}"
        if self.required:
            there = {x.name for x in attributes}
            for name in sorted(self.required - there):
                return f"lacks its attribute {name!r}"
        return None

    def _count(self, what: str, count: int, least: int, most: int) -> str | None:
        if count >= least and (count <= most or self.open):
            return None
        wanted = str(least) if least == most else f"{least} to {most}"
        if most > 1 << 30:
            wanted = f"at least {least}"
        return f"has {count or 'no'} {what}{'s' * (count != 1)}; it takes {wanted}"

    def attribute_refusal(self, name: str, kind: int) -> str | None:
        """Why an attribute of this type is none of this operator's, as the end of a sentence."""
        wanted = self.types.get(name)
        if wanted is None:
            return None if self.open else "is not known to ONNX"
        if kind != wanted:
            return f"is of the type {_NAMES.get(kind, 'nothing')}, not {_NAMES[wanted]}"
        return None


@functools.cache
def facts(op_type: str, domain: str, version: int) -> Facts | None:
    """What the schema of an operator says, or None if ONNX has none.

    Args:
        op_type: The operator.
        domain: Its set; empty for the standard one.
        version: Of that set, as the model imports it.
    """
    if domain not in _STANDARD:
        return None
    newest = onnx.defs.onnx_opset_version() if not domain else version
    late = False
    try:
        schema = onnx.defs.get_schema(op_type, max(version, 1), domain)
    except onnx.defs.SchemaError:
        # ONNX Runtime has some before ONNX does: LayerNormalization, since opset 1.
        late = True
        try:
            schema = onnx.defs.get_schema(op_type, newest, domain)
        except onnx.defs.SchemaError:
            return None
    needed = (
        i
        for i, x in enumerate(schema.inputs)
        if x.option == _OPTION.Single or (x.option == _OPTION.Variadic and x.min_arity)
    )
    return Facts(
        domain,
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(needed),
        {name: _NUMBERS[str(x.type).rpartition(".")[2]] for name, x in schema.attributes.items()},
        frozenset(name for name, x in schema.attributes.items() if x.required),
        open=late or version > newest,
    )


def require_bodies(node: onnx.NodeProto, error: type[ValueError]) -> None:
    """Raise ``error`` if the graphs in a node do not have as many inputs and outputs as it needs.

    https://onnx.ai/onnx/operators/onnx__Loop.html: a body takes the number of the trip, the
    condition and what is carried, and returns the condition, what is carried, and what is stacked.
    """
    bodies = {x.name: x.g for x in node.attribute if x.HasField("g")}
    of = f"{node.op_type} of {next((x for x in node.output if x), node.name)!r}"
    if node.op_type == "If":
        for name, body in bodies.items():
            if body.input or len(body.output) != len(node.output):
                raise error(
                    f"the {name} of {of} has {len(body.input)} inputs and {len(body.output)} "
                    f"outputs; it must have none and {len(node.output)}"
                )
    elif node.op_type == "Loop" and (loop := bodies.get("body")) is not None:
        carried = max(len(node.input) - 2, 0)
        if len(loop.input) != carried + 2 or len(loop.output) < max(
            carried + 1, len(node.output) + 1
        ):
            raise error(
                f"the body of {of} has {len(loop.input)} inputs and {len(loop.output)} outputs, "
                f"but {carried} values are carried, and {len(node.output)} are returned"
            )
    elif (
        node.op_type == "Scan"
        and (scan := bodies.get("body")) is not None
        and (len(scan.output) < len(node.output) or len(scan.input) > len(node.input))
    ):
        raise error(
            f"the body of {of} has {len(scan.input)} inputs and {len(scan.output)} outputs; "
            f"the node has {len(node.input)} and {len(node.output)}"
        )

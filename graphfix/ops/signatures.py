"""What operators take and give by their signatures: the type variable of each input and output.

ONNX's own schemas say it for its operators. For those of ONNX Runtime, ``contrib.csv`` does: one
row an operator, as ``onnxruntime.get_all_operator_schema`` lists them (1.31.1), a star behind what
repeats; all of them are of version 1.
"""

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import onnx
import onnx_ir as ir

from graphfix.ops.schemas import schema_of

_CONTRIB = "com.microsoft"
# ONNX Runtime makes them itself, and keeps them in ONNX's own domain.
IN_ONNX = ("SimplifiedLayerNormalization",)


@dataclass(frozen=True)
class Formals:
    """The signature of an operator.

    Attributes:
        inputs: The type variable of each input, or a type such as ``tensor(float)``.
        outputs: The same of each output.
        inputs_repeat: Whether the last input may come several times.
        outputs_repeat: Whether the last output may.
        types: The element types that each variable may be; tensors only.
        plain: The variables that are tensors and nothing else.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs_repeat: bool
    outputs_repeat: bool
    types: dict[str, frozenset[ir.DataType]]
    plain: frozenset[str]

    def input(self, index: int) -> str | None:
        """The type variable of an input; None if there is no such input."""
        return _at(self.inputs, index, repeat=self.inputs_repeat)

    def output(self, index: int) -> str | None:
        """The type variable of an output; None if there is no such output."""
        return _at(self.outputs, index, repeat=self.outputs_repeat)

    def may_be(self, variable: str | None, dtype: ir.DataType) -> bool:
        """Whether a variable may be a tensor of this type."""
        return variable is not None and dtype in self.types.get(variable, ())


@functools.cache
def formals_of(op: str, domain: str, opset: int) -> Formals | None:
    """The signature of an operator as of an opset; None if nobody here knows it."""
    if domain == _CONTRIB or op in IN_ONNX:
        return _contrib().get(op)
    # ONNX Runtime has some before ONNX does: LayerNormalization, since opset 1.
    schema = schema_of(op, opset, domain) or schema_of(op, onnx.defs.onnx_opset_version(), domain)
    if schema is None:
        return None
    repeats = onnx.defs.OpSchema.FormalParameterOption.Variadic
    sides = (schema.inputs, schema.outputs)
    inputs, outputs = ([x.type_str + "*" * (x.option == repeats) for x in y] for y in sides)
    types = {x.type_param_str: x.allowed_type_strs for x in schema.type_constraints}
    return _formals(inputs, outputs, types)


def _at(names: tuple[str, ...], index: int, *, repeat: bool) -> str | None:
    if index < len(names):
        return names[index]
    return names[-1] if repeat and names else None


@functools.cache
def _contrib() -> dict[str, Formals]:
    text = resources.files("graphfix.ops").joinpath("contrib.csv").read_text(encoding="utf-8")
    return {row["op"]: _row(row) for row in csv.DictReader(text.splitlines())}


def _row(row: dict[str, str]) -> Formals:
    pairs = (x.partition("=") for x in row["types"].split(";") if x)
    types = {name: [f"tensor({x})" for x in all_.split("|")] for name, _, all_ in pairs}
    return _formals(row["inputs"].split("|"), row["outputs"].split("|"), types)


def _formals(
    inputs: Sequence[str], outputs: Sequence[str], types: Mapping[str, Sequence[str]]
) -> Formals:
    """A signature of type variables, with a star behind what repeats."""
    taken, given = (tuple(x.rstrip("*") for x in side) for side in (inputs, outputs))
    allowed = {name: types.get(name, [name]) for name in (*types, *taken, *given)}
    return Formals(
        taken,
        given,
        any(x.endswith("*") for x in inputs),
        any(x.endswith("*") for x in outputs),
        {name: frozenset(filter(None, map(_dtype, all_))) for name, all_ in allowed.items()},
        frozenset(n for n, all_ in allowed.items() if all(t.startswith("tensor(") for t in all_)),
    )


def _dtype(text: str) -> ir.DataType | None:
    """``tensor(float16)`` as a type; None for sequences and the like."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    if not text.startswith("tensor("):
        return None
    return ir.DataType[name] if name in ir.DataType.__members__ else None

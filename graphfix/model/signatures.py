"""What operators take and give by their signatures: the type variable of each input and output.

ONNX's own schemas say it for its operators. For those of ONNX Runtime, ``contrib.csv`` does: one
row an operator, as ``onnxruntime.get_all_operator_schema`` lists them (1.31.1), a star behind what
repeats; all of them are of version 1.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources

import onnx
import onnx_ir as ir

from graphfix.model.schemas import schema_of

_CONTRIB = "com.microsoft"
# ONNX Runtime makes them itself, and keeps them in ONNX's own domain.
_IN_ONNX = ("SimplifiedLayerNormalization",)


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
    if domain == _CONTRIB or op in _IN_ONNX:
        return _contrib().get(op)
    # ONNX Runtime has some before ONNX does: LayerNormalization, since opset 1.
    newest = onnx.defs.onnx_opset_version()
    schema = schema_of(op, opset, domain) or schema_of(op, newest, domain)
    if schema is None:
        return None
    allowed = {x.type_param_str: x.allowed_type_strs for x in schema.type_constraints}
    for formal in (*schema.inputs, *schema.outputs):
        allowed.setdefault(formal.type_str, [formal.type_str])
    repeats = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return Formals(
        tuple(x.type_str for x in schema.inputs),
        tuple(x.type_str for x in schema.outputs),
        any(x.option == repeats for x in schema.inputs),
        any(x.option == repeats for x in schema.outputs),
        {name: frozenset(filter(None, map(_dtype, types))) for name, types in allowed.items()},
        frozenset(n for n, types in allowed.items() if all(t.startswith("tensor(") for t in types)),
    )


def _at(names: tuple[str, ...], index: int, *, repeat: bool) -> str | None:
    if index < len(names):
        return names[index]
    return names[-1] if repeat and names else None


@functools.cache
def _contrib() -> dict[str, Formals]:
    text = resources.files("graphfix.model").joinpath("contrib.csv").read_text(encoding="utf-8")
    return {row["op"]: _row(row) for row in csv.DictReader(text.splitlines())}


def _row(row: dict[str, str]) -> Formals:
    inputs, outputs = row["inputs"].split("|"), row["outputs"].split("|")
    pairs = (x.partition("=") for x in row["types"].split(";") if x)
    types = {name: [f"tensor({x})" for x in all_.split("|")] for name, _, all_ in pairs}
    for name in [x.rstrip("*") for x in (*inputs, *outputs)]:
        types.setdefault(name, [name])
    return Formals(
        tuple(x.rstrip("*") for x in inputs),
        tuple(x.rstrip("*") for x in outputs),
        inputs[-1].endswith("*"),
        outputs[-1].endswith("*"),
        {name: frozenset(filter(None, map(_dtype, x))) for name, x in types.items()},
        frozenset(types),
    )


def _dtype(text: str) -> ir.DataType | None:
    """``tensor(float16)`` as a type; None for sequences and the like."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    if not text.startswith("tensor("):
        return None
    return ir.DataType[name] if name in ir.DataType.__members__ else None

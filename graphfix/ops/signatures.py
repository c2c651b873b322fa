"""Signatures of operators: the type variable of each input and output.

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
CONTRIB_IN_ONNX_DOMAIN = ("SimplifiedLayerNormalization",)


@dataclass(frozen=True)
class OpSignature:
    """The signature of an operator.

    Attributes:
        inputs: The type variable of each input, or a type such as ``tensor(float)``.
        outputs: The same of each output.
        inputs_variadic: Whether the last input may come several times.
        outputs_variadic: Whether the last output may.
        types: The element types that each variable may be; tensors only.
        tensor_only: The variables that are tensors and nothing else.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs_variadic: bool
    outputs_variadic: bool
    types: dict[str, frozenset[ir.DataType]]
    tensor_only: frozenset[str]

    def input_variable(self, index: int) -> str | None:
        """Return the type variable of an input; None if there is no such input."""
        return _variable_at(self.inputs, index, repeat=self.inputs_variadic)

    def output_variable(self, index: int) -> str | None:
        """Return the type variable of an output; None if there is no such output."""
        return _variable_at(self.outputs, index, repeat=self.outputs_variadic)

    def allows_dtype(self, variable: str | None, dtype: ir.DataType) -> bool:
        """Return whether a type variable may be a tensor of this type."""
        return variable is not None and dtype in self.types.get(variable, ())


@functools.cache
def op_signature(op: str, domain: str, opset: int) -> OpSignature | None:
    """Return the signature of an operator as of an opset; None if it is unknown."""
    if domain == _CONTRIB or op in CONTRIB_IN_ONNX_DOMAIN:
        return _contrib_signatures().get(op)
    # ONNX Runtime has some before ONNX does: LayerNormalization, since opset 1.
    schema = schema_of(op, opset, domain) or schema_of(op, onnx.defs.onnx_opset_version(), domain)
    if schema is None:
        return None
    repeats = onnx.defs.OpSchema.FormalParameterOption.Variadic
    sides = (schema.inputs, schema.outputs)
    inputs, outputs = ([x.type_str + "*" * (x.option == repeats) for x in y] for y in sides)
    types = {x.type_param_str: x.allowed_type_strs for x in schema.type_constraints}
    return _make_signature(inputs, outputs, types)


def _variable_at(names: tuple[str, ...], index: int, *, repeat: bool) -> str | None:
    if index < len(names):
        return names[index]
    return names[-1] if repeat and names else None


@functools.cache
def _contrib_signatures() -> dict[str, OpSignature]:
    text = resources.files("graphfix.ops").joinpath("contrib.csv").read_text(encoding="utf-8")
    return {row["op"]: _signature_of_row(row) for row in csv.DictReader(text.splitlines())}


def _signature_of_row(row: dict[str, str]) -> OpSignature:
    pairs = (x.partition("=") for x in row["types"].split(";") if x)
    types = {name: [f"tensor({x})" for x in dtypes.split("|")] for name, _, dtypes in pairs}
    return _make_signature(row["inputs"].split("|"), row["outputs"].split("|"), types)


def _make_signature(
    inputs: Sequence[str], outputs: Sequence[str], types: Mapping[str, Sequence[str]]
) -> OpSignature:
    """Make a signature from type variables, with a star behind what repeats."""
    input_variables, output_variables = (
        tuple(x.rstrip("*") for x in side) for side in (inputs, outputs)
    )
    allowed = {
        name: types.get(name, [name]) for name in (*types, *input_variables, *output_variables)
    }
    return OpSignature(
        input_variables,
        output_variables,
        any(x.endswith("*") for x in inputs),
        any(x.endswith("*") for x in outputs),
        {
            name: frozenset(filter(None, map(_tensor_dtype, type_texts)))
            for name, type_texts in allowed.items()
        },
        frozenset(
            n
            for n, type_texts in allowed.items()
            if all(t.startswith("tensor(") for t in type_texts)
        ),
    )


def _tensor_dtype(text: str) -> ir.DataType | None:
    """Return the element type in ``tensor(float16)``; None for sequences and the like."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    if not text.startswith("tensor("):
        return None
    return ir.DataType[name] if name in ir.DataType.__members__ else None

"""Kernels that a provider registers, from the table of its folder, with typed access."""

import csv
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Generic, TypeVar

import onnx
import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.ops.schemas import schema_of
from graphfix.ops.signatures import CONTRIB_IN_ONNX_DOMAIN, op_signature

Row = dict[str, str]


@dataclass(frozen=True)
class Kernel:
    """One registration of a kernel.

    Attributes:
        op: The operator.
        domain: Its domain; "" is ONNX's own.
        since: The version that it is for, and no other.
        types: The element types that it takes, by the name of the type constraint.
        cpu_inputs: The inputs that it reads on the CPU: shapes, axes, limits.
        cpu_outputs: The outputs that it leaves on the CPU.
    """

    op: str
    domain: str
    since: int
    types: dict[str, frozenset[ir.DataType]]
    cpu_inputs: frozenset[int]
    cpu_outputs: frozenset[int]

    def accepts_type(self, constraint: str, dtype: ir.DataType) -> bool:
        """Return whether a type fits a type constraint; one that is not listed takes all."""
        accepted = self.types.get(constraint)
        return accepted is None or dtype in accepted


K = TypeVar("K", bound=Kernel)


class KernelTable(Generic[K]):
    """The kernels of a provider.

    Args:
        package: The package that has the table.
        file: The table, as CSV.
        parse: Makes a kernel of a row and of what every table has of it.
        skip: How many lines stand before the heads of the columns.
    """

    def __init__(
        self, package: str, file: str, parse: Callable[[Row, Kernel], K], *, skip: int = 0
    ) -> None:
        self._package, self._file, self._parse, self._skip = package, file, parse, skip

    def kernel_for(self, op: str, domain: str, since: int) -> K | None:
        """Return the kernel of exactly this version of an operator."""
        return self._kernels.get((op, standard_domain(domain), since))

    def versions(self, op: str, domain: str = "") -> tuple[int, ...]:
        """Return the versions of an operator that have a kernel."""
        return self._versions.get((op, standard_domain(domain)), ())

    def kernel_at(self, op: str, domain: str, opset: int) -> K | None:
        """Return the kernel of the version of an operator that an opset means."""
        since = since_version(op, domain, opset)
        return None if since is None else self.kernel_for(op, domain, since)

    def newest_opset(self, op: str, domain: str, below: int) -> int | None:
        """Return the newest opset under ``below`` in which the provider runs the operator."""
        return next((x for x in range(below - 1, 6, -1) if self.kernel_at(op, domain, x)), None)

    @functools.cached_property
    def _kernels(self) -> dict[tuple[str, str, int], K]:
        text = resources.files(self._package).joinpath(self._file).read_text(encoding="utf-8")
        rows = csv.DictReader(text.splitlines()[self._skip :])
        kernels = (self._parse(row, _parse_kernel(row)) for row in rows)
        return {(x.op, x.domain, x.since): x for x in kernels}

    @functools.cached_property
    def _versions(self) -> dict[tuple[str, str], tuple[int, ...]]:
        versions: dict[tuple[str, str], list[int]] = {}
        for op, domain, since in self._kernels:
            versions.setdefault((op, domain), []).append(since)
        return {key: tuple(sorted(x)) for key, x in versions.items()}


def since_version(op: str, domain: str, opset: int) -> int | None:
    """Return the version of an operator that an opset means; None if ONNX has none by that name."""
    schema = schema_of(op, opset, domain)
    if schema is not None:
        return int(schema.since_version)
    # ONNX has no schema for the operators of ONNX Runtime; all of them are of version 1. Some are
    # in ONNX's domain, LayerNormalization until opset 17 (graph/contrib_ops/contrib_defs.cc).
    is_contrib = op == "LayerNormalization" or op in CONTRIB_IN_ONNX_DOMAIN
    return 1 if standard_domain(domain) or is_contrib else None


def typed_values(
    node: ir.Node, schema: onnx.defs.OpSchema, dtype: Callable[[ir.Value], ir.DataType | None]
) -> Iterator[tuple[onnx.defs.OpSchema.FormalParameter, ir.Value, ir.DataType]]:
    """Yield the formal parameter of each input and output whose type is known, and that type."""
    for formal, actual in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for i, value in enumerate(actual):
            if value is None or not formal or (value_type := dtype(value)) is None:
                continue
            # The last formal parameter may be variadic.
            yield formal[min(i, len(formal) - 1)], value, value_type


def unsupported_type(node: ir.Node, kernel: Kernel, opset: int, shapes: Shapes) -> str | None:
    """Return the type of an input or output that a kernel is not registered for."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        typed = _contrib_types(node, shapes)
        unfit = (x for variable, x in typed if not kernel.accepts_type(variable, x))
    else:
        values = typed_values(node, schema, shapes.dtype)
        unfit = (x for formal, _, x in values if not kernel.accepts_type(formal.type_str, x))
    return next((x.name.lower() for x in unfit), None)


def _contrib_types(node: ir.Node, shapes: Shapes) -> Iterator[tuple[str, ir.DataType]]:
    """Yield the type variable and the type of each input and output of com.microsoft's."""
    signature = op_signature(node.op_type, node.domain, 1)
    if signature is None:
        return
    for values, variable_at in (
        (node.inputs, signature.input_variable),
        (node.outputs, signature.output_variable),
    ):
        for i, value in enumerate(values):
            variable, dtype = variable_at(i), shapes.dtype(value)
            if variable is not None and dtype is not None:
                yield variable, dtype


def standard_domain(domain: str) -> str:
    """Return a domain with the two names of ONNX's own made one, ""."""
    return "" if domain == "ai.onnx" else domain


def _parse_kernel(row: Row) -> Kernel:
    return Kernel(
        op=row["op"],
        domain=row["domain"],
        since=int(row["since_version"]),
        types=dict(_parse_constraint(text) for text in row["supported_types"].split(";") if text),
        cpu_inputs=parse_numbers(row["cpu_inputs"]),
        cpu_outputs=parse_numbers(row["cpu_outputs"]),
    )


def _parse_constraint(text: str) -> tuple[str, frozenset[ir.DataType]]:
    """Parse ``T=[float, int64]``, written with a bar, as ("T", {FLOAT, INT64})."""
    name, _, types = text.partition("=")
    # Sequences have no element type of their own here.
    plain = (x for x in types.strip("[]").split("|") if not x.startswith("seq"))
    return name, frozenset(ir.DataType[x.upper()] for x in plain)


def parse_numbers(text: str) -> frozenset[int]:
    """Parse places such as ``1|2``."""
    return frozenset(int(x) for x in text.split("|") if x)

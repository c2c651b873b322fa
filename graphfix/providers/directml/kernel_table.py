"""Kernels of DirectML's execution provider: ``ops.csv``, with typed access.

The table is that of ONNX Runtime's OperatorRegistration.cpp (in providers/dml), one row for each
registration, compared with its own docs/OperatorKernels.md; it is the same for 1.20 to 1.30. Every
kernel is registered open-ended, and such a kernel matches only the version that it was registered
for (framework/kernel_registry.cc, VerifyVersion, line 120).
"""

import csv
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources

import onnx
import onnx_ir as ir

from graphfix.ops.schemas import schema_of
from graphfix.ops.signatures import CONTRIB_IN_ONNX_DOMAIN


@dataclass(frozen=True)
class Kernel:
    """One registration of a kernel in DirectML's execution provider.

    Attributes:
        op: The operator.
        domain: Its domain; "" is ONNX's own.
        since: The version that it is for, and no other.
        types: The element types that it takes, by the name of the type constraint.
        cpu_inputs: The inputs that it reads on the CPU: shapes, axes, limits.
        cpu_outputs: The outputs that it leaves on the CPU.
        fuses: Whether it can be a node of a fused DirectML graph.
        inputs_to_fuse: How many inputs it must have for that, if it matters.
        query: The function that may refuse a node, or "".
    """

    op: str
    domain: str
    since: int
    types: dict[str, frozenset[ir.DataType]]
    cpu_inputs: frozenset[int]
    cpu_outputs: frozenset[int]
    fuses: bool
    inputs_to_fuse: int | None
    query: str

    def accepts_type(self, constraint: str, dtype: ir.DataType) -> bool:
        """Return whether a type fits a type constraint; one that is not listed takes all."""
        accepted = self.types.get(constraint)
        return accepted is None or dtype in accepted


def kernel_for(op: str, domain: str, since: int) -> Kernel | None:
    """Return the kernel of exactly this version of an operator."""
    return _load_table().get((op, standard_domain(domain), since))


def kernel_versions(op: str, domain: str = "") -> tuple[int, ...]:
    """Return the versions of an operator that have a kernel."""
    return tuple(
        sorted(v for (o, d, v) in _load_table() if (o, d) == (op, standard_domain(domain)))
    )


def since_version(op: str, domain: str, opset: int) -> int | None:
    """Return the version of an operator that an opset means; None if ONNX has none by that name."""
    schema = schema_of(op, opset, domain)
    if schema is not None:
        return int(schema.since_version)
    # ONNX has no schema for the operators of ONNX Runtime; all of them are of version 1. Some are
    # in ONNX's domain, LayerNormalization until opset 17 (graph/contrib_ops/contrib_defs.cc).
    is_contrib = op == "LayerNormalization" or op in CONTRIB_IN_ONNX_DOMAIN
    return 1 if standard_domain(domain) or is_contrib else None


def kernel_at(op: str, domain: str, opset: int) -> Kernel | None:
    """Return the kernel of the version of an operator that an opset means."""
    since = since_version(op, domain, opset)
    return None if since is None else kernel_for(op, domain, since)


def newest_opset_with_kernel(op: str, domain: str, below: int) -> int | None:
    """Return the newest opset under ``below`` in which DirectML runs the operator."""
    return next((x for x in range(below - 1, 6, -1) if kernel_at(op, domain, x)), None)


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


def standard_domain(domain: str) -> str:
    """Return a domain with the two names of ONNX's own made one, ""."""
    return "" if domain == "ai.onnx" else domain


@functools.cache
def _load_table() -> dict[tuple[str, str, int], Kernel]:
    text = (
        resources.files("graphfix.providers.directml")
        .joinpath("ops.csv")
        .read_text(encoding="utf-8")
    )
    return {
        (x.op, x.domain, x.since): x for x in map(_parse_kernel, csv.DictReader(text.splitlines()))
    }


def _parse_kernel(row: dict[str, str]) -> Kernel:
    return Kernel(
        op=row["op"],
        domain=row["domain"],
        since=int(row["since_version"]),
        types=dict(_parse_constraint(text) for text in row["supported_types"].split(";") if text),
        cpu_inputs=_parse_numbers(row["cpu_inputs"]),
        cpu_outputs=_parse_numbers(row["cpu_outputs"]),
        fuses=row["fuses"] == "yes",
        inputs_to_fuse=int(row["inputs_to_fuse"]) if row["inputs_to_fuse"] else None,
        query=row["query"],
    )


def _parse_constraint(text: str) -> tuple[str, frozenset[ir.DataType]]:
    """Parse ``T=[float, int64]``, written with a bar, as ("T", {FLOAT, INT64})."""
    name, _, types = text.partition("=")
    # Sequences have no element type of their own here.
    plain = (x for x in types.strip("[]").split("|") if not x.startswith("seq"))
    return name, frozenset(ir.DataType[x.upper()] for x in plain)


def _parse_numbers(text: str) -> frozenset[int]:
    return frozenset(int(x) for x in text.split("|") if x)

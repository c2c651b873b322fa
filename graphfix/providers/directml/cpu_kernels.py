"""Kernels of ONNX Runtime's CPU provider, which runs what another provider leaves.

``cpu_kernels.csv`` is what ``get_all_opkernel_def`` of onnxruntime lists for ONNX's own operators,
with the version it was read from in its first line: a row for each registration, of which those
that differ in one list of types are joined. ``python -m tests.providers.directml.cpu_table`` writes
it.
"""

import csv
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

import onnx
import onnx_ir as ir

from graphfix.ops import HAS_BODY
from graphfix.ops.schemas import schema_of
from graphfix.providers.kernels import standard_domain, typed_values

_FLOAT16, _FLOAT = ir.DataType.FLOAT16, ir.DataType.FLOAT

TypeReader = Callable[[ir.Value], ir.DataType | None]


@dataclass(frozen=True)
class CpuKernel:
    """One registration of a kernel in the CPU provider.

    Attributes:
        first: The first version of the operator that it is for.
        last: The last one; the same for a kernel that is registered open-ended, which matches
            only its very version (framework/kernel_registry.cc, VerifyVersion).
        types: The element types that it takes, by type variable or by name of a parameter.
    """

    first: int
    last: int
    types: Mapping[str, frozenset[ir.DataType]]

    def accepts(self, parameter: onnx.defs.OpSchema.FormalParameter, dtype: ir.DataType) -> bool:
        """Return whether a parameter may be of a type; one that is not listed may be of any."""
        keys = (parameter.type_str, parameter.name)
        accepted = next((self.types[x] for x in keys if x in self.types), None)
        return accepted is None or dtype in accepted


def version() -> str:
    """Return the version of ONNX Runtime that the table was read from."""
    return _load_table()[0]


def runs_on_cpu(node: ir.Node, opset: int, dtype: TypeReader) -> bool | None:
    """Return whether the CPU provider has a kernel for a node; None if that is unknown.

    Unknown are operators of other domains than ONNX's own, those with graphs in them, and those
    that ONNX defines by others.

    Args:
        node: The node.
        opset: The version of ONNX's own operator set.
        dtype: Returns the element type of a value, or None.
    """
    schema = schema_of(node.op_type, opset, node.domain)
    if (
        standard_domain(node.domain)
        or schema is None
        or node in HAS_BODY
        or _is_defined_by_others(schema, opset)
    ):
        return None
    if node.op_type == "Constant":  # ONNX Runtime makes an initializer of it
        return True
    typed = [(x, y) for x, _, y in typed_values(node, schema, dtype)]
    kernels = kernels_of(node.op_type, int(schema.since_version))
    # ONNX Runtime puts Casts around a node that reads float16 and has only a kernel for float.
    reads_half = any(dtype(x) == _FLOAT16 for x in node.inputs if x is not None)
    widened = [(x, _FLOAT if reads_half and y == _FLOAT16 else y) for x, y in typed]
    return any(all(x.accepts(*y) for y in z) for x in kernels for z in (typed, widened))


def _is_defined_by_others(schema: onnx.defs.OpSchema, opset: int) -> bool:
    """Return whether ONNX Runtime can run an operator as the function of others that it is."""
    # Neither is in the type stubs of onnx.
    kinds = ("function_opset_versions", "context_dependent_function_opset_versions")
    return any(x <= opset for kind in kinds for x in getattr(schema, kind))


def accepted_types(node: ir.Node, opset: int, dtype: TypeReader) -> str:
    """Return the types that the CPU's kernels take in place of one that none takes; "" if none."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        return ""
    kernels = kernels_of(node.op_type, int(schema.since_version))
    for parameter, _, actual in typed_values(node, schema, dtype):
        if kernels and not any(x.accepts(parameter, actual) for x in kernels):
            keys = (parameter.type_str, parameter.name)
            types = {t for x in kernels for key in keys for t in x.types.get(key, ())}
            return ", ".join(x.name.lower() for x in sorted(types))
    return ""


def kernels_of(op: str, since: int) -> tuple[CpuKernel, ...]:
    """Return the kernels for a version of an operator of ONNX."""
    return tuple(x for x in _load_table()[1].get(op, ()) if x.first <= since <= x.last)


@functools.cache
def _load_table() -> tuple[str, Mapping[str, tuple[CpuKernel, ...]]]:
    path = resources.files("graphfix.providers.directml").joinpath("cpu_kernels.csv")
    source, *lines = path.read_text(encoding="utf-8").splitlines()
    kernels: dict[str, tuple[CpuKernel, ...]] = {}
    for row in csv.DictReader(lines):
        first = int(row["first"])
        kernel = CpuKernel(first, int(row["last"] or first), dict(_parse_types(row["types"])))
        kernels[row["op"]] = (*kernels.get(row["op"], ()), kernel)
    return source.removeprefix("onnxruntime "), kernels


def _parse_types(text: str) -> Iterator[tuple[str, frozenset[ir.DataType]]]:
    for entry in filter(None, text.split(";")):
        name, _, types = entry.partition("=")
        known = (ir.DataType.__members__.get(x.upper()) for x in types.split("|"))
        yield name, frozenset(x for x in known if x is not None)

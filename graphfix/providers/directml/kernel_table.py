"""Kernels of DirectML's execution provider: ``ops.csv``, with typed access.

The table is that of ONNX Runtime's OperatorRegistration.cpp (in providers/dml), one row for each
registration, compared with its own docs/OperatorKernels.md; it is the same for 1.20 to 1.30. Every
kernel is registered open-ended, and such a kernel matches only the version that it was registered
for (framework/kernel_registry.cc, VerifyVersion, line 120).
"""

from dataclasses import dataclass

from graphfix.providers import kernels
from graphfix.providers.kernels import KernelTable, Row


@dataclass(frozen=True)
class Kernel(kernels.Kernel):
    """One registration of a kernel in DirectML's execution provider.

    Attributes:
        fuses: Whether it can be a node of a fused DirectML graph.
        inputs_to_fuse: How many inputs it must have for that, if it matters.
        query: The function that may refuse a node, or "".
    """

    fuses: bool
    inputs_to_fuse: int | None
    query: str


def _parse_kernel(row: Row, kernel: kernels.Kernel) -> Kernel:
    return Kernel(
        **vars(kernel),
        fuses=row["fuses"] == "yes",
        inputs_to_fuse=int(row["inputs_to_fuse"]) if row["inputs_to_fuse"] else None,
        query=row["query"],
    )


TABLE = KernelTable("graphfix.providers.directml", "ops.csv", _parse_kernel)
kernel_for, kernel_versions, kernel_at = TABLE.kernel_for, TABLE.versions, TABLE.kernel_at
newest_opset_with_kernel = TABLE.newest_opset

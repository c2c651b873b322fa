"""What CUDA's execution provider has kernels for, ``ops.csv``, and which nodes it leaves anyway.

The table is that of docs/OperatorKernels.md of ONNX Runtime: 1.21.0, brought up to date by the same
page at commit 001d12d262 of microsoft/onnxruntime (opset 25). A kernel with a last version matches
every version up to it, one without only the version that it was registered for
(framework/kernel_registry.cc, VerifyVersion). What is refused stands in GetCapability
(providers/cuda/cuda_execution_provider.cc, 1.21.0, lines 2480-2760).
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.directml.facts import constraint_of, newest_opset, standard
from graphfix.model.values import attr_int, attr_ints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Kernel:
    """One registration.

    Attributes:
        op: The operator.
        domain: Its domain; "" is ONNX's own.
        first: The first version that it is for.
        last: The last one; None if it is for the first alone.
        types: The element types that it takes, by the name of the type constraint.
    """

    op: str
    domain: str
    first: int
    last: int | None
    types: dict[str, frozenset[ir.DataType]]

    def matches(self, since: int) -> bool:
        """Whether it is for a version of the operator."""
        return since == self.first or (self.last is not None and self.first <= since <= self.last)

    def takes(self, constraint: str, dtype: ir.DataType) -> bool:
        """Whether a type fits a type constraint; one that the table does not list takes all."""
        known = self.types.get(constraint)
        return known is None or dtype in known


def kernel_for(op: str, domain: str, since: int) -> Kernel | None:
    """The kernel for a version of an operator."""
    known = _table().get((op, standard(domain)), ())
    return next((x for x in known if x.matches(since)), None)


def newest_opset_with_kernel(op: str, domain: str, below: int) -> int | None:
    """The newest opset under ``below`` in which CUDA runs the operator."""
    return newest_opset(op, domain, below, kernel_for)


def refusal(node: ir.Node) -> str | None:
    """What CUDA leaves a node for though it has a kernel for it, or None."""
    judge = _JUDGES.get(node.op_type)
    return judge(node) if judge is not None and standard(node.domain) == "" else None


def _recurrent(node: ir.Node) -> str | None:
    for name in ("activation_alpha", "activation_beta", "clip"):
        if name in node.attributes:
            return name
    given = node.attributes.get("activations")
    names = [] if given is None or given.is_ref() else list(given.as_strings())
    usual = _ACTIVATIONS[node.op_type] * 2
    if any(a.lower() != b for a, b in zip(names, usual, strict=False)):
        return f"activations={','.join(names)}"
    if node.op_type == "LSTM" and attr_int(node, "input_forget", 0):
        return "input_forget=1"
    # Only if the attribute is written down does the provider look at it.
    if node.op_type == "GRU" and attr_int(node, "linear_before_reset", 1) != 1:
        return "linear_before_reset=0"
    if node.op_type == "LSTM" and len(node.inputs) == 8 and node.inputs[7] is not None:
        return "peepholes"
    return None


def _conv_transpose(node: ir.Node) -> str | None:
    pads = attr_ints(node, "pads") or ()
    half = len(pads) // 2
    if tuple(pads[:half]) != tuple(pads[half:]):
        return f"pads={list(pads)}, which differ before and behind"
    given = node.attributes.get("auto_pad")
    if given is not None and not given.is_ref() and given.as_string().startswith("SAME"):
        return f"auto_pad={given.as_string()}"
    return None


def _arg_max(node: ir.Node) -> str | None:
    return "select_last_index=1" if attr_int(node, "select_last_index", 0) else None


def _cast(node: ir.Node) -> str | None:
    return "to=string" if attr_int(node, "to", 0) == ir.DataType.STRING else None


_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh"),
    "RNN": ("tanh",),
}
_JUDGES: Mapping[str, Callable[[ir.Node], str | None]] = {
    **dict.fromkeys(_ACTIVATIONS, _recurrent),
    "ConvTranspose": _conv_transpose,
    "ArgMax": _arg_max,
    "ArgMin": _arg_max,
    "Cast": _cast,
}


@functools.cache
def _table() -> dict[tuple[str, str], list[Kernel]]:
    text = resources.files("graphfix.cuda").joinpath("ops.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str], list[Kernel]] = {}
    for row in csv.DictReader(text.splitlines()):
        kernel = _kernel(row)
        found.setdefault((kernel.op, kernel.domain), []).append(kernel)
    return found


def _kernel(row: dict[str, str]) -> Kernel:
    return Kernel(
        op=row["op"],
        domain=row["domain"],
        first=int(row["first"]),
        last=int(row["last"]) if row["last"] else None,
        types=dict(constraint_of(text) for text in row["supported_types"].split(";") if text),
    )

"""gather-int64: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.core import Finding, Match, NodePass, Severity, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import input_at, is_op
from graphfix.graph.text import node_label

_NARROW_TYPES = frozenset(
    {ir.DataType.INT32, ir.DataType.INT16, ir.DataType.INT8}
    | {ir.DataType.UINT32, ir.DataType.UINT16, ir.DataType.UINT8}
)
# An index table is data that this pass needs, however large, but not a weight.
_MAX_TABLE_SIZE = 1 << 24


@dataclass(frozen=True)
class IndexSite(Match):
    """A Gather or Scatter whose indices are not int64.

    Attributes:
        indices: The indices.
        number: Their value number: equal numbers share one Cast.
    """

    indices: ir.Value
    number: int


@dataclass(frozen=True)
class GatherInt64(NodePass[IndexSite]):
    """Reports Gather and Scatter indices that are not int64; converts them on request.

    Looked at are Gather, GatherElements, GatherND, Scatter, ScatterElements and ScatterND. With
    convert=yes a constant index is written as int64, and any other gets one Cast that all its users
    share.

    Why:
        ONNX takes int32 or int64 for Gather, GatherElements, Scatter and ScatterElements, and int64
        alone for GatherND and ScatterND. DirectML's kernels do the same; Gather and GatherElements
        with int32 were run on the real one (onnxruntime-directml 1.24.4). So int32 is no fault
        there, and is only listed: a Cast costs a kernel, and int64 is a habit that makes a model
        portable to less complete runtimes. In GatherND and ScatterND anything but int64 is an
        error: ONNX Runtime refuses the model.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        look_up (float[N, 8] table, int32[B, T] ids) => (float[B, T, 8] y, float[B, T, 8] z)
        <int32[2] swap = {1, 0}>
        {
            y = Gather (table, ids)
            swapped = Gather (table, swap)
            z = Gather (swapped, ids)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        look_up (float[N, 8] table, int32[B, T] ids) => (float[B, T, 8] y, float[B, T, 8] z)
        <int64[2] gf_gather_int64_1 = {1, 0}>
        {
            gf_gather_int64_0 = Cast <to = 7> (ids)
            y = Gather (table, gf_gather_int64_0)
            swapped = Gather (table, gf_gather_int64_1)
            z = Gather (swapped, gf_gather_int64_0)
        }

    Left alone:
        Indices that are int64, whatever the data:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        wide (int32[N, 8] table, int64[B, T] ids) => (int32[B, T, 8] y)
        {
            y = Gather (table, ids)
        }

        What no Cast may make an index of, since "ONNX allows only int32 or int64":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        floats (float[N, 8] table, float[B, T] ids) => (float[B, T, 8] y)
        {
            y = Gather (table, ids)
        }

    Safety:
        Exact: int64 holds every int32, negative indices included. The inputs of the graph keep
        their type.

    Options:
        convert: Whether to make them int64 (yes) or only to list them (no).

    Spec:
        gather-int64:convert=yes
    """

    anchors = (
        *("Gather", "GatherElements", "GatherND"),
        *("Scatter", "ScatterElements", "ScatterND"),
    )

    convert: bool = False

    def match(self, node: ir.Node, view: View) -> IndexSite | Skip | None:
        """Return the site if the indices are known not to be int64."""
        indices = node.inputs[1]
        dtype = view.shapes.dtype(indices)
        if indices is None or dtype is None or dtype == ir.DataType.INT64:
            return None
        if not self.convert or dtype not in _NARROW_TYPES:
            return Skip(node, _describe_type(node, dtype))
        return IndexSite(node, indices, view.numbering.number_of(indices))

    def rewrite(self, match: IndexSite, op: Builder) -> ir.Value:
        """Build the same node with int64 indices."""
        node, indices = match.node, match.indices
        table = const_of(indices, limit=_MAX_TABLE_SIZE)
        if table is not None:
            new_indices = op.constant(table.astype(np.int64))
        else:
            key = ("int64", match.number)
            new_indices = op.build_once(
                key, lambda: op.Cast(indices, to=ir.DataType.INT64), indices
            )
        return op.clone_node(node, node.inputs[0], new_indices, *node.inputs[2:])

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """Yield an error where ONNX forbids the type, a note where it is only unusual."""
        view = View(model)
        for node in view.nodes(*self.anchors):
            dtype = view.shapes.dtype(input_at(node, 1))
            if dtype is None or dtype == ir.DataType.INT64:
                continue
            severity: Severity = "note" if _is_allowed(node, dtype) else "error"
            fix = replace(self, convert=True).spec() if dtype in _NARROW_TYPES else None
            yield Finding(self.name, severity, node_label(node), _describe_type(node, dtype), fix)


def _is_allowed(node: ir.Node, dtype: ir.DataType) -> bool:
    """Return whether ONNX allows indices of this type."""
    return dtype == ir.DataType.INT32 and not is_op(node, "GatherND", "ScatterND")


def _describe_type(node: ir.Node, dtype: ir.DataType) -> str:
    """Return what the type of the indices means for ONNX and DirectML."""
    description = f"indices are {dtype.name.lower()}"
    if not _is_allowed(node, dtype):
        allowed = "int64" if is_op(node, "GatherND", "ScatterND") else "int32 or int64"
        return f"{description}; ONNX allows only {allowed} for {node.op_type}"
    return f"{description}, which ONNX and DirectML allow as they do int64: a habit, not a fault"

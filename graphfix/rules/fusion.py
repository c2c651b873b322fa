"""Rules for nodes and dims that keep a graph from becoming one fused DirectML graph."""

from collections import Counter
from collections.abc import Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.forced_sizes import forced_sizes_of
from graphfix.facts.shapes import is_known_dim
from graphfix.facts.symbolic.expressions import symbols_of
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import all_nodes, nodes_of
from graphfix.ops.schemas import schema_of
from graphfix.providers.directml import kernel_table
from graphfix.providers.table import EVERYWHERE
from graphfix.rules.rule import Hazard, Rule, is_fixed, is_folded
from graphfix.spec.quoting import quote_name


class ControlFlow(Rule):
    """Flags an If, Loop or Scan, which turns fusion off for its whole graph.

    Why:
        ORT GraphPartitioner.cpp 380-395 and 490-497: if any node contains a subgraph, each node
        becomes a partition of its own. The control flow itself runs on the CPU. One If left by a
        traced squeeze or an optional cache costs all fusion.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        branch (float[4] x, bool flag) => (float[4] y)
        {
            y = If (flag) <
                then_branch = yes () => (float[4] a) { a = Relu (x) },
                else_branch = no () => (float[4] b) { b = Neg (x) }
            >
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        branch (float[4] x, bool flag) => (float[4] y)
        {
            a = Relu (x)
            b = Neg (x)
            y = Where (flag, a, b)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node with a graph inside; an If that is decided already is a note."""
        for node in view.nodes(*ops.HAS_BODY):
            if is_op(node, "If") and is_fixed(node.inputs[0], view):
                message = "its condition is the same in each run: the branch takes its place"
                yield Hazard(node, message, "note", "fold")
                continue
            message = f"{node.op_type} turns fusion off for the whole graph, and runs on the CPU"
            decided = is_op(node, "If") and _is_decided(node.inputs[0], view)
            yield Hazard(node, message, fix="fold" if decided else None)


class DynamicDims(Rule):
    """Flags symbolic input dims, which keep the nodes behind them from fusing.

    Why:
        A node joins a fused DirectML graph only if all its shapes are known when the session is
        made (ORT GraphPartitioner.cpp 145-245). One symbolic dim, and everything behind it is an
        operator of its own, compiled for the first shape that it sees, and compiled again in every
        run with another shape (MLOperatorAuthorImpl.cpp 2511-2691). Run on onnxruntime-directml
        1.24.4: a tiny model takes 27 ms at its first shape and 44 ms at another, each time.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        relu (float[B, T, 8] x) => (float[B, T, 8] y)
        {
            y = Relu (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        relu (float[1, 500, 8] x) => (float[1, 500, 8] y)
        {
            y = Relu (x)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag all symbolic dims at once: their inputs, how many nodes follow each, a command."""
        followed, total, first = _count_followers(view)
        ports_by_dim = {dim: ports for dim, ports in _inputs_of_dims(view).items() if dim in first}
        if not ports_by_dim:
            return
        spellings = {dim: DimSpelling(view.model).name_of(dim) for dim in ports_by_dim}
        counts = ", ".join(f"{followed[dim]} follow {spellings[dim]!r}" for dim in ports_by_dim)
        forced = forced_sizes_of(view.model)
        sizes = ",".join(
            f"{quote_name(name)}={forced[name].size if name in forced else 'SIZE'}"
            for name in spellings.values()
        )
        ports = (
            f"{spellings[dim]!r} of input {', '.join(map(repr, ports_by_dim[dim]))}"
            for dim in ports_by_dim
        )
        yield Hazard(
            first[next(iter(ports_by_dim))],
            f"of {total} nodes, {counts} in size: none of these can be fused; "
            f"graphfix run -p fix-dims:{sizes} fixes all",
            at="; ".join(ports),
        )


class UnnamedDims(Rule):
    """Flags an input dim that has neither a size nor a name.

    Why:
        Without a name ONNX Runtime's free-dimension overrides cannot set it: they take the name of
        a dim (SessionOptions.add_free_dimension_override_by_name; ORT#25179), and without a size
        nothing behind it fuses on DirectML (see dynamic-dims). fix-dims takes the place, ``x.0``.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        relu (float[?, 8] x) => (float[?, 8] y)
        {
            y = Relu (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        relu (float[T, 8] x) => (float[T, 8] y)
        {
            y = Relu (x)
        }
    """

    providers = EVERYWHERE

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each input with a dim that has neither size nor name."""
        for value in view.model.graph.inputs:
            uses = value.uses()
            if value.shape is None or not uses:
                continue
            axes = [str(i) for i, x in enumerate(value.shape) if not is_known_dim(x)]
            if axes:
                message = f"dim {' and '.join(axes)} of {value.name!r} has neither size nor name"
                places = (quote_name(f"{value.name}.{axis}") for axis in axes)
                fixed = ":".join(f"{place}=SIZE" for place in places)
                message += f"; graphfix run -p fix-dims:{fixed} gives it a size"
                yield Hazard(next(iter(uses)).node, message, "note", at=f"input {value.name!r}")


class ComputedCpuInput(Rule):
    """Flags a shape, axis or limit that DirectML reads on the CPU and that is computed.

    Why:
        DirectML reads some inputs on the CPU: the shape of Reshape and Expand, the limits of Range,
        the ends of Slice (the column cpu_inputs of graphfix/providers/directml/ops.csv, from ORT
        OperatorRegistration.cpp). They need not be constant, but if they are not, the node cannot
        fuse (GraphPartitioner.cpp 145-245), and new contents create its kernel again for that one
        run (MLOperatorAuthorImpl.cpp 2511-2691).

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        like (float[B, T, 4] x, float[N, 2] z) => (float[U, V, W] y)
        {
            shape = Shape (x)
            y = Reshape (z, shape)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        like (float[B, T, 4] x) => (float[B, T, 2, 2] y)
        <int64[4] shape = {0, 0, 2, 2}>
        {
            y = Reshape (x, shape)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node with a computed input for the CPU, unless it only computes a shape."""
        for node in all_nodes(view.model):
            opset = view.opset_of_node(node)
            kernel = kernel_table.kernel_at(node.op_type, node.domain, opset)
            if kernel is None or is_folded(node, view):
                continue
            if view.shapes.known_elements(node.outputs[0]) is not None:
                continue
            schema = schema_of(node.op_type, opset, node.domain)
            computed = [
                schema.inputs[i].name if schema is not None else f"input {i}"
                for i, value in enumerate(node.inputs)
                if i in kernel.cpu_inputs and value is not None and not is_fixed(value, view)
            ]
            if computed:
                names = " and ".join(computed)
                message = f"{node.op_type} reads its {names} on the CPU, computed in each run"
                yield Hazard(node, message)


def _is_decided(condition: ir.Value | None, view: View) -> bool:
    """Return whether symbolic shapes prove that a condition is the same in each run."""
    data = view.shapes.known_elements(condition)
    return data is not None and all(isinstance(x, int) for x in data)


def _count_followers(view: View) -> tuple[Counter[str], int, dict[str, ir.Node]]:
    """Count the nodes that follow each symbol, and all nodes; return the first of each, too."""
    followed: Counter[str] = Counter()
    total, first = 0, dict[str, ir.Node]()
    for node in nodes_of(view.model.graph):
        if is_folded(node, view) or view.shapes.known_elements(node.outputs[0]) is not None:
            continue  # gone, or a shape, which is worked out on the CPU
        total += 1
        dims = [dim for x in (*node.inputs, *node.outputs) for dim in view.shapes.dims(x) or ()]
        for symbol in {s for dim in dims for s in symbols_of(dim)}:
            followed[symbol] += 1
            first.setdefault(symbol, node)
    return followed, total, first


def _inputs_of_dims(view: View) -> dict[str, list[str]]:
    """Return the inputs of each symbolic dim."""
    inputs_of: dict[str, dict[str, None]] = {}
    spelling = DimSpelling(view.model)
    for value in view.model.graph.inputs:
        for dim in value.shape or ():
            for symbol in sorted(symbols_of(spelling.to_symbolic(dim))):
                inputs_of.setdefault(symbol, {})[value.name or ""] = None
    return {symbol: list(names) for symbol, names in inputs_of.items()}

"""Outputs that may be empty, which DirectML does not return correctly with others beside them.

What a run has left on the device is copied to the host in one go, and the provider stops as soon as
it meets a tensor without elements: what was still to be copied keeps its old memory contents
(ExecutionProvider.cpp of ONNX Runtime's DirectML provider, ExecutionProviderImpl::CopyTensors).
"""

from collections.abc import Collection, Iterator

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.local_functions import inlined_copy
from graphfix.errors import ModelError
from graphfix.facts.shapes import input_dim_symbols
from graphfix.facts.symbolic.expressions import Dim, compile_dim, symbols_of
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of
from graphfix.providers.directml.placement import PlacementRules

# Sizes that may be 0 although all inputs are long: T - 4 * floor(T / 4). A size that is 0 for short
# inputs only belongs to a window that is longer than its input.
LARGE_SIZES = np.arange(960, 1024)
# Axes decide which dims there are, never that one of them is 0.
_TAKES_AXES = ops.REDUCES | ops.named("Squeeze Unsqueeze")
APART = 1024  # no two names have one size: A - B is not always 0


def find_empty_outputs(view: View) -> Iterator[ir.Value]:
    """Find outputs that may be empty on the device, with others beside them, in their order."""
    outputs = view.model.graph.outputs
    if len(dict.fromkeys(outputs)) > 1:
        look = _inline_functions(view)
        places = {x: i for i, x in enumerate(look.model.graph.outputs)}
        yield from (outputs[places[x]] for x in _empty_outputs_of(look))


def _inline_functions(view: View) -> View:
    """Return a view of the model as ONNX Runtime has it, its local functions inlined."""
    if not view.model.functions:
        return view
    try:
        return View(inlined_copy(view.model))
    except ModelError:
        return view


def _empty_outputs_of(view: View) -> Iterator[ir.Value]:
    graph = view.model.graph
    # Constants are on the host when the model is loaded: run, they do no harm.
    outputs = [x for x in dict.fromkeys(graph.outputs) if x not in view.constant_values]
    counted: set[ir.Value] = set()
    mark_counted(graph, {*graph.inputs}, counted)
    input_names = frozenset(input_dim_symbols(view.model))
    empty = [x for x in outputs if _may_be_empty(x, view, counted, input_names)]
    if not empty:
        return
    on_cpu = PlacementRules(graph.opset_imports, view.shapes).cpu_nodes(graph)
    device_outputs = {x for x in outputs if _is_on_device(x, on_cpu)}
    if len(device_outputs) > 1:
        yield from (x for x in empty if x in device_outputs)


def _is_on_device(value: ir.Value, on_cpu: Collection[ir.Node]) -> bool:
    node = value.producer()
    if node is None or node in on_cpu:
        return False
    if not is_op(node, "OptionalGetElement") or node.inputs[0] is None:
        return True
    # Run: OptionalGetElement runs on the CPU if Optional does.
    return not is_op(node.inputs[0].producer(), "Optional")


def _may_be_empty(
    value: ir.Value, view: View, counted: Collection[ir.Value], input_names: frozenset[str]
) -> bool:
    node, dims = value.producer(), view.shapes.dims(value)
    if is_op(node, "If"):
        place = list(node.outputs).index(value)
        return any(
            _may_be_empty(x.outputs[place], view, counted, input_names) for x in bodies_of(node)
        )
    if dims is None:
        return value in counted
    return any(_may_be_zero(x, input_names, counted=value in counted) for x in dims)


def _may_be_zero(dim: Dim, input_names: frozenset[str], *, counted: bool) -> bool:
    """Return whether a size may be 0 although all inputs are long enough."""
    if isinstance(dim, int):
        return dim == 0
    names = sorted(symbols_of(dim))
    if dim.value is None or not input_names.issuperset(names):
        return counted  # if not, only inference does not know it
    at = {name: LARGE_SIZES + APART * i for i, name in enumerate(names)}
    return bool((compile_dim(dim)(at) == 0).any())


def mark_counted(graph: ir.Graph, numbers: set[ir.Value], counted: set[ir.Value]) -> None:
    """Add the tensors whose sizes depend on the contents of another, and all that follow from them.

    Args:
        graph: The graph; those inside it are analysed, too.
        numbers: The graph inputs, and what is computed from their elements, sizes excluded.
        counted: The tensors with such sizes.
    """
    for node in graph:
        for body in bodies_of(node):
            mark_counted(body, numbers, counted)
        inputs = [x for x in node.inputs if x is not None]
        places = () if node in _TAKES_AXES else ops.size_inputs(node)
        sizes = [node.inputs[i] for i in places if i < len(node.inputs)]
        if (
            node in ops.COUNTS_CONTENTS
            or not counted.isdisjoint(inputs)
            or not numbers.isdisjoint(sizes)
        ):
            counted.update(node.outputs)
        if node not in ops.READS_ONLY_SHAPE and not numbers.isdisjoint(inputs):
            numbers.update(node.outputs)

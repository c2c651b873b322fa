"""Copies between the devices: port of TransformerMemcpyImpl (framework/transformer_memcpy.cc).

A tensor is copied once for each direction in which it is needed elsewhere than it was made.
Graph inputs and outputs are carried over by the session itself, unless both sides use them.
"""

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from graphfix.providers.kernels import Kernel


def find_copies(graph: ir.Graph, kernels: Mapping[ir.Node, Kernel]) -> list[tuple[ir.Value, bool]]:
    """Find the tensors that are copied, each with whether it is copied to the device.

    Args:
        graph: One graph; what its subgraphs use counts as used by the node that they belong to.
        kernels: The kernel of each node that runs on the device; the others run on the CPU.
    """
    used_on_device, used_on_cpu = set[ir.Value](), set[ir.Value]()
    made_on_device, made_on_cpu = set[ir.Value](), set[ir.Value]()
    for node in graph:
        kernel = kernels.get(node)
        cpu_inputs = range(len(node.inputs)) if kernel is None else kernel.cpu_inputs
        cpu_outputs = range(len(node.outputs)) if kernel is None else kernel.cpu_outputs
        _add_by_device(node.inputs, cpu_inputs, used_on_device, used_on_cpu)
        _add_by_device(node.outputs, cpu_outputs, made_on_device, made_on_cpu)
    inputs = {x for x in graph.inputs if not x.is_initializer()}
    to_device = (made_on_cpu & used_on_device) | (inputs & used_on_device & used_on_cpu)
    to_cpu = made_on_device & used_on_cpu
    order = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    return [(x, True) for x in order if x in to_device] + [(x, False) for x in order if x in to_cpu]


def _add_by_device(
    values: Sequence[ir.Value | None],
    cpu_places: Collection[int],
    on_device: set[ir.Value],
    on_cpu: set[ir.Value],
) -> None:
    """Add each value to the set of the side that it is needed or made on."""
    for place, value in enumerate(values):
        if value is not None:
            (on_cpu if place in cpu_places else on_device).add(value)

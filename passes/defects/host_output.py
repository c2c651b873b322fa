"""host-output: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Change, Pass, ValueMatch
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.text import node_label
from graphfix.providers.directml import empty_outputs

_OPTIONAL = 15  # the opset that Optional is of


@dataclass(frozen=True)
class HostOutput(Pass):
    """Copies an output that may be empty to the CPU before the run ends.

    Why:
        The DirectML provider copies what a run gives back in one go, and ends that at the first
        tensor of no elements (ExecutionProvider.cpp, ExecutionProviderImpl::CopyTensors). Run on
        onnxruntime-directml 1.24.4: where one output is empty, the others hold what lay in memory,
        and there is no error. DirectML has no Optional, so ONNX Runtime copies the tensor to the
        host by itself, and there it stays; the other outputs are then right.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N] x) => (float[N] y, int64[1, M] places)
        {
            y = Relu (x)
            places = NonZero (y)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N] x) => (float[N] y, int64[1, M] places)
        {
            y = Relu (x)
            inner = NonZero (y)
            held = Optional (inner)
            places = OptionalGetElement (held)
        }

    Left alone:
        An output of as many elements as an input has:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sizes (float[N] x) => (float[N] y, float[N] z)
        {
            y = Relu (x)
            z = Neg (y)
        }

        What may be empty and is the only output:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        only (float[N] x) => (int64[1, M] places)
        {
            y = Relu (x)
            places = NonZero (y)
        }

    Safety:
        Exact. An output whose size follows from those of the inputs is skipped, unless it is 0 at
        some of their large sizes; so is one that is made on the CPU, and the only one that is made
        on the device. One of constants alone was seen to spoil no other, and is left: ONNX Runtime
        1.24.4 loads no Optional of a constant. Below opset 15 there is no Optional, and a Loop of
        one turn does the same.
    """

    sentence = "where it makes an empty output, DirectML gives back none of the others"

    def sites(self, model: ir.Model) -> Iterator[ValueMatch]:
        """Yield every output that may be empty and has others beside it."""
        for value in empty_outputs.find_empty_outputs(View(model)):
            node = value.producer()
            if node is not None:
                yield ValueMatch(node, value)

    def repair(self, model: ir.Model) -> Iterator[Change]:
        """Copy each through an operator that DirectML lacks, at the end of the graph."""
        builder = Builder(self.name, View(model))
        build = (
            _copy_by_optional
            if model.graph.opset_imports.get("", 0) >= _OPTIONAL
            else _copy_by_loop
        )
        for site in list(self.sites(model)):
            at, tensor = node_label(site.node), site.value.name or ""
            builder.start_site(site.node)
            builder.wrap_output(site.value, lambda x: build(x, builder))
            yield Change(self.name, at, tensor, (), builder.finish_site())


def _copy_by_optional(value: ir.Value, op: Builder) -> ir.Value:
    """Build an Optional and take its element, which copies the value to the CPU."""
    return op.OptionalGetElement(op.Optional(value))


def _copy_by_loop(value: ir.Value, op: Builder) -> ir.Value:
    """Build a Loop that returns its input after one iteration."""
    iteration, condition, data = (ir.Value(name=op.new_name()) for _ in range(3))
    for x, dtype in ((iteration, ir.DataType.INT64), (condition, ir.DataType.BOOL)):
        x.type, x.shape = ir.TensorType(dtype), ir.Shape([])
    data.type = value.type  # of any shape
    nodes = [ir.node("Identity", [x]) for x in (condition, data)]
    for node, like in zip(nodes, (condition, data), strict=True):
        node.name = node.outputs[0].name = op.new_name()
        node.outputs[0].type, node.outputs[0].shape = like.type, like.shape
    outputs = [node.outputs[0] for node in nodes]
    body = ir.Graph([iteration, condition, data], outputs, nodes=nodes, name=op.new_name())
    output = op.Loop(np.array(1), np.array(True), value)
    loop = output.producer()
    assert loop is not None
    loop.attributes.add(ir.AttrGraph("body", body))
    return output

"""Rules for numbers that do not survive a narrower type."""

from collections.abc import Iterator
from operator import attrgetter

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.walks import all_nodes, nodes_of
from graphfix.ops.schemas import schema_of
from graphfix.providers import kernels
from graphfix.providers.table import EVERYWHERE
from graphfix.rules.rule import Hazard, Rule

# What exports give a very low constant to: it hides scores, or bounds them.
_READS_LOW_CONSTANTS = ops.CASTS | ops.named("Add Clip Expand Max Mul Where")
_LOWEST = -65504.0
_FLOAT16 = ir.DataType.FLOAT16


class LowFloat16(Rule):
    """Flags a float16 constant of -inf or the float minimum, or one that would become so.

    In a model of float16 it is a warning. In another it is a note: it matters once a converter
    turns the model to float16.

    Why:
        The lowest float16 is -65504: what is lower becomes -inf, and a row of scores that is -inf
        throughout is NaN after its Softmax. Run on onnxruntime-directml 1.24.4: in float16 a row
        whose keys are all hidden is NaN if even -65504 is added once, to scores below -16.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        masked (float16[B, T] scores, bool[B, T] hidden) => (float16[B, T] y)
        <float lowest = {-3.4e38}>
        {
            low = Cast <to = 10> (lowest)
            y = Where (hidden, low, scores)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        masked (float16[B, T] scores, bool[B, T] hidden) => (float16[B, T] y)
        <float floor = {-10000.0}>
        {
            low = Cast <to = 10> (floor)
            y = Where (hidden, low, scores)
        }
    """

    providers = EVERYWHERE

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node that reads a constant too low for float16, once for each constant."""
        halves = _is_float16(view)
        reported = set[ir.Value]()
        for node in view.nodes(*_READS_LOW_CONSTANTS):
            for value in node.inputs:
                if value is None or value in reported or (low := _lowest_value(value)) is None:
                    continue
                if low >= _LOWEST and not (halves and low == _LOWEST):
                    continue
                reported.add(value)
                becomes = "-inf" if low < _LOWEST else "-65504, which a sum takes to -inf"
                if halves:
                    yield Hazard(node, f"{low:.4g} is {becomes} in float16: -1e4 hides as well")
                else:
                    later = f"{low:.4g} would be {becomes} in float16, if the model is converted"
                    yield Hazard(node, later, "note")


def _lowest_value(value: ir.Value) -> float | None:
    array = const_of(value)
    if array is None or array.size == 0 or array.dtype.kind != "f":
        return None
    return float(np.min(array))


def _is_float16(view: View) -> bool:
    """Return whether the model computes in float16 anywhere."""
    if any(attr_int(node, "to", 0) == _FLOAT16 for node in view.nodes("Cast")):
        return True
    nodes = (node for node in nodes_of(view.model.graph) if not is_op(node, "Constant"))
    return any(view.shapes.dtype(x) == _FLOAT16 for node in nodes for x in node.outputs)


class TypeConflict(Rule):
    """Flags two tensors of a node that must have one type and have two.

    Why:
        ONNX Runtime does not load such a model, whatever the provider: "Type (tensor(float16)) of
        output arg (...) of node (...) does not match expected type (tensor(float))". Three models
        of the zoo that a converter turned to float16 are so: a Cast to float whose output the file
        still declares as float16.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        half (int64[N] x) => (float16[N] y)
        {
            y = Cast <to = 1> (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        half (int64[N] x) => (float16[N] y)
        {
            y = Cast <to = 10> (x)
        }
    """

    providers = EVERYWHERE

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node whose types contradict its schema."""
        for node in all_nodes(view.model):
            if is_op(node, "Cast"):
                output_type, cast_type = node.outputs[0].dtype, attr_int(node, "to", 0)
                if output_type is not None and cast_type and output_type != cast_type:
                    yield _type_conflict(node, ir.DataType(cast_type), output_type)
                continue
            schema = schema_of(node.op_type, view.opset_of_node(node), node.domain)
            types = dict[str, ir.DataType]()
            declared = kernels.typed_values(node, schema, attrgetter("dtype")) if schema else ()
            for formal, _, dtype in declared:
                variable = formal.type_str
                # The states of a Loop, and what an If returns, may each have a type of its own.
                if not formal.is_homogeneous or "(" in variable:
                    continue
                if types.setdefault(variable, dtype) != dtype:
                    yield _type_conflict(node, types[variable], dtype)
                    break


def _type_conflict(node: ir.Node, expected: ir.DataType, actual: ir.DataType) -> Hazard:
    types = f"{expected.name.lower()} and {actual.name.lower()}"
    message = f"{node.op_type} has {types} where its types must be one: no provider loads it"
    return Hazard(node, message, "error")

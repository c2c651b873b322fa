"""A graph as ONNX Runtime's own optimizer leaves it, with the shapes that it inferred.

The optimizer computes what is constant, so it runs parts of a model that nobody has looked at; it
may die of one, or never end. So it works in a process of its own, which is kept for the next model:
this Python once more.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Literal, Self

import onnx
import onnx_ir as ir

from graphfix.editing import local_functions
from graphfix.errors import ModelError
from graphfix.files import weights
from graphfix.graph.nodes import held_in
from graphfix.graph.walks import all_nodes
from graphfix.runtime.isolated_call import asked, call
from graphfix.runtime.model_source import with_outputs
from graphfix.runtime.onnx_inference import INFERRED
from graphfix.runtime.port import Port
from graphfix.runtime.run_errors import RunError, of_loading
from graphfix.runtime.scratch import Folder, scratch
from graphfix.runtime.time_limits import run_seconds

Level = Literal["basic", "extended"]
"""``basic``: what is done before nodes are given to providers; ``extended``: also the fusions
for the CPU, of which most are the same for DirectML."""

_TENSOR = re.compile(r"tensor\((\w+)\)")
_DTYPES = {x.name.lower(): x for x in ir.DataType}
# What an honest graph takes, at the slowest that was seen, times ten.
_SECONDS_A_NODE = 0.02
# No shape, axis or scale has as many elements.
_LARGE = 4096


class Optimizer(ExitStack):
    """A model that is rewritten, once or at several levels; its weights are written down once.

    Args:
        model: The model; it is not changed. Its weights are loaded.
        sizes: Sizes for symbolic dims, as ONNX Runtime's free-dimension overrides.
    """

    def __init__(self, model: ir.Model, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self._model, self._sizes = model, dict(sizes or {})
        self._told: tuple[bytes, dict[str, Any]] = (b"", {})

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            opened.enter_context(scratch())
            folder = opened.enter_context(Folder()).path
            referred = next(weights.external_tensors(self._model), None) is not None
            held = _with_weights(self._model) if referred else self._model
            self._seconds = run_seconds() + _SECONDS_A_NODE * local_functions.count(held)
            self._given, self._made = folder / "given.onnx", folder / "optimized.onnx"
            self._asked = folder / "asked.onnx"
            self._given.write_bytes(_asking(ir.to_proto(held)).SerializeToString())
            self.push(opened.pop_all())
        return self

    def optimized(self, level: Level, *, without: Sequence[str] = ()) -> ir.Model:
        """Let ONNX Runtime rewrite the model for the CPU, and read what it made of it.

        Args:
            level: How far.
            without: Names of ONNX Runtime's optimizers that are to be left out.

        Raises:
            ModelError: ONNX Runtime rejects the model, or has no CPU kernel for a node of it; or
                its process died of it, or had not ended after as long as a run may take.
        """
        request = {
            "verb": "optimize",
            "model": str(self._given),
            "optimized": str(self._made),
            "level": level,
            "free_dims": self._sizes,
            "without": list(without),
        }
        _ask(request, self._seconds)
        found = ir.from_proto(_answering(onnx.load(self._made)))
        values = {x.name: x for node in found.graph for x in node.outputs if x.name}
        new = [name for name, x in values.items() if x.type is None]
        unsure = _learn_shapes(values, self._ports(found, new)) if new else set()
        if unsure:
            self._asked.write_bytes(_light(found).SerializeToString())
            with suppress(RunError):  # they stay unknown
                shapes = call(INFERRED, str(self._asked), {}, self._seconds, "inferring shapes")
                for name in unsure & shapes.keys():
                    dims = [x if x > 0 else None for x in shapes[name].tolist()]
                    values[name].shape = ir.Shape(dims)
        return found

    def _ports(self, found: ir.Model, names: Sequence[str]) -> list[Port]:
        """What ONNX Runtime infers of these tensors of a graph that is not rewritten any more."""
        try:
            answer = self._ask_outputs(with_outputs(_light(found), names))
        except ModelError:  # of a kernel that wants its weights to be constants
            answer = self._ask_outputs(with_outputs(ir.to_proto(found), names))
        return [Port(n, t, tuple(s)) for n, t, s in answer["outputs"]]

    def _ask_outputs(self, model: bytes) -> dict[str, Any]:
        if model != self._told[0]:  # another level may have made the same
            self._asked.write_bytes(model)
            self._told = model, _ask({"verb": "outputs", "model": str(self._asked)}, self._seconds)
        return self._told[1]


def _light(model: ir.Model) -> onnx.ModelProto:
    """A model for shapes to be inferred of: its large weights are inputs, as no shape is in them.

    Weights of 100 MB are written, read and written again in a second or two.
    """
    graph = model.graph
    held = dict(graph.initializers)
    heavy = [x for x in held.values() if _is_large(x)]
    try:
        for value in heavy:
            del graph.initializers[value.name or ""]
        graph.inputs.extend(heavy)
        return ir.to_proto(model)
    finally:
        if heavy:
            del graph.inputs[-len(heavy) :]
            graph.initializers.clear()  # they are in the order that they had
            graph.initializers.update(held)


def _is_large(value: ir.Value) -> bool:
    tensor = value.const_value
    given = value.is_graph_input() or value.is_graph_output()
    return tensor is not None and tensor.size > _LARGE and not given


def _ask(request: Mapping[str, object], seconds: float) -> dict[str, Any]:
    """Let the process do something.

    Raises:
        ModelError: ONNX Runtime rejects the model; or the process died of it, or did not end.
    """
    try:
        return asked(request, seconds, "optimizing in ONNX Runtime")
    except RunError as error:
        raise of_loading(error) from error


def _with_weights(model: ir.Model) -> ir.Model:
    """A copy that holds its weights, those in Constant nodes too: bytes have no folder beside."""
    held = model.clone()
    ir.external_data.load_to_model(held)
    for node in all_nodes(held):
        for name, tensor in held_in(node):
            if isinstance(tensor, ir.ExternalTensor):
                inside = ir.tensor(tensor.numpy(), tensor.dtype, name=tensor.name)
                node.attributes[name] = ir.AttrTensor(name, inside)
    return held


def _asking(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Let a file that ONNX Runtime writes say what it has inferred: ``proto``, which says so.

    It writes the type and the shape of what ``value_info`` names, be it by name alone, of any graph
    that it has changed in some way. What is named with a type alone would keep no shape in others.
    """
    graph = proto.graph
    for bare in (x for x in graph.value_info if not x.type.tensor_type.HasField("shape")):
        bare.ClearField("type")
    known = {x.name for x in (*graph.value_info, *graph.output)}
    made = dict.fromkeys(name for node in graph.node for name in node.output if name)
    graph.value_info.extend(onnx.ValueInfoProto(name=x) for x in made if x not in known)
    return proto


def _answering(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A file that was asked so, without the names of which it still says nothing.

    Of an initializer, which a Constant has become meanwhile, onnx-ir would believe that.
    """
    said = [x for x in proto.graph.value_info if x.HasField("type")]
    if len(said) < len(proto.graph.value_info):
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(said)
    return proto


def _learn_shapes(values: Mapping[str, ir.Value], ports: Sequence[Port]) -> set[str]:
    """Let values of the main graph have the type and shape that ONNX Runtime infers for them.

    A file that it writes does not have those of tensors that the optimizer has made. They can be
    had by asking for each as an output, of a graph that is not rewritten any more.

    Returns:
        The names of those of which it does not say whether they are scalars.
    """
    unsure = set()
    for port in ports:
        value, tensor = values.get(port.name), _TENSOR.fullmatch(port.type)
        if value is not None and tensor is not None:
            value.type = ir.TensorType(_DTYPES[tensor[1]])
            # No dims are those of a scalar, or of a tensor of which not even the rank is known.
            value.shape = ir.Shape(port.shape) if port.shape else None
            unsure |= set() if port.shape else {port.name}
    return unsure

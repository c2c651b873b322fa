"""Graphs rewritten by ONNX Runtime's own optimizer, with the shapes that it inferred.

The optimizer computes constants, so it runs parts of an unchecked model; it may die of one, or
never end. So it works in another process of this Python, which is kept for the next model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal, Self

import onnx
import onnx_ir as ir

from graphfix.editing import local_functions
from graphfix.errors import ModelError
from graphfix.files import weights
from graphfix.graph.nodes import tensor_attributes
from graphfix.graph.walks import all_nodes
from graphfix.runtime.isolated_call import ask_worker, call_in_worker
from graphfix.runtime.model_source import add_outputs
from graphfix.runtime.onnx_inference import INFERRED
from graphfix.runtime.port import Port
from graphfix.runtime.run_errors import RunError, as_load_error
from graphfix.runtime.scratch import ScratchFolder, scratch_errors
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
        self._last_answer: tuple[bytes, dict[str, Any]] = (b"", {})

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            opened.enter_context(scratch_errors())
            folder = opened.enter_context(ScratchFolder()).path
            referred = next(weights.external_tensors(self._model), None) is not None
            loaded = _load_weights(self._model) if referred else self._model
            self._seconds = run_seconds() + _SECONDS_A_NODE * local_functions.count_inlined_nodes(
                loaded
            )
            self._input_path, self._output_path = folder / "given.onnx", folder / "optimized.onnx"
            self._query_path = folder / "asked.onnx"
            self._input_path.write_bytes(_request_shapes(ir.to_proto(loaded)).SerializeToString())
            self.push(opened.pop_all())
        return self

    def optimize(self, level: Level, *, without: Sequence[str] = ()) -> ir.Model:
        """Let ONNX Runtime rewrite the model for the CPU, and return the result.

        Args:
            level: How far.
            without: Names of ONNX Runtime's optimizers that are to be left out.

        Raises:
            ModelError: ONNX Runtime rejects the model, or has no CPU kernel for a node of it; or
                its process died of it, or had not ended after as long as a run may take.
        """
        request = {
            "verb": "optimize",
            "model": str(self._input_path),
            "optimized": str(self._output_path),
            "level": level,
            "free_dims": self._sizes,
            "without": list(without),
        }
        _ask_optimizer(request, self._seconds)
        rewritten = ir.from_proto(_drop_untyped(onnx.load(self._output_path)))
        values = {x.name: x for node in rewritten.graph for x in node.outputs if x.name}
        new = [name for name, x in values.items() if x.type is None]
        unsure = _learn_shapes(values, self._infer_ports(rewritten, new)) if new else set()
        if unsure:
            self._query_path.write_bytes(_light_proto(rewritten).SerializeToString())
            with suppress(RunError):  # they stay unknown
                shapes = call_in_worker(
                    INFERRED, str(self._query_path), {}, self._seconds, "inferring shapes"
                )
                for name in unsure & shapes.keys():
                    dims = [x if x > 0 else None for x in shapes[name].tolist()]
                    values[name].shape = ir.Shape(dims)
        return rewritten

    def _infer_ports(self, model: ir.Model, names: Sequence[str]) -> list[Port]:
        """Return the types and shapes that ONNX Runtime infers for these tensors."""
        try:
            answer = self._ask_outputs(add_outputs(_light_proto(model), names))
        except ModelError:  # of a kernel that wants its weights to be constants
            answer = self._ask_outputs(add_outputs(ir.to_proto(model), names))
        return [Port(n, t, tuple(s)) for n, t, s in answer["outputs"]]

    def _ask_outputs(self, model: bytes) -> dict[str, Any]:
        if model != self._last_answer[0]:  # another level may have made the same
            self._query_path.write_bytes(model)
            self._last_answer = (
                model,
                _ask_optimizer({"verb": "outputs", "model": str(self._query_path)}, self._seconds),
            )
        return self._last_answer[1]


def _light_proto(model: ir.Model) -> onnx.ModelProto:
    with lightened(model):
        return ir.to_proto(model)


@contextmanager
def lightened(model: ir.Model) -> Iterator[None]:
    """Make the large weights of a model inputs within the block, for shape inference.

    Weights of 100 MB are written, read and written again in a second or two.
    """
    graph = model.graph
    initializers = dict(graph.initializers)
    heavy = [x for x in initializers.values() if _is_large(x)]
    try:
        for value in heavy:
            del graph.initializers[value.name or ""]
        graph.inputs.extend(heavy)
        yield
    finally:
        if heavy:
            del graph.inputs[-len(heavy) :]
            graph.initializers.clear()  # they are in the order that they had
            graph.initializers.update(initializers)


def _is_large(value: ir.Value) -> bool:
    tensor = value.const_value
    is_port = value.is_graph_input() or value.is_graph_output()
    return tensor is not None and tensor.size > _LARGE and not is_port


def _ask_optimizer(request: Mapping[str, object], seconds: float) -> dict[str, Any]:
    """Send a request to the process that optimizes, and return its answer.

    Raises:
        ModelError: ONNX Runtime rejects the model; or the process died of it, or did not end.
    """
    try:
        return ask_worker(request, seconds, "optimizing in ONNX Runtime")
    except RunError as error:
        raise as_load_error(error) from error


def _load_weights(model: ir.Model) -> ir.Model:
    """Return a copy that holds its external weights, those in Constant nodes too."""
    copy = model.clone()
    ir.external_data.load_to_model(copy)
    for node in all_nodes(copy):
        for name, tensor in tensor_attributes(node):
            if isinstance(tensor, ir.ExternalTensor):
                inside = ir.tensor(tensor.numpy(), tensor.dtype, name=tensor.name)
                node.attributes[name] = ir.AttrTensor(name, inside)
    return copy


def _request_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Name every tensor in ``value_info``, so that ONNX Runtime writes what it infers.

    In a graph that it has changed, ONNX Runtime writes the type and shape of every tensor that
    ``value_info`` names, even without a type. An entry with a type and no shape would stay so.
    """
    graph = proto.graph
    for bare in (x for x in graph.value_info if not x.type.tensor_type.HasField("shape")):
        bare.ClearField("type")
    named_values = {x.name for x in (*graph.value_info, *graph.output)}
    outputs = dict.fromkeys(name for node in graph.node for name in node.output if name)
    graph.value_info.extend(onnx.ValueInfoProto(name=x) for x in outputs if x not in named_values)
    return proto


def _drop_untyped(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Drop the ``value_info`` entries for which ONNX Runtime wrote no type.

    onnx-ir would take the missing type for that of an initializer that was a Constant before.
    """
    typed = [x for x in proto.graph.value_info if x.HasField("type")]
    if len(typed) < len(proto.graph.value_info):
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(typed)
    return proto


def _learn_shapes(values: Mapping[str, ir.Value], ports: Sequence[Port]) -> set[str]:
    """Set the types and shapes that ONNX Runtime infers for values of the main graph.

    The file that ONNX Runtime writes lacks those of tensors that its optimizer has made; they are
    queried as outputs of a session without optimizations.

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

"""A graph as ONNX Runtime's own optimizer leaves it, with the shapes that it inferred."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import onnx
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.model.values import nodes_of, tensor_in
from graphfix.runtime.errors import reason_of
from graphfix.runtime.guard import guarded
from graphfix.runtime.local import options_of
from graphfix.runtime.provider import PROVIDERS
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TENSOR = re.compile(r"tensor\((\w+)\)")
_DTYPES = {x.name.lower(): x for x in ir.DataType}


def optimized(
    model: ir.Model,
    level: Literal["basic", "extended"],
    *,
    sizes: Mapping[str, int] | None = None,
    without: Sequence[str] = (),
) -> ir.Model:
    """Let ONNX Runtime rewrite a model for the CPU, and read what it made of it.

    Args:
        model: The model; it is not changed. Its weights are loaded.
        level: ``basic``: what is done before nodes are given to providers; ``extended``: also the
            fusions for the CPU, of which most are the same for DirectML.
        sizes: Sizes for symbolic dims, as ONNX Runtime's free-dimension overrides.
        without: Names of ONNX Runtime's optimizers that are to be left out.

    Raises:
        ModelError: ONNX Runtime rejects the model, or has no CPU kernel for a node of it.
    """
    held = _with_weights(model)
    with tempfile.TemporaryDirectory(prefix="graphfix-") as folder:
        path = Path(folder) / "optimized.onnx"
        data = ir.to_proto(held).SerializeToString()
        write_optimized(data, path, level, sizes=sizes, without=without)
        found = ir.from_proto(onnx.load(path))
    _learn_shapes(found)
    return found


def write_optimized(
    model: bytes,
    path: Path,
    level: Literal["basic", "extended"],
    *,
    sizes: Mapping[str, int] | None = None,
    without: Sequence[str] = (),
) -> None:
    """Write the graph that ONNX Runtime's optimizer makes of a model for the CPU.

    Args:
        model: A self-contained ``.onnx`` file.
        path: Where to.
        level: Which optimizations.
        sizes: Sizes for symbolic dims, as free-dimension overrides.
        without: Names of optimizers that are to be left out.

    Raises:
        ModelError: ONNX Runtime rejects the model, or has no CPU kernel for a node of it.
    """
    import onnxruntime

    options = options_of(optimize=True, threads=1)
    options.graph_optimization_level = {
        "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    }[level]
    options.enable_mem_reuse = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    for name, size in (sizes or {}).items():
        options.add_free_dimension_override_by_name(name, size)
    options.optimized_model_filepath = str(path)
    try:
        guarded(
            lambda: onnxruntime.InferenceSession(
                model, options, providers=[PROVIDERS["cpu"]], disabled_optimizers=list(without)
            )
        )
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(reason_of(error)) from error


def _with_weights(model: ir.Model) -> ir.Model:
    """A copy that holds its weights, those in Constant nodes too: bytes have no folder beside."""
    held = model.clone()
    ir.external_data.load_to_model(held)
    for graph in (held.graph, *(f.graph for f in held.functions.values())):
        for node in nodes_of(graph):
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensor = tensor_in(attribute)
                    if isinstance(tensor, ir.ExternalTensor):
                        inside = ir.tensor(tensor.numpy(), tensor.dtype, name=tensor.name)
                        node.attributes[name] = ir.AttrTensor(name, inside)
    return held


def _learn_shapes(model: ir.Model) -> None:
    """Let each value of the main graph have the type and shape that ONNX Runtime infers for it.

    A file that it writes does not have them. They can be had by asking for every value as an
    output, of a graph that is not rewritten any more.
    """
    values = {x.name: x for node in model.graph for x in node.outputs if x.name}
    unsure = set()
    with Session(model, extra_outputs=list(values), optimize=False) as session:
        for port in session.outputs:
            value, tensor = values.get(port.name), _TENSOR.fullmatch(port.type)
            if value is not None and tensor is not None:
                value.type = ir.TensorType(_DTYPES[tensor[1]])
                # No dims are those of a scalar, or of a tensor of which not even the rank is known.
                value.shape = ir.Shape(port.shape) if port.shape else None
                unsure |= set() if port.shape else {port.name}
    if unsure:
        inferred = onnx.shape_inference.infer_shapes(ir.to_proto(model)).graph
        for info in (*inferred.value_info, *inferred.output):
            if info.name in unsure and info.type.tensor_type.HasField("shape"):
                dims = info.type.tensor_type.shape.dim
                values[info.name].shape = ir.Shape([d.dim_value or None for d in dims])

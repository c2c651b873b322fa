"""The only import of onnxruntime: a model, loaded, that turns feeds into outputs.

On the CPU or on DirectML; where this Python has no DirectML, another one runs the model, see
:mod:`graphfix.measure.runner`.

Weights are never copied to get a model run. A model in memory whose weights lie in files is given
to ONNX Runtime as a graph without them, together with the folder that they lie in; so it does not
matter whether that folder is writable, or how many gigabytes are in it.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import onnx
import onnx_ir as ir

from graphfix.errors import GraphfixError, ModelError
from graphfix.model.values import tensor_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    import onnxruntime

    from graphfix.measure.runner import RemoteSession

    Array = npt.NDArray[np.generic]
    Feeds = Mapping[str, Array]
    Source = str | os.PathLike[str] | bytes | ir.Model

Ep = Literal["cpu", "dml"]

# What ONNX Runtime is asked for. Without a device it makes no DirectML provider, in silence.
_PROVIDERS: dict[Ep, list[Any]] = {
    "cpu": ["CPUExecutionProvider"],
    "dml": [("DmlExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"],
}
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
# Protobuf stops at 2 GB; the graph itself, and what ONNX Runtime copies, need room below that.
_IN_MEMORY_LIMIT = 1_500_000_000
_REASON_LIMIT = 300


class RunError(GraphfixError):
    """A model that loads, but that ONNX Runtime cannot run on the given inputs."""


@dataclass(frozen=True)
class Port:
    """An input or output as ONNX Runtime sees it.

    Attributes:
        name: The tensor's name.
        type: Its type as ONNX Runtime writes it, such as ``tensor(float)``.
        shape: Sizes, names of symbolic dims, or None where a dim has neither.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...]


class Session:
    """A model loaded in ONNX Runtime.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory, which
            is not changed. Models with external weights are given as a path or in memory.
        ep: The execution provider. With ``"dml"`` the model runs on DirectML, in another Python if
            this one has none; ``threads`` and, there, ``extra_outputs`` do not apply.
        extra_outputs: Names of inner tensors of the main graph to return besides the outputs.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        threads: How many threads one operator may use; at most four by default.

    Raises:
        ModelError: The file cannot be read, or ONNX Runtime rejects the model; with its reason.
        UsageError: DirectML is asked for and not to be had.
    """

    def __init__(
        self,
        model: Source,
        *,
        ep: Ep = "cpu",
        extra_outputs: Sequence[str] = (),
        optimize: bool = True,
        threads: int | None = None,
    ) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._remote: RemoteSession | None = None
        if ep == "dml" and (remote := self._elsewhere(model, optimize)) is not None:
            self._remote = remote
            self.inputs, self.outputs = remote.inputs, remote.outputs
            return
        options = _options(optimize, threads or min(4, os.cpu_count() or 1))
        source = self._source(model, extra_outputs, options)
        self._session = _load(source, options, _PROVIDERS[ep])
        self.inputs = tuple(_port(x) for x in self._session.get_inputs())
        self.outputs = tuple(_port(x) for x in self._session.get_outputs())

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: An array for each input, by name. Arrays that the model has no input for are
                ignored.

        Returns:
            An array for each output, by name. Sequences, maps and absent optionals are left out.

        Raises:
            RunError: An input is missing or does not fit, or an operator failed.
        """
        if self._remote is not None:
            return self._remote.run(feeds)
        names = {x.name for x in self.inputs}
        given = {name: np.asarray(array) for name, array in feeds.items() if name in names}
        try:
            results = self._session.run(None, given)
        except Exception as error:  # ONNX Runtime raises a dozen unrelated types
            raise RunError(reason_of(error)) from error
        return {
            port.name: result
            for port, result in zip(self.outputs, results, strict=True)
            if isinstance(result, np.ndarray)
        }

    def close(self) -> None:
        """Let go of the model's memory now, not when the garbage collector comes."""
        self.__dict__.pop("_session", None)
        if self._remote is not None:
            self._remote.close()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _elsewhere(self, model: Source, optimize: bool) -> RemoteSession | None:
        """The model in the Python that has DirectML; None if this one has it."""
        from graphfix.measure import runner

        if runner.native():
            return None
        other = runner.find()
        path = Path(model) if isinstance(model, str | os.PathLike) else self._written(model)
        if not path.is_file():
            raise ModelError(f"{path}: no such file")
        try:
            return runner.RemoteSession(path, other, optimize=optimize)
        except GraphfixError:
            self.close()
            raise

    def _written(self, model: bytes | ir.Model) -> Path:
        """A file of a model in memory, with its weights: another process cannot see ours."""
        self._scratch = tempfile.TemporaryDirectory(prefix="graphfix-")
        path = Path(self._scratch.name) / "model.onnx"
        if isinstance(model, bytes):
            path.write_bytes(model)
        else:
            ir.save(model.clone(), path, external_data="model.data")
        return path

    def _source(
        self, model: Source, extra: Sequence[str], options: onnxruntime.SessionOptions
    ) -> str | bytes:
        if isinstance(model, ir.Model):
            return self._source_in_memory(model, extra, options)
        if isinstance(model, bytes):
            return _with_outputs(onnx.ModelProto.FromString(model), extra) if extra else model
        path = Path(model)
        if not path.is_file():
            raise ModelError(f"{path}: no such file")
        if not extra:
            return str(path)
        options.add_session_config_entry(_WEIGHTS_FOLDER, str(path.parent.resolve()))
        return _with_outputs(onnx.load(path, load_external_data=False), extra)

    def _source_in_memory(
        self, model: ir.Model, extra: Sequence[str], options: onnxruntime.SessionOptions
    ) -> str | bytes:
        folders: set[Path] = set()
        held = 0
        for tensor in _tensors(model):
            if isinstance(tensor, ir.ExternalTensor):
                folders.add(Path(tensor.base_dir).resolve())
            else:
                held += tensor.nbytes
        if len(folders) > 1 or held > _IN_MEMORY_LIMIT:
            return self._source_on_disk(model, extra, options)
        if folders:
            options.add_session_config_entry(_WEIGHTS_FOLDER, str(folders.pop()))
        return _with_outputs(_to_proto(model), extra)

    def _source_on_disk(
        self, model: ir.Model, extra: Sequence[str], options: onnxruntime.SessionOptions
    ) -> str | bytes:
        """Over 2 GB in memory, or weights in several folders: only a file set can hold that."""
        self._scratch = tempfile.TemporaryDirectory(prefix="graphfix-")
        path = Path(self._scratch.name) / "model.onnx"
        ir.save(model.clone(), path, external_data="model.data")
        if not extra:
            return str(path)
        options.add_session_config_entry(_WEIGHTS_FOLDER, self._scratch.name)
        return _with_outputs(onnx.load(path, load_external_data=False), extra)


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

    options = _options(optimize=True, threads=1)
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
        onnxruntime.InferenceSession(
            model, options, providers=_PROVIDERS["cpu"], disabled_optimizers=list(without)
        )
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """What ONNX Runtime says went wrong, in one short line without its codes and source paths."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"^Load model from .*? failed: ?", "", text)
    text = re.sub(r"Non-zero status code returned while running (\S+) node\.", r"\1", text)
    text = re.sub(r" Name:'([^']*)' Status Message: ", r" node '\1': ", text)
    # "/onnxruntime_src/core/x.cc:91 void ns::f(args) condition was false." and the like
    text = re.sub(r"\S*/onnxruntime\S*:\d+ .*?\) (?:const )?(?=\w)", "", text)
    # "E:\x\onnxruntime\y.cpp(28)\z.pyd!0: (caller: 0) Exception(1) tid(24) 80070057 Invalid"
    text = re.sub(r"\S*\\onnxruntime\\\S*: \(caller: \w+\) .*?tid\(\w+\) ", "", text)
    text = text or type(error).__name__
    return text if len(text) <= _REASON_LIMIT else text[: _REASON_LIMIT - 1] + "…"


def _options(optimize: bool, threads: int) -> onnxruntime.SessionOptions:
    import onnxruntime  # about 0.2 s, and not wanted by those who only read a graph

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come back as exceptions; stderr is the user's
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # every run has another shape
    if not optimize:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
        # Planning which buffers to share takes 10 s for 9,000 nodes, packing copies the weights:
        # neither pays for a few runs. Without them such a model loads in 0.4 s.
        options.enable_mem_reuse = False
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _load(
    source: str | bytes, options: onnxruntime.SessionOptions, providers: list[Any]
) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(reason_of(error)) from error
    wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if (used := session.get_providers()[0]) != wanted:
        raise ModelError(f"ONNX Runtime fell back to {used} instead of {wanted}")
    return session


def _port(arg: onnxruntime.NodeArg) -> Port:
    return Port(arg.name, arg.type, tuple(arg.shape))


def _with_outputs(proto: onnx.ModelProto, extra: Sequence[str]) -> bytes:
    known = {x.name for x in proto.graph.output}
    # Without a type: ONNX Runtime infers it, and a stale value_info is not repeated.
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra if name not in known)
    data: bytes = proto.SerializeToString()
    return data


def _to_proto(model: ir.Model) -> onnx.ModelProto:
    try:
        return ir.to_proto(model)
    except Exception as error:  # onnx-ir wraps whatever it met
        raise ModelError(f"the model cannot be serialized: {reason_of(error)}") from error


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Every constant of the model: initializers, and those in attributes of Constant nodes."""
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        for scope in (graph, *graph.subgraphs()):
            if isinstance(scope, ir.Graph):
                for value in scope.initializers.values():
                    if value.const_value is not None:
                        yield value.const_value
            for node in scope:
                for attribute in node.attributes.values():
                    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                        yield tensor_in(attribute)

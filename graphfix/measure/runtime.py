"""The door to onnxruntime: a model, loaded, that turns feeds into outputs.

In this process on the CPU. On DirectML and CUDA a graph may kill the process that runs it, so that
is always another one, see :mod:`graphfix.measure.runner`: this Python once more, or, where it has
no DirectML, one that has.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from graphfix.errors import GraphfixError, ModelError
from graphfix.measure.sources import Source, sourced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import onnxruntime

    from graphfix.measure.runner import RemoteSession

    Array = npt.NDArray[np.generic]
    Feeds = Mapping[str, Array]

Ep = Literal["cpu", "dml", "cuda"]

PROVIDERS: dict[Ep, str] = {
    "cpu": "CPUExecutionProvider",
    "dml": "DmlExecutionProvider",
    "cuda": "CUDAExecutionProvider",
}
"""What ONNX Runtime calls them."""

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
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
        ep: The execution provider. All but ``"cpu"`` run the model in a process of their own, whose
            death is an error like any other; ``threads`` does not apply there.
        extra_outputs: Names of inner tensors of the main graph to return besides the outputs.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        threads: How many threads one operator may use; at most four by default.
        free_dims: Sizes for symbolic dims, by name, as ONNX Runtime's free-dimension overrides.
            The session then runs at these sizes only. They need ``optimize``.
        profile: Whether to record what each node does, for :meth:`profile`.

    Raises:
        ModelError: The file cannot be read, or ONNX Runtime rejects the model; with its reason.
        UsageError: The provider is not to be had; with how to get it.
    """

    def __init__(
        self,
        model: Source,
        *,
        ep: Ep = "cpu",
        extra_outputs: Sequence[str] = (),
        optimize: bool = True,
        threads: int | None = None,
        free_dims: Mapping[str, int] | None = None,
        profile: bool = False,
    ) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._remote: RemoteSession | None = None
        if ep != "cpu":
            from graphfix.measure import places, runner

            places.require(ep)
            self._remote = remote = runner.RemoteSession(
                model,
                runner.here(ep),
                optimize=optimize,
                free_dims=free_dims,
                profile=profile,
                extra_outputs=extra_outputs,
            )
            self.inputs, self.outputs = remote.inputs, remote.outputs
            return
        try:
            source, weights = sourced(model, extra_outputs, self._folder)
            options = _options(optimize, threads or min(4, os.cpu_count() or 1))
            if weights is not None:
                options.add_session_config_entry(_WEIGHTS_FOLDER, str(weights))
            for name, size in (free_dims or {}).items():
                options.add_free_dimension_override_by_name(name, size)
            if profile:
                options.enable_profiling = True
                options.profile_file_prefix = str(self._folder() / "profile")
            self._session = _load(source, options)
        except GraphfixError:
            self.close()
            raise
        self.inputs = tuple(_port(x) for x in self._session.get_inputs())
        self.outputs = tuple(_port(x) for x in self._session.get_outputs())

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: An array for each input, by name. Arrays that the model has no input for are
                ignored.
            outputs: Names of the outputs wanted; by default all.

        Returns:
            An array for each output, by name. Sequences, maps and absent optionals are left out.

        Raises:
            RunError: An input is missing or does not fit, or an operator failed.
        """
        if self._remote is not None:
            return self._remote.run(feeds, outputs)
        names = {x.name for x in self.inputs}
        given = {name: np.asarray(array) for name, array in feeds.items() if name in names}
        wanted = [x.name for x in self.outputs] if outputs is None else list(outputs)
        try:
            results = self._session.run(wanted, given)
        except Exception as error:  # ONNX Runtime raises a dozen unrelated types
            raise RunError(reason_of(error)) from error
        return {
            name: result
            for name, result in zip(wanted, results, strict=True)
            if isinstance(result, np.ndarray)
        }

    def profile(self) -> list[dict[str, Any]]:
        """What ONNX Runtime's profiler recorded of all runs; it ends the session.

        Returns:
            Its events as it writes them. Those of nodes have ``args.provider``, ``args.op_name``
            and a ``name`` such as ``/layer/MatMul_kernel_time``. Empty without ``profile=True``,
            and of a process that died.
        """
        if self._remote is not None:
            return self._remote.profile()
        path = self._session.end_profiling()
        self.__dict__.pop("_session", None)
        if not path:
            return []
        events: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
        return events

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

    def _folder(self) -> Path:
        """A folder that goes with the session."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="graphfix-")
        return Path(self._scratch.name)


def available() -> list[str]:
    """The execution providers of this Python's ONNX Runtime, by its own names."""
    import onnxruntime

    names: list[str] = onnxruntime.get_available_providers()
    return names


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
            model, options, providers=[PROVIDERS["cpu"]], disabled_optimizers=list(without)
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


def _load(source: str | bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(source, options, providers=[PROVIDERS["cpu"]])
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(reason_of(error)) from error


def _port(arg: onnxruntime.NodeArg) -> Port:
    return Port(arg.name, arg.type, tuple(arg.shape))

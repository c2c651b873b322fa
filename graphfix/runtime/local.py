"""ONNX Runtime in this process, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.errors import ModelError
from graphfix.runtime.errors import RunError, reason_of
from graphfix.runtime.guard import StoppedError, guarded, run_seconds
from graphfix.runtime.paths import WEIGHTS_FOLDER, readable
from graphfix.runtime.port import Feeds, Port
from graphfix.runtime.provider import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnxruntime

_FATAL = 4


def options_of(optimize: bool, threads: int) -> onnxruntime.SessionOptions:
    """Options for a session in this process; ``optimize``: whether the graph may be rewritten."""
    import onnxruntime  # about 0.2 s, and not wanted by those who only read a graph

    # Errors come back as exceptions; stderr is the user's. What no session asked for, such as what
    # is inside a function or wrong with a thread, goes to the logger of the process.
    onnxruntime.set_default_logger_severity(_FATAL)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
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


def load(source: str | bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """A session on the CPU.

    Raises:
        ModelError: ONNX Runtime rejects the model; with its reason.
    """
    import onnxruntime

    source, folder = readable(source)
    if folder is not None:
        options.add_session_config_entry(WEIGHTS_FOLDER, str(folder))
    try:
        return guarded(
            lambda: onnxruntime.InferenceSession(
                source, options, providers=[PROVIDERS["cpu"]], enable_fallback=0
            )
        )
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(reason_of(error)) from error


def run(session: onnxruntime.InferenceSession, names: Sequence[str], feeds: Feeds) -> list[object]:
    """What a session returns.

    Raises:
        RunError: An operator failed, or an input does not fit.
        StoppedError: It took too long.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()

    def stop() -> None:
        options.terminate = True

    try:
        found: list[object] = guarded(
            lambda: session.run(names, feeds, options), stop, seconds=run_seconds()
        )
    except StoppedError:
        raise
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise RunError(reason_of(error)) from error
    return found


def port_of(arg: onnxruntime.NodeArg) -> Port:
    """An input or output as ONNX Runtime describes it."""
    return Port(arg.name, arg.type, tuple(arg.shape))

"""Does ONNX Runtime load a model? Asked on the CPU, without reading large weights."""

import re

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.runtime.local_session import Session
from graphfix.runtime.optimizer import lightened
from graphfix.runtime.process import worker_for
from graphfix.runtime.python import runner_for

# What it says of a node for which the CPU has no kernel.
_MISSING_KERNEL = ("Failed to find kernel", "Could not find an implementation", "Kernel not found")
_UNKNOWN_OPERATOR = re.compile(r"([\w.]+):\S+ is not a registered function/op")
_OWN_DOMAINS = ("ai.onnx", "ai.onnx.ml", "com.microsoft")


def load_refusal(model: ir.Model) -> str | None:
    """Return why ONNX Runtime makes no session of a model, or None.

    None too where the CPU only lacks a kernel, which another provider may have, and where an
    operator comes from a library of custom operators.
    """
    try:
        with lightened(model):
            _open(model)
    except ModelError:
        try:
            _open(model)  # some kernels want their weights to be constants
        except ModelError as error:
            reason = str(error)
            return None if lacks_kernel(reason) or _lacks_library(reason) else reason
    return None


def lacks_kernel(reason: str) -> bool:
    """Return whether ONNX Runtime refuses a model for want of a kernel."""
    return any(x in reason for x in _MISSING_KERNEL)


def _lacks_library(reason: str) -> bool:
    """Return whether an operator of another domain than ONNX Runtime's own is unknown to it."""
    unknown = _UNKNOWN_OPERATOR.search(reason)
    return unknown is not None and unknown[1] not in _OWN_DOMAINS


def runtime_version() -> str:
    """Return the version of the ONNX Runtime that :func:`load_refusal` asks."""
    return str(worker_for(runner_for("cpu")).about["onnxruntime"])


def _open(model: ir.Model) -> None:
    Session(model, optimize=False).close()

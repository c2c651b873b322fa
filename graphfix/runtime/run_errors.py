"""Errors of running a model, with ONNX Runtime's reason in one short line."""

import re
import sys

from graphfix.errors import GraphfixError, ModelError

_REASON_LIMIT = 300
_READ = 4000


class RunError(GraphfixError):
    """A model that loads, but that ONNX Runtime cannot run on the given inputs."""


class RunDiedError(RunError):
    """The process died of running a model."""


class LoadDiedError(ModelError):
    """The process died of making a session of a model."""


class NoAnswerError(RunError):
    """The process did not answer in time, so that it was ended."""


class OverBudgetError(RunError):
    """A run that is not begun, or not ended, since it takes longer than was asked for."""


class StoppedError(ModelError):
    """A model whose run took too long, so that it was ended: no size will do better."""


def as_load_error(error: RunError) -> ModelError:
    """Return an error of the process as an error of making a session."""
    return (LoadDiedError if isinstance(error, RunDiedError) else ModelError)(str(error))


def as_run_error(error: ModelError) -> RunError:
    """Return an error of reopening a session as an error of the run that needs it."""
    return (RunDiedError if isinstance(error, LoadDiedError) else RunError)(str(error))


def _error_text(error: BaseException) -> str:
    """Return an error's words; on Windows ONNX Runtime's are in the system's code page."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("mbcs" if sys.platform == "win32" else "latin-1", "replace")
    return str(error)


def reason_of(error: BaseException) -> str:
    """Return ONNX Runtime's reason in one short line, without its codes and source paths."""
    # A name in it may have a million letters.
    text = " ".join(
        line.strip() for line in _error_text(error)[:_READ].splitlines() if line.strip()
    )
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"^Load model from .*? failed: ?", "", text)
    text = re.sub(r"Non-zero status code returned while running (\S+) node\.", r"\1", text)
    text = re.sub(r" Name:'([^']*)' Status Message: ", r" node '\1': ", text)
    # "/onnxruntime_src/core/x.cc:91 void ns::f(args) condition was false." and the like
    text = re.sub(r"\S*/onnxruntime\S*:\d+ .*?\) (?:const )?(?=\w)", "", text)
    # "E:\x\onnxruntime\core\x.h:47 onnxruntime::f condition was false.", the same on Windows
    text = re.sub(r"\S*\\onnxruntime\\\S*:\d+ \S+::\S+(?: \(\))? (?=\w)", "", text)
    # "E:\x\onnxruntime\y.cpp(28)\z.pyd!0: (caller: 0) Exception(1) tid(24) 80070057 Invalid"
    text = re.sub(r"\S*\\onnxruntime\\\S*: \(caller: \w+\) .*?tid\(\w+\) ", "", text)
    text = text or type(error).__name__
    return text if len(text) <= _REASON_LIMIT else text[: _REASON_LIMIT - 1] + "…"

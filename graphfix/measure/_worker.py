"""Runs models for graphfix in another Python, one that has onnxruntime-directml.

It is started as a script, ``python _worker.py``, perhaps by a Windows Python under Wine: so it
imports nothing but the standard library, numpy and onnxruntime. Each line on standard input is a
request in JSON, each answered by one line on standard output; arrays travel as ``.npy`` files.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime

# What begins an answer: libraries print lines of their own.
MARK = "@graphfix "

_sessions: dict[int, Any] = {}


def _hello(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "onnxruntime": onnxruntime.__version__,
        "providers": onnxruntime.get_available_providers(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _open(request: dict[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 0 if request.get("log") else 4  # errors come back as exceptions
    options.enable_mem_pattern = (
        False  # DirectML does without, and every run may have another shape
    )
    if not request["optimize"]:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    for name, size in request["free_dims"].items():
        options.add_free_dimension_override_by_name(name, size)
    for key, value in request.get("config", {}).items():
        options.add_session_config_entry(key, value)
    if request.get("optimized"):
        options.optimized_model_filepath = request["optimized"]
    provider = request["provider"]
    # Without a device, onnxruntime makes no DirectML provider and falls back in silence.
    wanted: list[Any] = [(provider, {"device_id": 0}) if "Dml" in provider else provider]
    if provider != "CPUExecutionProvider":
        wanted.append("CPUExecutionProvider")
    if request["profile"]:
        options.enable_profiling = True
        options.profile_file_prefix = request["profile"]
    start = time.perf_counter()
    with _logging_to(request.get("log", "")):
        session = onnxruntime.InferenceSession(request["model"], options, providers=wanted)
    seconds = time.perf_counter() - start
    used = session.get_providers()[0]
    if used != provider:
        raise RuntimeError(f"ONNX Runtime fell back to {used} instead of {provider}")
    _sessions[request["id"]] = session
    return {
        "seconds": seconds,
        "provider": used,
        "inputs": [[x.name, x.type, x.shape] for x in session.get_inputs()],
        "outputs": [[x.name, x.type, x.shape] for x in session.get_outputs()],
    }


@contextlib.contextmanager
def _logging_to(path: str) -> Iterator[None]:
    """Let what onnxruntime logs go to a file; it has no other way out than standard error."""
    if not path:
        yield
        return
    before = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0))
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _run(request: dict[str, Any]) -> dict[str, Any]:
    session = _sessions[request["id"]]
    feeds = {name: np.load(path) for name, path in request["feeds"].items()}
    start = time.perf_counter()
    results = session.run(None, feeds)
    seconds = time.perf_counter() - start
    outputs = {}
    for i, (port, result) in enumerate(zip(session.get_outputs(), results, strict=True)):
        if isinstance(result, np.ndarray) and result.dtype.kind != "O":
            path = os.path.join(request["folder"], f"out{i}.npy")  # noqa: PTH118
            np.save(path, result)
            outputs[port.name] = path
    return {"seconds": seconds, "outputs": outputs}


def _close(request: dict[str, Any]) -> dict[str, Any]:
    session = _sessions.pop(request["id"], None)
    profile = ""
    if session is not None and request.get("profile"):
        profile = session.end_profiling()
    return {"profile": profile}


_VERBS = {"hello": _hello, "open": _open, "run": _run, "close": _close}


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = _VERBS[request["verb"]](request)
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            answer = {"error": str(error) or type(error).__name__}
        sys.stdout.write(MARK + json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

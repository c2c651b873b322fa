"""Runs models for graphfix in another Python, such as one that has onnxruntime-directml.

It is started as a script, ``python _worker.py``, perhaps by a Windows Python under Wine: so it
imports nothing but the standard library, numpy, onnxruntime and the scripts beside it. Each line on
standard input is a request in JSON, each answered by one line on standard output; arrays travel in
a file, see :mod:`graphfix.runtime._wire`.
"""

import contextlib
import functools
import gc
import importlib
import importlib.util
import io
import json
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import onnxruntime
from onnxruntime import InferenceSession

Named = dict[str, Any]  # a request, an answer, arrays

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
# What ONNX Runtime calls the memory of a provider.
_DEVICES = {
    "DmlExecutionProvider": "dml",
    "CUDAExecutionProvider": "cuda",
    "WebGpuExecutionProvider": "webgpu",
}
# Without a device id onnxruntime falls back from these to the CPU without an error.
_NUMBERED = ("DmlExecutionProvider", "CUDAExecutionProvider")

# How often an output is in memory: here, in the file, and in the asking process.
_COPIES = 3

_sessions: dict[int, Any] = {}


def _hello(_: Named) -> Named:
    return {
        "onnxruntime": onnxruntime.__version__,
        "providers": onnxruntime.get_available_providers(),
        "Python": platform.python_version(),
        "system": platform.platform(),
    }


def _machine(request: Named) -> Named:
    facts: Named = _load_script("_machine").about(request["provider"], _load_script)
    return facts


def _memory(_: Named) -> Named:
    return {"peak": _load_script("_machine").memory(_load_script)}


def _load_script(name: str) -> Any:  # noqa: ANN401
    """Load a script beside this one, where an embedded Python does not look."""
    if name not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")  # noqa: PTH100, PTH118, PTH120
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def _open(request: Named) -> Named:
    options = onnxruntime.SessionOptions()
    # Errors come back as exceptions.
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    # DirectML requires that, and every run may have another shape.
    options.enable_mem_pattern = False
    if request.get("threads"):
        options.intra_op_num_threads = request["threads"]
        options.inter_op_num_threads = 1
    if not request["optimize"]:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if request["provider"] == "CPUExecutionProvider":
            # Planning which buffers to share takes 10 s for 9,000 nodes, packing copies the
            # weights: neither pays for a few runs. Without them such a model loads in 0.4 s.
            options.enable_mem_reuse = False
            options.add_session_config_entry("session.disable_prepacking", "1")
            # Threads spin while they wait for the next operator; most models here are small.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name, size in request["free_dims"].items():
        options.add_free_dimension_override_by_name(name, size)
    provider = request["provider"]
    providers: list[Any] = [(provider, {"device_id": 0}) if provider in _NUMBERED else provider]
    if provider != "CPUExecutionProvider":
        providers.append("CPUExecutionProvider")
    if request["profile"]:
        options.enable_profiling = True
        options.profile_file_prefix = request["profile"]
    model, weights = request["model"], request["weights"]
    if not weights and not _can_open_path(model):
        weights = os.path.dirname(model)  # noqa: PTH120
    if weights:  # ONNX Runtime takes the folder of a model in memory only
        options.add_session_config_entry(_WEIGHTS_FOLDER, weights)
        with open(model, "rb") as file:  # noqa: PTH123
            model = file.read()
    start = time.perf_counter()
    with _limit_memory(request.get("memory")):
        session = InferenceSession(
            model,
            options,
            providers=providers,
            disabled_optimizers=request.get("without"),
            enable_fallback=0,
        )
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
        "defaults": [x.name for x in session.get_overridable_initializers()],
    }


def _optimize(request: Named) -> Named:
    """Let ONNX Runtime write the graph that it makes of a model for the CPU."""
    options = _plain_options()
    level = f"ORT_ENABLE_{request['level'].upper()}"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    for name, size in request["free_dims"].items():
        options.add_free_dimension_override_by_name(name, size)
    options.optimized_model_filepath = request["optimized"]
    _make_session(request, options, disabled_optimizers=request["without"])
    return {}


def _outputs(request: Named) -> Named:
    """Return the outputs of a model, as ONNX Runtime infers them without optimizations."""
    options = _plain_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return {
        "outputs": [
            [x.name, x.type, x.shape] for x in _make_session(request, options).get_outputs()
        ]
    }


def _plain_options() -> onnxruntime.SessionOptions:
    """Return options of a session that is made and never run."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _make_session(
    request: Named,
    options: onnxruntime.SessionOptions,
    **more: Any,  # noqa: ANN401
) -> InferenceSession:
    with open(request["model"], "rb") as file:  # noqa: PTH123  (no name is outside a code page)
        model = file.read()
    with _limit_memory(request.get("memory")):
        return InferenceSession(model, options, providers=["CPUExecutionProvider"], **more)


@contextlib.contextmanager
def _limit_memory(free: int | None) -> Iterator[None]:
    """Let requests for more memory than was free fail; Linux would kill the process."""
    if free is None or sys.platform != "linux":
        yield
        return
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    # Never more than the user's own bound, `ulimit -v`, which stays.
    most = min([used + free, *(x for x in before if x != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _can_open_path(path: str) -> bool:
    """Return whether ONNX Runtime can open a path; on Windows it must be in the ANSI code page."""
    try:
        path.encode("mbcs" if sys.platform == "win32" else "utf-8", "strict")
    except UnicodeEncodeError:
        return False
    return True


def _run(request: Named) -> Named:
    session = _sessions[request["id"]]
    timed = _time_bound_run if request["bind"] else _time_run
    with _limit_memory(request.get("memory")):
        seconds, results = timed(session, _read_feeds(request), request["outputs"])
    arrays: Named = {}
    for name, result in zip(request["outputs"], results, strict=True):
        arrays |= _load_script("_results").flatten_output(name, result)
    size = sum(x.nbytes for x in arrays.values())
    if request.get("memory") is not None and _COPIES * size > request["memory"]:
        raise MemoryError(f"there is not memory enough for outputs of {size / 1e9:.1f} GB")
    return {"seconds": seconds, "arrays": _load_script("_wire").put(_open_array_file(), arrays)}


def _read_feeds(request: Named) -> Named:
    arrays: Named = _load_script("_wire").take(_open_array_file(), request["feeds"])
    return arrays


@functools.cache
def _open_array_file() -> io.FileIO:
    """Open the file that arrays go through: a path, or the number of an inherited one."""
    name = sys.argv[2]
    return io.FileIO(int(name) if name.isdigit() else name, "r+")


def _call(request: Named) -> Named:
    """Call a function of graphfix, which this Python then has."""
    module, _, name = request["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    with _limit_memory(request.get("memory")):
        results = function(request["text"], _read_feeds(request))
    return {"arrays": _load_script("_wire").put(_open_array_file(), results)}


def _time(request: Named) -> Named:
    """Run again and again; return how long each run took.

    Nothing happens between two runs: no file is read, and no other process is asked.
    """
    session = _sessions[request["id"]]
    feeds = _read_feeds(request)
    names = [x.name for x in session.get_outputs()]
    seconds: list[float] = []
    end = time.perf_counter() + request["seconds"]
    gc.disable()
    try:
        while len(seconds) < request["runs"] or (
            time.perf_counter() < end and len(seconds) < request["most"]
        ):
            seconds.append(_time_run(session, feeds, names)[0])
    finally:
        gc.enable()
    return {"seconds": seconds}


def _time_run(session: InferenceSession, feeds: Named, names: list[str]) -> tuple[float, list[Any]]:
    start = time.perf_counter()
    results = session.run(names, feeds)
    return time.perf_counter() - start, results


def _time_bound_run(
    session: InferenceSession, feeds: Named, names: list[str]
) -> tuple[float, list[Any]]:
    """Run with inputs already on the device and outputs left there; return its seconds."""
    device = _DEVICES.get(session.get_providers()[0], "cpu")
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)  # copied now, to where the graph wants it
    for name in names:
        binding.bind_output(name, device, 0)
    binding.synchronize_inputs()
    start = time.perf_counter()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    seconds = time.perf_counter() - start
    return seconds, binding.copy_outputs_to_cpu()


def _close(request: Named) -> Named:
    session = _sessions.pop(request["id"], None)
    profile = ""
    if session is not None and request.get("profile"):
        profile = session.end_profiling()
    return {"profile": profile}


def _error_text(error: Exception) -> str:
    """Return an error's words; on Windows ONNX Runtime's are in the system's code page."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("mbcs" if sys.platform == "win32" else "latin-1", "replace")
    return str(error)


_HANDLERS = _hello, _machine, _memory, _open, _run, _call, _time, _close, _optimize, _outputs
_VERBS = {work.__name__.removeprefix("_"): work for work in _HANDLERS}


def main() -> None:
    """Answer requests until standard input ends.

    The first argument marks each answer, so that other output is not taken for one.
    """
    mark = sys.argv[1]
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever PYTHONIOENCODING says
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):  # noqa: PTH100, PTH120
        del sys.path[0]  # a module that a library looks for may have the name of a script here
    for line, finish in _iter_requests():
        try:
            request = json.loads(line)
            for number in request.get("forget", ()):
                _sessions.pop(number, None)
            answer = _VERBS[request["verb"]](request)
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            answer = {"error": _error_text(error) or type(error).__name__}
        finish()
        sys.stdout.write(mark + json.dumps(answer) + "\n")
        sys.stdout.flush()
    if sys.platform != "win32":
        os._exit(0)  # without the slow shutdown of Python and ONNX Runtime


def _iter_requests() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each request, and what is to be called when its work is over.

    Another thread reads them, to end the process if the asking process ends while a model runs. Not
    on Windows: there a pending read blocks every call that asks what kind of file stdin is.
    """
    if sys.platform == "win32":
        for line in sys.stdin:
            yield line, lambda: None
        return
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_read_lines, args=(lines, busy), daemon=True).start()
    while (received := lines.get()) is not None:
        yield received, busy.clear


def _read_lines(lines: queue.SimpleQueue[str | None], busy: threading.Event) -> None:
    """Pass on requests; end this process if the asking one ends while a model runs."""
    for line in sys.stdin:
        busy.set()
        lines.put(line)
    if busy.is_set():
        os._exit(1)
    lines.put(None)


if __name__ == "__main__":
    main()

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
_DEVICES = {"DmlExecutionProvider": "dml", "CUDAExecutionProvider": "cuda"}

# So often an output is in memory: here, on the way, and with who asked.
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
    found: Named = _script("_machine").about(request["provider"], _script)
    return found


def _memory(_: Named) -> Named:
    return {"peak": _script("_machine").memory(_script)}


def _script(name: str) -> Any:  # noqa: ANN401
    """A script beside this one; an embedded Python does not look for them here."""
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
    # DirectML does without, and every run may have another shape.
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
            # Threads that wait for the next operator turn in circles meanwhile, and most of what
            # is run here is small.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name, size in request["free_dims"].items():
        options.add_free_dimension_override_by_name(name, size)
    provider = request["provider"]
    # Without a device, onnxruntime makes no DirectML provider and falls back in silence.
    wanted: list[Any] = [(provider, {"device_id": 0}) if provider in _DEVICES else provider]
    if provider != "CPUExecutionProvider":
        wanted.append("CPUExecutionProvider")
    if request["profile"]:
        options.enable_profiling = True
        options.profile_file_prefix = request["profile"]
    model, weights = request["model"], request["weights"]
    if not weights and not _can_be_named(model):
        weights = os.path.dirname(model)  # noqa: PTH120
    if weights:  # ONNX Runtime takes the folder of a model in memory only
        options.add_session_config_entry(_WEIGHTS_FOLDER, weights)
        with open(model, "rb") as file:  # noqa: PTH123
            model = file.read()
    start = time.perf_counter()
    with _bounded_memory(request.get("memory")):
        session = InferenceSession(
            model,
            options,
            providers=wanted,
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
    _make(request, options, disabled_optimizers=request["without"])
    return {}


def _outputs(request: Named) -> Named:
    """What the outputs of a model are, as ONNX Runtime infers it of the graph as it stands."""
    options = _plain_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return {"outputs": [[x.name, x.type, x.shape] for x in _make(request, options).get_outputs()]}


def _plain_options() -> onnxruntime.SessionOptions:
    """Options of a session that is made and never run."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _make(request: Named, options: onnxruntime.SessionOptions, **more: Any) -> InferenceSession:  # noqa: ANN401
    with open(request["model"], "rb") as file:  # noqa: PTH123  (no name is outside a code page)
        model = file.read()
    with _bounded_memory(request.get("memory")):
        return InferenceSession(model, options, providers=["CPUExecutionProvider"], **more)


@contextlib.contextmanager
def _bounded_memory(free: int | None) -> Iterator[None]:
    """Asking for more memory than was free fails, as it does on Windows; Linux would end us."""
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


def _can_be_named(path: str) -> bool:
    """Whether ONNX Runtime can open it: on Windows 1.24 knows the ANSI code page only."""
    try:
        path.encode("mbcs" if sys.platform == "win32" else "utf-8", "strict")
    except UnicodeEncodeError:
        return False
    return True


def _run(request: Named) -> Named:
    session = _sessions[request["id"]]
    timed = _run_bound if request["bind"] else _run_plain
    with _bounded_memory(request.get("memory")):
        seconds, results = timed(session, _given(request), request["outputs"])
    found: Named = {}
    for name, result in zip(request["outputs"], results, strict=True):
        found |= _script("_results").flattened(name, result)
    size = sum(x.nbytes for x in found.values())
    if request.get("memory") is not None and _COPIES * size > request["memory"]:
        raise MemoryError(f"there is not memory enough for outputs of {size / 1e9:.1f} GB")
    return {"seconds": seconds, "arrays": _script("_wire").put(_arrays(), found)}


def _given(request: Named) -> Named:
    found: Named = _script("_wire").take(_arrays(), request["feeds"])
    return found


@functools.cache
def _arrays() -> io.FileIO:
    """The file that arrays go through: a path, or the number of one that was inherited."""
    name = sys.argv[2]
    return io.FileIO(int(name) if name.isdigit() else name, "r+")


def _call(request: Named) -> Named:
    """Call a function of graphfix, which this Python then has."""
    module, _, name = request["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    with _bounded_memory(request.get("memory")):
        found = function(request["given"], _given(request))
    return {"arrays": _script("_wire").put(_arrays(), found)}


def _time(request: Named) -> Named:
    """Run again and again, and keep how long each took, not what came out.

    So nothing lies between two runs but the end of one and the start of the next: no file, no
    other process.
    """
    session = _sessions[request["id"]]
    feeds = _given(request)
    names = [x.name for x in session.get_outputs()]
    seconds: list[float] = []
    end = time.perf_counter() + request["seconds"]
    gc.disable()
    try:
        while len(seconds) < request["runs"] or (
            time.perf_counter() < end and len(seconds) < request["most"]
        ):
            seconds.append(_run_plain(session, feeds, names)[0])
    finally:
        gc.enable()
    return {"seconds": seconds}


def _run_plain(
    session: InferenceSession, feeds: Named, names: list[str]
) -> tuple[float, list[Any]]:
    start = time.perf_counter()
    results = session.run(names, feeds)
    return time.perf_counter() - start, results


def _run_bound(
    session: InferenceSession, feeds: Named, names: list[str]
) -> tuple[float, list[Any]]:
    """Inputs are on the device before the clock starts, outputs are left there."""
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


def _said(error: Exception) -> str:
    """The words of an error; on Windows ONNX Runtime's are in the system's code page, not UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("mbcs" if sys.platform == "win32" else "latin-1", "replace")
    return str(error)


_ASKED = _hello, _machine, _memory, _open, _run, _call, _time, _close, _optimize, _outputs
_VERBS = {work.__name__.removeprefix("_"): work for work in _ASKED}


def main() -> None:
    """Answer requests until standard input ends.

    The argument comes before each answer: what else is printed has none.
    """
    mark = sys.argv[1]
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever PYTHONIOENCODING says
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):  # noqa: PTH100, PTH120
        del sys.path[0]  # what is beside this script has the names of modules, such as profile
    for line, done in _requests():
        try:
            request = json.loads(line)
            for number in request.get("forget", ()):
                _sessions.pop(number, None)
            answer = _VERBS[request["verb"]](request)
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            answer = {"error": _said(error) or type(error).__name__}
        done()
        sys.stdout.write(mark + json.dumps(answer) + "\n")
        sys.stdout.flush()
    if sys.platform != "win32":
        os._exit(0)  # nobody waits for what Python and ONNX Runtime would take down in order


def _requests() -> Iterator[tuple[str, Callable[[], object]]]:
    """Each request, and what is to be called when its work is over.

    They are read in another thread, which sees the asker go while a model runs. Not on Windows:
    there a read that waits holds up whoever asks what kind of file the standard input is.
    """
    if sys.platform == "win32":
        for line in sys.stdin:
            yield line, lambda: None
        return
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(lines, busy), daemon=True).start()
    while (given := lines.get()) is not None:
        yield given, busy.clear


def _listen(lines: queue.SimpleQueue[str | None], busy: threading.Event) -> None:
    """Hand on requests; when the asker is gone, nobody waits for a model that does not end."""
    for line in sys.stdin:
        busy.set()
        lines.put(line)
    if busy.is_set():
        os._exit(1)
    lines.put(None)


if __name__ == "__main__":
    main()

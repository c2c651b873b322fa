"""Facts about this machine and the memory of a process, for readers of timings.

For :mod:`graphfix.runtime._worker`, which runs without graphfix: so it imports only the standard
library and onnxruntime.
"""

import contextlib
import ctypes
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import onnxruntime

Script = Callable[[str], Any]

_ON_DEVICE = ("DmlExecutionProvider", "CUDAExecutionProvider")


def about(provider: str, script: Script) -> dict[str, Any]:
    """Return facts for a reader of timings: the adapter, the driver, the clock.

    Args:
        provider: ONNX Runtime's name of the execution provider.
        script: Gives a script of this folder by its name.
    """
    clock = time.get_clock_info("perf_counter")
    facts = {
        "processor": (f"{os.cpu_count()} x " if os.cpu_count() else "") + _processor_name(),
        "clock": f"{clock.implementation}, {clock.resolution * 1e9:.0f} ns",
    }
    with contextlib.suppress(OSError, AttributeError):
        facts["Wine"] = _wine_version()
    if provider in _ON_DEVICE:
        try:
            facts["adapter"] = _describe_adapter(provider, script)
        except Exception as error:  # a missing DLL or program, or one that says no
            facts["adapter"] = f"unknown ({error})"
    if provider == "DmlExecutionProvider":
        with contextlib.suppress(OSError):
            facts["DirectML.dll"] = _directml_version(script)
    return facts


def memory(script: Script) -> int | None:
    """Return the peak memory of this process in bytes, or None if it is unavailable."""
    try:
        return _peak_memory(script)
    except Exception:  # whatever is not there
        return None


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(x.split(":", 1)[1].strip() for x in file if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _wine_version() -> str:
    version = ctypes.CDLL("ntdll.dll").wine_get_version  # an AttributeError on Windows
    version.restype = ctypes.c_char_p
    return str(version().decode())


def _directml_version(script: Script) -> str:
    path = os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "DirectML.dll")  # noqa: PTH118, PTH120
    return str(script("_windows").file_version(path))


def _describe_adapter(provider: str, script: Script) -> str:
    if provider == "CUDAExecutionProvider":
        return _query_nvidia("--query-gpu=name,driver_version")[0]
    device = script("_windows").adapter()
    with contextlib.suppress(OSError, AttributeError):
        # Wine's DXGI shows the Vulkan device under the name of a card that games know.
        return f"a Vulkan device that Wine {_wine_version()} calls {device['name']}"
    return (
        f"{device['name']}, driver {device.get('driver', 'unknown')}, {device['memory'] >> 20} MiB"
    )


def _peak_memory(script: Script) -> int:
    if sys.platform == "win32":
        return int(script("_windows").peak_memory())
    try:
        # Not getrusage: its maximum counts what the process was forked from.
        with open("/proc/self/status", encoding="utf-8") as file:  # noqa: PTH123
            return next(int(x.split()[1]) * 1024 for x in file if x.startswith("VmHWM:"))
    except FileNotFoundError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _query_nvidia(query: str) -> list[str]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return process.stdout.splitlines()

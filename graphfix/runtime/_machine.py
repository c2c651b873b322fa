"""What machine this is, and what memory a process has taken, as a reader of timings asks.

For :mod:`graphfix.runtime._worker`, which stands alone: so it imports nothing but the standard
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
    """What a reader of timings wants to know: the adapter, the driver, the clock.

    Args:
        provider: ONNX Runtime's name of the execution provider.
        script: Gives a script of this folder by its name.
    """
    clock = time.get_clock_info("perf_counter")
    found = {
        "processor": (f"{os.cpu_count()} x " if os.cpu_count() else "") + _processor(),
        "clock": f"{clock.implementation}, {clock.resolution * 1e9:.0f} ns",
    }
    with contextlib.suppress(OSError, AttributeError):
        found["Wine"] = _wine()
    if provider in _ON_DEVICE:
        try:
            found["adapter"] = _adapter(provider, script)
        except Exception as error:  # a missing DLL or program, or one that says no
            found["adapter"] = f"unknown ({error})"
    if provider == "DmlExecutionProvider":
        with contextlib.suppress(OSError):
            found["DirectML.dll"] = _directml_version(script)
    return found


def memory(script: Script) -> int | None:
    """The most memory that this process ever had in use, in bytes; None if it is unavailable."""
    try:
        return _peak_memory(script)
    except Exception:  # whatever is not there
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(x.split(":", 1)[1].strip() for x in file if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _wine() -> str:
    version = ctypes.CDLL("ntdll.dll").wine_get_version  # an AttributeError on Windows
    version.restype = ctypes.c_char_p
    return str(version().decode())


def _directml_version(script: Script) -> str:
    path = os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "DirectML.dll")  # noqa: PTH118, PTH120
    return str(script("_windows").file_version(path))


def _adapter(provider: str, script: Script) -> str:
    if provider == "CUDAExecutionProvider":
        return _nvidia("--query-gpu=name,driver_version")[0]
    one = script("_windows").adapter()
    with contextlib.suppress(OSError, AttributeError):
        # Wine's DXGI shows the Vulkan device under the name of a card that games know.
        return f"a Vulkan device that Wine {_wine()} calls {one['name']}"
    return f"{one['name']}, driver {one.get('driver', 'unknown')}, {one['memory'] >> 20} MiB"


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


def _nvidia(query: str) -> list[str]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()

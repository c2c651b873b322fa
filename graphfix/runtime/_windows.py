"""What Windows says of the graphics adapter, of a process's memory and of a DLL's version.

For :mod:`graphfix.runtime._worker`, which may be run by a Python that has nothing but the standard
library and onnxruntime: so Windows itself is asked, through :mod:`ctypes`. Under Wine the answers
are Wine's, whose DXGI names the Vulkan adapter.

https://learn.microsoft.com/windows/win32/api/dxgi1_4/nn-dxgi1_4-idxgiadapter3
"""

from __future__ import annotations

import ctypes
import sys
import uuid
from ctypes import byref, c_int64, c_long, c_size_t, c_uint, c_void_p, wintypes
from typing import Any, Self

assert sys.platform == "win32"

_FACTORY1 = uuid.UUID("770aae78-f26f-4dba-a829-253c83d1b387").bytes_le
_DEVICE = uuid.UUID("54ec77fa-1377-44e6-8c32-88fd5f44c84c").bytes_le
_ADAPTER3 = uuid.UUID("645967a4-1392-4310-a798-8053ce3e93fd").bytes_le
# Places in the interfaces' tables of functions.
_QUERY_INTERFACE, _RELEASE = 0, 2
_ENUM_ADAPTERS1 = 12  # of IDXGIFactory1
_CHECK_INTERFACE_SUPPORT, _GET_DESC1 = 9, 10  # of IDXGIAdapter3


class _Desc(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_wchar * 128),
        ("ids", c_uint * 4),
        ("memory", c_size_t * 3),
        ("luid", c_int64),
        ("flags", c_uint),
    )


class _ProcessMemory(ctypes.Structure):
    _fields_ = (
        ("size", wintypes.DWORD),
        ("faults", wintypes.DWORD),
        ("peak", c_size_t),
        ("rest", c_size_t * 7),
    )


class _Adapter:
    """The first adapter that DXGI lists, which is the one that a ``device_id`` of 0 means."""

    def __init__(self) -> None:
        self._held: list[c_void_p] = []
        factory = c_void_p()
        _check(ctypes.windll.dxgi.CreateDXGIFactory1(_FACTORY1, byref(factory)))
        self._held.append(factory)
        first = c_void_p()
        _check(_call(factory, _ENUM_ADAPTERS1, c_uint(0), byref(first)))
        self._held.append(first)
        self.at = c_void_p()
        _check(_call(first, _QUERY_INTERFACE, _ADAPTER3, byref(self.at)))
        self._held.append(self.at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._held:
            _call(self._held.pop(), _RELEASE)


def adapter() -> dict[str, Any]:
    """Return the adapter's name, memory in bytes, and driver version if it has one."""
    with _Adapter() as one:
        desc = _Desc()
        _check(_call(one.at, _GET_DESC1, byref(desc)))
        found = {"name": desc.name, "memory": desc.memory[0]}
        version = c_int64()
        if _call(one.at, _CHECK_INTERFACE_SUPPORT, _DEVICE, byref(version)) >= 0:
            words = [version.value >> shift & 0xFFFF for shift in (48, 32, 16, 0)]
            found["driver"] = ".".join(map(str, words))
        return found


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    counters = _ProcessMemory()
    counters.size = ctypes.sizeof(counters)
    kernel = ctypes.windll.kernel32
    kernel.GetCurrentProcess.restype = c_void_p
    ask = kernel.K32GetProcessMemoryInfo
    ask.argtypes = (c_void_p, c_void_p, wintypes.DWORD)
    if not ask(kernel.GetCurrentProcess(), byref(counters), counters.size):
        raise OSError("Windows does not say")
    return int(counters.peak)


def file_version(path: str) -> str:
    """Return the version in a DLL's resources, such as ``1.15.4.0``."""
    dll = ctypes.windll.version
    size = dll.GetFileVersionInfoSizeW(path, None)
    data = ctypes.create_string_buffer(size)
    if not size or not dll.GetFileVersionInfoW(path, 0, size, data):
        raise OSError("it has no version")
    found, length = ctypes.POINTER(wintypes.DWORD)(), c_uint()
    if not dll.VerQueryValueW(data, "\\", byref(found), byref(length)):
        raise OSError("it has no version")
    high, low = found[2], found[3]  # VS_FIXEDFILEINFO
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"


def _call(this: c_void_p, place: int, *arguments: object) -> int:
    """Call a function of a COM object by its place in the table."""
    table = ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(c_void_p))).contents
    # Else 64-bit pointers: an IID as bytes, or by reference.
    types = (c_uint if isinstance(x, c_uint) else c_void_p for x in arguments)
    function = ctypes.WINFUNCTYPE(c_long, c_void_p, *types)(table[place])
    return int(function(this, *arguments))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(f"DXGI says {result & 0xFFFFFFFF:08X}")

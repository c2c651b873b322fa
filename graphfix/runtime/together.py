"""Processes that end when this one does, however it ends.

Elsewhere a process hears that nobody is left who asks it. On Windows one that is busy hears
nothing, and who is ended there cannot end others first. So they are put into a job of this process;
when its last handle is closed, Windows ends all that is in it, and what those have started.

https://learn.microsoft.com/windows/win32/procthread/job-objects
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

if sys.platform == "win32":
    import ctypes
    from ctypes import byref, c_int64, c_size_t, c_uint64, c_void_p, wintypes

    _LIMITS = 9  # JobObjectExtendedLimitInformation
    _KILL_ON_CLOSE = 0x2000

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = (
            ("times", c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("working_set", c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", c_size_t),
            ("priority", wintypes.DWORD * 2),
            ("moved", c_uint64 * 6),
            ("memory", c_size_t * 4),
        )

    _kernel = ctypes.WinDLL("kernel32")
    _kernel.CreateJobObjectW.restype = c_void_p
    _kernel.CreateJobObjectW.argtypes = (c_void_p, c_void_p)
    _kernel.SetInformationJobObject.argtypes = (c_void_p, wintypes.INT, c_void_p, wintypes.DWORD)
    _kernel.AssignProcessToJobObject.argtypes = (c_void_p, c_void_p)

    @functools.cache
    def _job() -> int | None:
        """The job of this process; None where Windows makes none. It is closed by our own end."""
        job: int | None = _kernel.CreateJobObjectW(None, None)
        limits = _Limits(flags=_KILL_ON_CLOSE)
        if job and _kernel.SetInformationJobObject(
            job, _LIMITS, byref(limits), ctypes.sizeof(limits)
        ):
            return job
        return None


def end_with_us(process: subprocess.Popen[bytes]) -> None:
    """Let a process that we have started, and all that it starts, not outlive this one."""
    if sys.platform == "win32" and (job := _job()) is not None:
        # Where it may not (a job around ours that forbids it), all goes as it would without.
        _kernel.AssignProcessToJobObject(job, int(process._handle))

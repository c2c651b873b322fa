"""Processes that end together, and when this one does, however it ends.

Elsewhere they are a process group, and one hears that nobody is left who asks it. On Windows one
that is busy hears nothing, and who is ended there cannot end others first. So each is put into a
job of its own, with what it starts; when the last handle of a job is closed, as by our end, Windows
ends all that is in it.

https://learn.microsoft.com/windows/win32/procthread/job-objects
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import weakref
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
    _kernel.TerminateJobObject.argtypes = (c_void_p, wintypes.UINT)
    _kernel.CloseHandle.argtypes = (c_void_p,)

    def _job_of(process: subprocess.Popen[bytes]) -> int | None:
        """A job with the process in it; None where Windows makes none, or a job around forbids."""
        job: int | None = _kernel.CreateJobObjectW(None, None)
        limits = _Limits(flags=_KILL_ON_CLOSE)
        if not job:
            return None
        if _kernel.SetInformationJobObject(
            job, _LIMITS, byref(limits), ctypes.sizeof(limits)
        ) and _kernel.AssignProcessToJobObject(job, int(process._handle)):
            return job
        _kernel.CloseHandle(job)
        return None


class Together:
    """A process that we have started, with all that it starts; none of them outlives us.

    Elsewhere than on Windows it has to lead a group, for :meth:`end`: ``start_new_session``.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if sys.platform == "win32":
            self._job = _job_of(process)
            if self._job is not None:  # else all goes as it would without
                # Not at our exit, where some may still end by themselves.
                weakref.finalize(self, _kernel.CloseHandle, self._job).atexit = False

    def end(self, number: int = getattr(signal, "SIGKILL", signal.SIGTERM)) -> None:
        """End them all, on Windows by force. Not for a process that has been waited for."""
        with contextlib.suppress(OSError):
            if sys.platform != "win32":
                os.killpg(self._process.pid, number)
            elif self._job is None or not _kernel.TerminateJobObject(self._job, 1):
                self._process.kill()

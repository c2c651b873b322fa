"""Processes that end together with all that they have started."""

import contextlib
import os
import signal
import subprocess
import sys

import psutil


class ProcessGroup:
    """A process that we have started, with all that it starts.

    Elsewhere than on Windows it has to lead a group: ``start_new_session``.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def end_all(self, number: int = getattr(signal, "SIGKILL", signal.SIGTERM)) -> None:
        """End all processes of the group, on Windows by force; not for one waited for."""
        with contextlib.suppress(OSError, psutil.Error):
            if sys.platform != "win32":
                os.killpg(self._process.pid, number)
                return
            # The Python of a virtual environment there is one that starts another.
            first = psutil.Process(self._process.pid)
            for one in (*first.children(recursive=True), first):
                with contextlib.suppress(psutil.Error):
                    one.kill()

"""Signals that end the command line: an exception in the main thread, so that drafts are removed.

None is raised while a module is imported: what is half imported is left so, libraries catch it
there, and those in C++ abort the process with it.
"""

import _thread
import signal
import threading
import time
import traceback
from types import FrameType

_IMPORTING = "<frozen importlib._bootstrap>"
_AGAIN = 0.002  # seconds
_PATIENCE = 3.0  # seconds; a plugin may never end to be imported


def install_handlers() -> None:
    """Handle termination signals as Ctrl-C; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, _on_signal)
    # What was told not to hear one stays so: a shell tells what runs behind it, nohup what it runs.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_signal)
    # A terminal that is closed.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _on_signal)
    if hasattr(signal, "SIGBREAK"):  # Ctrl+Break, of Windows
        signal.signal(signal.SIGBREAK, _on_signal)


_since: float | None = None  # when the signal came that waits for the end of an import
_waits = False


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _since, _waits
    now = time.monotonic()
    if _is_importing(frame):
        _since = _since or now
        if now < _since + _PATIENCE:
            if not _waits:
                _waits = True
                later = threading.Timer(_AGAIN, _resend_signal, [number])
                later.daemon = True
                later.start()
            return
    _since = None
    raise KeyboardInterrupt


def _resend_signal(number: int) -> None:
    global _waits
    _waits = False
    _thread.interrupt_main(signal.Signals(number))


def _is_importing(frame: FrameType | None) -> bool:
    frames = traceback.walk_stack(frame) if frame is not None else ()
    return any(x.f_code.co_filename == _IMPORTING for x, _ in frames)

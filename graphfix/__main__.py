"""``graphfix`` and ``python -m graphfix``: the command line, and Ctrl-C before and after it.

Python answers Ctrl-C with a traceback while modules are imported, and once more while it ends.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130  # as in graphfix.cli, which is not there yet
_MESSAGE = b"graphfix: interrupted; nothing was written\n"


def main() -> int:
    """Run the command line and return its exit code."""
    # A shell that runs a job in the background lets it ignore the signal: then so do we.
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupt:
        signal.signal(signal.SIGINT, _end_process)
    try:
        from graphfix.cli import main as run

        if handles_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:  # before the command line hears it, or twice
        _end_process()
    finally:
        # All is done, and the exit code says what: what waits for the end of a process must not
        # say otherwise.
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is not None and callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_IGN)


def _end_process(_number: int = 0, _frame: FrameType | None = None) -> NoReturn:
    """End at once: imports and their callbacks could catch an exception."""
    try:
        os.write(2, _MESSAGE)
    finally:
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m graphfix.model_zoo FOLDER``: run the request in a folder and write the row there."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from graphfix.model_zoo import cache
from graphfix.model_zoo.model_process import read_request, run_request

_PATIENCE = 1.0  # seconds for what is in temporary folders to go


def main(folder: Path) -> None:
    """Run the request in ``folder/request.json``, and write ``folder/row.json``."""
    # Ctrl-C is for the parent process, which ends this one; else the row would say that it died.
    for name in ("SIGINT", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is in temporary folders goes
    if sys.platform != "win32":  # there it outlives a parent that is killed
        threading.Thread(target=_exit_with_parent, daemon=True).start()
    data = json.loads((folder / "request.json").read_text(encoding="utf-8"))

    def write_stage(stage: str) -> None:
        (folder / "stage").write_text(stage, encoding="utf-8")

    cache.save_row(folder / "row.json", run_request(read_request(data, folder), write_stage))


def _exit_with_parent() -> None:
    """Wait until the parent process is gone, then end this one."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(1)  # it was busy in what hears no signal


if __name__ == "__main__":
    main(Path(sys.argv[1]))

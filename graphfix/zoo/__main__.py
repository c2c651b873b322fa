"""``python -m graphfix.zoo FOLDER``: do the request in a folder and leave the row there."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from graphfix.zoo import cache
from graphfix.zoo.work import received, work


def main(folder: Path) -> None:
    """Do the request in ``folder/request.json``; the row goes to ``folder/row.json``."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is in temporary folders goes
    data = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    cache.keep(folder / "row.json", work(received(data, folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

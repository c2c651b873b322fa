"""Files made of one export, on DirectML, held to what the export computes on the CPU.

    python bench/on_directml.py EXPORT.onnx FILE.onnx ...

All in one process, since making inputs and running the export takes longer than the files do. A
line of JSON is printed for each, at once, so that a process that dies has told of the others.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from graphfix.core import feeds_after, interface_changes_of, weakest_promise
from graphfix.errors import GraphfixError
from graphfix.feeds.case_search import make_cases
from graphfix.files import io
from graphfix.float16_search.trials import extreme_cases
from graphfix.job.comparing import passes_between
from graphfix.proof.verify import verify
from graphfix.runtime import process


def main(source: Path, files: list[Path]) -> None:
    """Run each file at the longest and the shortest usual size."""
    old = io.load(source)
    cases = extreme_cases(list(make_cases(old)))
    for path in files:
        found: dict[str, Any]
        try:
            passes = passes_between(old, io.load(path))
            verdict = verify(
                source,
                path,
                cases=cases,
                safety=weakest_promise(one.safety for one in passes),
                map_feeds=partial(feeds_after, passes),
                may_change=interface_changes_of(passes),
                ep="dml",
                locate=False,
            )
        except GraphfixError as error:
            found = {"ok": False, "runs": False, "worst": None, "why": str(error)}
        else:
            worst = verdict.worst
            found = {
                "ok": verdict.ok,
                "runs": not verdict.reason,
                "worst": None if worst is None else worst.max_abs,
                "why": "" if verdict.ok else str(verdict),
            }
        if not found["runs"]:
            process.stop_all()  # a device that failed once may fail the next file
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(x) for x in sys.argv[2:]])

"""All of ONNX's tests through every pass, into docs/conformance.md. ``make conformance``."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime

from graphfix.errors import GraphfixError
from tests.conformance import page
from tests.conformance.cases import SIZES, cases
from tests.conformance.trial import Base, Bench, Trial, base, specs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.cases import Case

Record = dict[str, Any]


def survey(case: Case, folder: Path) -> tuple[Base, list[Trial]]:
    """One test, its dims given in each way, through everything."""
    before = base(case)
    return before, list(_trials(case, before, folder))


def _trials(case: Case, before: Base, folder: Path) -> Iterator[Trial]:
    for sizes in SIZES:
        try:
            bench = Bench(case, sizes, before, folder)
        except GraphfixError as error:
            yield Trial(case.name, sizes, "load", "refused", str(error))
            continue
        except Exception:
            yield Trial(case.name, sizes, "load", "fault", traceback.format_exc(limit=-3))
            continue
        yield from bench.ask()
        yield from map(bench.trial, specs(bench.model, sizes))
        if sizes != "plain":
            yield bench.trial(bench.fixed())


def _quiet() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


def _one(name: str) -> Record:
    case = next(x for x in cases() if x.name == name)
    with tempfile.TemporaryDirectory(prefix="graphfix-") as folder:
        before, trials = survey(case, Path(folder))
    return {
        "case": name,
        "ran": before.outputs is not None,
        "reason": before.reason,
        "detail": before.detail,
        "trials": [asdict(x) for x in trials],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only tests whose name has one of these in it")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log", type=Path, default=Path("build/conformance.jsonl"))
    parser.add_argument(
        "--again",
        action="store_true",
        help="only those that are not in the log, or that fail there; the rest is taken from it",
    )
    parser.add_argument("--page", action="store_true", help="write docs/conformance.md")
    options = parser.parse_args(arguments)
    _quiet()
    every = [x for x in cases() if not options.names or any(y in x.name for y in options.names)]
    chosen = every[:: options.every]
    kept = {x["case"]: x for x in _read(options.log)} if options.again else {}
    kept = {x.name: kept[x.name] for x in chosen if x.name in kept and not _bad(kept[x.name])}
    options.log.parent.mkdir(parents=True, exist_ok=True)
    records: list[Record] = [*kept.values()]
    with (
        options.log.open("w", encoding="utf-8") as log,
        ProcessPoolExecutor(options.workers, initializer=_quiet) as pool,
    ):
        for record in kept.values():
            log.write(json.dumps(record) + "\n")
        left = [x.name for x in chosen if x.name not in kept]
        # Neighbours are alike: so what is wrong shows early.
        for record in pool.map(_one, [x for i in range(16) for x in left[i::16]]):
            records.append(record)
            log.write(json.dumps(record) + "\n")
            log.flush()
            for x in _bad(record):
                print(f"{x['case']}, {x['sizes']}, {x['what']}: {x['how']}: {x['detail']}")
                sys.stdout.flush()
    data = counted(records)
    print(page.table(data))
    if options.page:
        page.write(data)
    return int(any(map(_bad, records)))


def _read(log: Path) -> list[Record]:
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _bad(record: Record) -> list[Record]:
    return [x for x in record["trials"] if x["how"] in ("differs", "fault")]


def counted(records: Sequence[Record]) -> page.Data:
    """What the page says, in numbers."""
    rows: dict[str, dict[str, float]] = {}
    for record in records:
        for one in record["trials"]:
            name = one["what"].partition(":")[0]
            row = rows.setdefault(name, dict.fromkeys((*page.COLUMNS, "worst"), 0))
            row["tried"] += 1
            if one["how"] != "unchanged":
                row[one["how"]] += 1
            row["worst"] = round(max(row["worst"], one["worst"]), 4)
    kinds = {x.name: x.kind for x in cases()}
    not_run = Counter(x["reason"] for x in records if not x["ran"])
    unlike = Counter(x["reason"] for x in records if x["ran"] and x["reason"])
    return {
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "tests": len(records),
        "of": len(kinds),
        "kinds": dict(Counter(kinds[x["case"]] for x in records).most_common()),
        "run": sum(x["ran"] for x in records),
        "not_run": dict(not_run.most_common()),
        "unlike": dict(unlike.most_common()),
        "rows": {name: rows[name] for name in sorted(rows)},
        "left": sorted(
            f"{x['case']}, {x['sizes']}, {x['what']}: {x['detail'].strip().splitlines()[-1]}"
            for record in records
            for x in _bad(record)
        ),
    }


if __name__ == "__main__":
    sys.exit(main())

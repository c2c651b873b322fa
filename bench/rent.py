"""Measure what each fusion pays: kernels on DirectML with it and without it, family by family.

Run as ``make rent``, or as ``python -m bench.rent [NAME ...]`` behind ``python -m
bench.families.export``. Each export goes through the profile ``fast`` as it is, and once more
without each fusion that changed it. Kernels are counted as ``graphfix plan`` counts them.

A fusion stays if at least two families have 5 % more kernels without it. Writes
``build/rent/rent.json`` and ``build/rent/rent.md``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

import graphfix
from graphfix.core import Check
from graphfix.engine import pipeline, registry
from graphfix.job import planning

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "rent"
EXPORTERS = {"ts": "TorchScript", "dy": "dynamo"}
CANDIDATES = (*registry.FUSIONS, "log-buckets")
"""The passes of ``fast`` that only take kernels; the others repair what fails or is wrong."""
SHARE, ENOUGH = 0.05, 2
"""A fusion stays if it takes that share of the kernels of that many families."""


@dataclass
class Export:
    """The kernels of one export.

    Attributes:
        family: The family that it is of.
        exporter: Which exporter of torch wrote it: ``ts`` or ``dy``.
        original: Kernels as exported: on the device, and on the CPU.
        directml: Those after the profile ``directml``.
        fast: Those after the profile ``fast``.
        changes: How many changes each pass of ``fast`` made.
        without: Kernels on the device after ``fast`` without each fusion that made changes.
    """

    family: str
    exporter: str
    original: tuple[int, int] | None = None
    directml: tuple[int, int] | None = None
    fast: tuple[int, int] | None = None
    changes: dict[str, int] = field(default_factory=dict)
    without: dict[str, int] = field(default_factory=dict)


def kernels_after(path: Path, passes: str | Sequence[Check]) -> tuple[int, int] | None:
    """Return the kernels of a file behind some passes, on the device and on the CPU."""
    model = graphfix.load(path)
    if passes:
        graphfix.run(model, passes)
    return count_kernels(model)


def count_kernels(model: ir.Model) -> tuple[int, int] | None:
    """Return the kernels of a model, on the device and on the CPU."""
    kernels = planning.kernels_per_run(model)
    return None if kernels is None else (kernels["directml"], kernels["cpu"])


def measure(path: Path) -> Export:
    """Return the kernels of one export as it is and behind both profiles."""
    family, exporter, _ = path.name.rsplit(".", 2)
    export = Export(family, exporter)
    export.original = kernels_after(path, "")
    export.directml = kernels_after(path, "directml")
    model = graphfix.load(path)
    for done in graphfix.run(model, "fast").passes:
        if done.changes:
            export.changes[done.name] = export.changes.get(done.name, 0) + len(done.changes)
    export.fast = count_kernels(model)
    return export


def leave_out(path: Path, export: Export, candidates: Iterable[str]) -> None:
    """Count the kernels of an export without each candidate that changed it."""
    passes = pipeline.parse_passes("fast")
    for name in candidates:
        if export.fast is None or name not in export.changes or name in export.without:
            continue
        kernels = kernels_after(path, [x for x in passes if x.name != name])
        if kernels is not None:
            export.without[name] = kernels[0]


def share_of(export: Export, name: str) -> float:
    """Return the share of an export's kernels that a fusion takes; less than 0 if it adds some."""
    without = export.without.get(name)
    if without is None or export.fast is None or without == 0:
        return 0.0
    return (without - export.fast[0]) / without


def shares_by_family(exports: Iterable[Export], name: str) -> dict[str, float]:
    """Return the largest share of each family's kernels that a fusion takes, the best first."""
    shares: dict[str, float] = {}
    for export in exports:
        shares[export.family] = max(shares.get(export.family, 0.0), share_of(export, name))
    return dict(sorted(shares.items(), key=lambda x: -x[1]))


def page(exports: Sequence[Export], failures: Sequence[str]) -> str:
    """Return the page: what each fusion takes, what each export has, what was not exported."""
    families = len({x.family for x in exports})
    paragraphs = [
        "# What each fusion pays",
        f"Made by `make rent` over {len(exports)} exports of {families} families. Kernels are those"
        " on DirectML, as `graphfix plan` predicts them. A share is of the kernels that `fast`"
        " leaves without the fusion; of a family, that of its better export. A fusion stays if"
        f" {ENOUGH} families have a share of {SHARE:.0%}.",
        table(
            "fusion, exports changed, families, stays, best families, adds kernels to",
            (fusion_row(exports, x) for x in sorted(CANDIDATES, key=lambda x: -paying(exports, x))),
        ),
        table(
            "median, as exported, directml, fast",
            ([text, *medians(exports, exporter)] for exporter, text in EXPORTERS.items()),
        ),
        table(
            "export, as exported, directml, fast, CPU kernels then",
            (export_row(x) for x in exports),
        ),
        "Not exported:",
        "\n".join(f"- {x}" for x in failures) or "none",
    ]
    return "\n\n".join(paragraphs) + "\n"


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a table of Markdown; its head is given with commas."""
    names = head.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(map(str, x)) + " |" for x in lines)


def fusion_row(exports: Sequence[Export], name: str) -> list[object]:
    """Return what one fusion takes: of how many exports, and the most of which families."""
    measured = [x for x in exports if name in x.without]
    best = list(shares_by_family(measured, name).items())[:4]
    text = ", ".join(f"{family} {share:.1%}" for family, share in best if share > 0)
    worse = sum(share_of(x, name) < 0 for x in measured)
    families = paying(measured, name)
    stays = "yes" if families >= ENOUGH else "no"
    return [f"`{name}`", len(measured), families, stays, text, worse]


def medians(exports: Iterable[Export], exporter: str) -> list[object]:
    """Return the median of the kernels of one exporter's files: as exported, then both profiles."""
    ours = [x for x in exports if x.exporter == exporter and x.original and x.directml and x.fast]
    counts = [(x.original[0], x.directml[0], x.fast[0]) for x in ours]
    return [round(statistics.median(column)) for column in zip(*counts, strict=True)]


def export_row(export: Export) -> list[object]:
    """Return the kernels of one export."""
    behind = (export.original, export.directml, export.fast)
    counts = ["-" if x is None else x[0] for x in behind]
    cpu = "-" if export.fast is None else export.fast[1]
    return [f"{export.family}.{export.exporter}", *counts, cpu]


def paying(exports: Iterable[Export], name: str) -> int:
    """Return of how many families a fusion takes enough."""
    return sum(share >= SHARE for share in shares_by_family(exports, name).values())


def failures_in(folder: Path) -> list[str]:
    """Return the exports that failed, each with the first line of its reason."""
    return [
        f"{path.stem}: {path.read_text(encoding='utf-8').splitlines()[0][:160]}"
        for path in sorted(folder.glob("*.txt"))
    ]


def main() -> None:
    """Measure all exports that were not measured yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="families; all by default")
    parser.add_argument("--exports", type=Path, default=FOLDER / "exports")
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured")
    parser.add_argument("--only", default=",".join(CANDIDATES), help="fusions to leave out")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    asked.to.mkdir(parents=True, exist_ok=True)
    log = asked.to / "rent.json"
    known = json.loads(log.read_text(encoding="utf-8")) if log.exists() and not asked.fresh else {}
    exports = {name: Export(**x) for name, x in known.items()}
    paths = sorted(asked.exports.glob("*.onnx"))
    paths = [x for x in paths if not asked.names or x.name.rsplit(".", 2)[0] in asked.names]
    for number, path in enumerate(paths, 1):
        print(f"{number}/{len(paths)} {path.stem}", file=sys.stderr, flush=True)
        if path.stem not in exports:
            exports[path.stem] = measure(path)
        leave_out(path, exports[path.stem], filter(None, asked.only.split(",")))
        rows = {name: vars(x) for name, x in sorted(exports.items())}
        log.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    text = page([x for _, x in sorted(exports.items())], failures_in(asked.exports))
    (asked.to / "rent.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

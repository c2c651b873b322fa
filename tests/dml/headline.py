"""How many real exports run on DirectML: as exported, after onnxsim, onnxslim and graphfix.

Run as ``python tests/dml/headline.py`` or ``make headline``, with ``GRAPHFIX_ZOO`` set to a folder
of exports (``models.jsonl``, ``models/``, ``recipes.py``) and DirectML to be had. Every file that
the CPU runs is run on DirectML at each of its recipe's lengths, and held to what the CPU computes
of the file as exported. Each tool works in a child process: one that crashes, hangs or refuses is
a row like any other. What was measured for the same bytes is not measured again.

Writes ``docs/headline.json``, and the table between the marks in ``README.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from graphfix.errors import GraphfixError, ModelError, UsageError
from graphfix.runtime import process, python
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunError

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
ZOO = Path(os.environ.get("GRAPHFIX_ZOO", ROOT.parent / "shared" / "zoo"))
TOOLS = ("exported", "onnxsim", "onnxslim", "graphfix")
KINDS = {
    "dynamo": "dynamo exporter",
    "torchscript": "TorchScript exporter",
    "edited": "edited since (simplified, float16, int8)",
}
BEGIN, END = "<!-- headline: made by make headline -->", "<!-- end of headline -->"
TOOL_SECONDS = 300.0
# The worst difference of an output, as a share of its largest element where that is over 1.
CLOSE = {"float32": 1e-4, "float16": 1e-2, "int8": 1e-1}

Json = dict[str, Any]
Arrays = dict[str, np.ndarray]


# What each tool makes of a file


def convert(tool: str, source: Path, target: Path) -> None:
    """Write what ``tool`` makes of ``source``; run in a process of its own."""
    import onnx

    if tool == "onnxsim":
        import onnxsim

        made, same = onnxsim.simplify(onnx.load(source))
        if not same:
            raise SystemExit("onnxsim: its own check says that the result differs")
        onnx.save(made, target)
    elif tool == "onnxslim":
        import onnxslim

        onnx.save(onnxslim.slim(onnx.load(source)), target)
    else:
        from graphfix import job

        report = job.repair_file(source, target)
        if report.output is None:
            raise SystemExit(f"graphfix: {report.verdict}")


def converted(tool: str, source: Path, target: Path) -> str:
    """Run :func:`convert` in a child; why there is no file, or an empty text."""
    command = [sys.executable, str(HERE), "--convert", tool, str(source), str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{tool} did not end within {TOOL_SECONDS:.0f} s"
    if done.returncode == 0 and target.is_file():
        return ""
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return f"{tool} ended with code {done.returncode}: {said[-1].strip() if said else 'no word'}"


# Running


def cases(row: Json) -> list[tuple[str, Arrays]]:
    """Inputs for each of the recipe's lengths that the CPU runs, and there are some."""
    names = [case["name"] for case in row["recipe"]["cases"]]
    return [(name, recipes().gen_inputs(row["recipe"], name)) for name in names]


def recipes() -> Any:
    """The zoo's own maker of inputs."""
    spec = importlib.util.spec_from_file_location("recipes", ZOO / "recipes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference(source: Path, row: Json) -> tuple[list[tuple[str, Arrays, Arrays]], str]:
    """Each case with what the CPU makes of it; and why it makes nothing of the others."""
    found, reason = [], ""
    try:
        with Session(source, optimize=False) as session:
            for name, feeds in cases(row):
                try:
                    found.append((name, feeds, session.run(feeds)))
                except RunError as error:
                    reason = str(error)
    except ModelError as error:
        reason = str(error)
    return found, reason


def on_directml(model: Path, wanted: list[tuple[str, Arrays, Arrays]]) -> Json:
    """Run a file on DirectML at every length and compare; a failure is a result."""
    worst = 0.0
    try:
        with Session(model, ep="dml") as session:
            for name, feeds, expected in wanted:
                given = {port.name: feeds[port.name] for port in session.inputs}
                outputs = session.run(given)
                for output, array in expected.items():
                    gap = distance(array, outputs.get(output))
                    if gap == float("inf"):
                        reason = f"{output!r} has another shape or NaN, in case {name!r}"
                        return {"result": "differs", "reason": reason}
                    worst = max(worst, gap)
    except (ModelError, RunError) as error:
        process.stop_all()  # a device that failed once may fail the next model
        return {"result": "crashes", "reason": str(error)}
    return {"result": "runs", "worst": worst}


def distance(wanted: np.ndarray, got: np.ndarray | None) -> float:
    """The largest difference where the original is finite; beyond 1, as a share of the largest."""
    if got is None or got.shape != wanted.shape:
        return float("inf")
    there = np.isfinite(wanted)
    a, b = wanted[there].astype(np.float64), got[there].astype(np.float64)
    if not np.isfinite(b).all():
        return float("inf")
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(a).max(initial=0.0)))


def precision(row: Json) -> str:
    """float32, float16 or int8: how closely a file can be held to the CPU."""
    if "+fp16" in row["name"]:
        return "float16"
    return "int8" if "+q8" in row["name"] else "float32"


def kind(row: Json) -> str:
    """Who wrote the file: one of ``KINDS``."""
    if "+" in row["name"]:
        return "edited"
    return "dynamo" if ".dy" in row["name"] else "torchscript"


def study(row: Json, known: dict[str, Json], folder: Path) -> Json:
    """One export as it is and after each tool."""
    source = ZOO / "models" / f"{row['name']}.onnx"
    wanted, reason = reference(source, row)
    found: Json = {"name": row["name"], "kind": kind(row), "precision": precision(row)}
    if not wanted:
        return {**found, "left_out": reason or "it has no inputs"}
    found["lengths"] = [name for name, _, _ in wanted]
    for tool in TOOLS:
        target = source
        if tool != "exported":
            target = folder / f"{row['name']}.{tool}.onnx"
            if why := converted(tool, source, target):
                found[tool] = {"result": "no file", "reason": why}
                continue
        key = hashlib.sha256(target.read_bytes()).hexdigest() + precision(row)
        if key not in known:
            known[key] = on_directml(target, wanted)
        result = dict(known[key])
        if result["result"] == "runs" and result["worst"] > CLOSE[found["precision"]]:
            result["result"] = "differs"
        found[tool] = result
        if tool != "exported":
            target.unlink()
    return found


# What it comes to


def summary(rows: list[Json]) -> Json:
    """The counts by exporter and tool, and the worst difference after graphfix in float32."""
    counted = [row for row in rows if "left_out" not in row]
    counts = {
        name: {
            "files": len(members),
            **{
                tool: {
                    result: sum(row[tool]["result"] == result for row in members)
                    for result in ("runs", "differs", "crashes", "no file")
                }
                for tool in TOOLS
            },
        }
        for name in (*KINDS, "all")
        for members in [[row for row in counted if name in (row["kind"], "all")]]
    }
    worst = max(
        (
            (row["graphfix"]["worst"], row["name"])
            for row in counted
            if row["precision"] == "float32" and "worst" in row["graphfix"]
        ),
        default=(0.0, ""),
    )
    return {"counts": counts, "worst_float32": {"difference": worst[0], "model": worst[1]}}


def table(data: Json) -> str:
    """The table of README and the sentence below it, from ``docs/headline.json``."""
    heads = ("as exported", "after onnxsim", "after onnxslim", "after `graphfix run`")
    lines = [f"| do not run on DirectML | files | {' | '.join(heads)} |", "| --- |" + " ---: |" * 5]
    for name, label in {**KINDS, "all": "all"}.items():
        counts = data["counts"][name]
        cells = [str(counts["files"]), *(_cell(counts[tool]) for tool in TOOLS)]
        strong = "**" if name == "all" else ""
        lines.append(f"| {' | '.join(f'{strong}{cell}{strong}' for cell in (label, *cells))} |")
    worst = f"{data['worst_float32']['difference']:.1e}".replace("e-0", "e-")
    runtime = data["with"].get("onnxruntime-directml", "")
    lines += [
        "",
        f"Run on onnxruntime-directml {runtime}. After `graphfix run`, float32 models differ there "
        f"from what the\noriginals compute on the CPU by {worst} at most (relative for "
        "outputs above 1, absolute otherwise).",
    ]
    return "\n".join(lines)


def _cell(counts: Json) -> str:
    text = str(counts["crashes"] + counts["no file"])
    return text + (f" (+ {counts['differs']} wrong)" if counts["differs"] else "")


def into_readme(text: str, data: Json) -> str:
    """README with the table between its marks."""
    return re.sub(
        rf"{re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: f"{BEGIN}\n{table(data)}\n{END}",
        text,
        flags=re.DOTALL,
    )


def versions() -> dict[str, str]:
    """What it was measured with."""
    found = {name: importlib.metadata.version(name) for name in ("onnxsim", "onnxslim", "graphfix")}
    found["onnxruntime, for the CPU"] = ort.__version__
    if not python.has_provider("dml"):
        about = process.worker_for(python.find_python("dml")).about
        found["onnxruntime-directml"] = str(about["onnxruntime"])
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure what is not known yet and write what it comes to; 2 if that is not possible here."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--convert"]:
        tool, source, target = arguments[1:]
        convert(tool, Path(source), Path(target))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="files of the zoo, without .onnx")
    parser.add_argument("--known", type=Path, default=ROOT / "build" / "headline.json")
    parser.add_argument("--force", action="store_true", help="measure all of it again")
    options = parser.parse_args(arguments)
    listed = ZOO / "models.jsonl"
    if not listed.is_file():
        print(f"no zoo at {ZOO}; set GRAPHFIX_ZOO", file=sys.stderr)
        return 2
    rows = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if not options.names or row["name"] in options.names]
    try:
        python.require_provider("dml")
        about = versions()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    known: dict[str, Json] = {}
    if options.known.is_file() and not options.force:
        known = json.loads(options.known.read_text(encoding="utf-8"))
    options.known.parent.mkdir(parents=True, exist_ok=True)
    studied = []
    with tempfile.TemporaryDirectory() as folder:
        for i, row in enumerate(rows, 1):
            try:
                studied.append(study(row, known, Path(folder)))
            except GraphfixError as error:
                print(f"{row['name']}: {error}", file=sys.stderr)
                return 2
            results = {tool: studied[-1].get(tool, {}).get("result", "-") for tool in TOOLS}
            print(f"{i}/{len(rows)} {row['name']} {results}", file=sys.stderr, flush=True)
            options.known.write_text(json.dumps(known, indent=1), encoding="utf-8")
    data = {"schema": 1, "with": about, **summary(studied), "rows": studied}
    print(table(data))
    worst = data["worst_float32"]
    print(f"\nworst float32 difference after graphfix: {worst['difference']:.2g}, {worst['model']}")
    for row in studied:
        for tool in TOOLS:
            if (result := row.get(tool, {})).get("result") in ("no file", "differs"):
                told = result.get("reason") or f"by {result['worst']:.3g}"
                print(f"{row['name']}, {tool}: {result['result']}: {told}", file=sys.stderr)
    if not options.names:
        target = ROOT / "docs" / "headline.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        readme = ROOT / "README.md"
        readme.write_text(into_readme(readme.read_text(encoding="utf-8"), data), encoding="utf-8")
    failed = [r for r in studied if "left_out" not in r and r["graphfix"]["result"] != "runs"]
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        code = main()
    finally:
        process.stop_all()
    sys.exit(code)

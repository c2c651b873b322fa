"""float16 side by side: what each converter makes of a folder of models, as a table.

    python bench/float16.py MODELS/*.onnx [--only CONVERTER] [--olive PYTHON]
    python bench/float16.py MODELS/*.onnx --ep dml --seconds 400     # once more, on DirectML
    python bench/float16.py MODELS/*.onnx --page        # into docs/float16.md and .json

Each converter gets the same float32 exports and keeps inputs and outputs as they are. A result
agrees if it passes the gate of float16: 1e-2 of the largest element, a cosine of 0.9999. Models
that are not float32, or that ONNX Runtime does not load as they are, are left out and counted.
What is made lies in ``build/float16`` and is not made again, so that a run can be cut short.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime

from graphfix import job
from graphfix.errors import GraphfixError
from graphfix.feeds.case_search import make_cases
from graphfix.files import io
from graphfix.float16_search.trials import extreme_cases
from graphfix.graph.walks import nodes_of
from graphfix.proof.compare import HALF_GATE
from graphfix.proof.half_outputs import computes_in_half
from graphfix.proof.verify import verify
from graphfix.runtime.local_session import Session

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "float16"
PAGE = ROOT / "docs" / "float16.md"
BEGIN, END = "<!-- table: bench/float16.py --page -->", "<!-- end of table -->"
LEFT, AGREES = "left as it is", "agrees"
ENDS = ("does not convert", "does not load", "is off", LEFT, AGREES)
# models/NAME/model.onnx is called NAME.
_FOLDER = "model"

# What came of it, where that is known: ours is verified, with the same gate, before it is written.
Convert = Callable[[Path, Path], str]
Row = dict[str, object]


def common(source: Path, target: Path) -> str:
    """onnxconverter_common.float16, as the tutorials call it."""
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
    return ""


def transformers(source: Path, target: Path) -> str:
    """onnxruntime.transformers.float16."""
    from onnxruntime.transformers import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
    return ""


def ours(spec: str) -> Convert:
    """What ``graphfix run -p SPEC`` makes."""

    def convert(source: Path, target: Path) -> str:
        report = job.repair_file(source, target, spec, kernels=False)
        target.with_suffix(".json").write_text(json.dumps(report.to_json(), indent=1))
        if not report.ok:
            raise GraphfixError(f"refused: {report.verdict}")
        changed = any(x.name == "float16" and x.changes for x in report.passes)
        return AGREES if changed else LEFT

    return convert


CONVERTERS: dict[str, Convert | None] = {
    "onnxconverter_common": common,
    "onnxruntime.transformers": transformers,
    "Olive": None,
    "graphfix -p float16": ours("float16"),
    "graphfix -p directml,float16": ours("directml,float16"),
    "graphfix -p fast,float16": ours("fast,float16"),
}


def name_of(source: Path) -> str:
    """What a model is called."""
    return source.parent.name if source.stem == _FOLDER else source.stem


def folder_of(converter: str) -> Path:
    """Where lies what a converter makes."""
    folder = BUILD / converter.replace(" ", "_").replace(",", "+")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def state_of(converter: str) -> Path:
    """The file that says what is known of a converter; each has its own, for runs side by side."""
    return folder_of(converter) / "results.json"


def known(converter: str) -> dict[str, Row]:
    """What is known of a converter, by the name of the model."""
    state = state_of(converter)
    rows: dict[str, Row] = json.loads(state.read_text()) if state.exists() else {}
    return rows


def judge(converter: str, convert: Convert | None, source: Path) -> Row:
    """Convert one model and say what came of it on the CPU."""
    target = folder_of(converter) / f"{name_of(source)}.onnx"
    end, why = "", ""
    try:
        if convert is not None:
            with contextlib.redirect_stdout(sys.stderr):
                end = convert(source, target)
        elif not target.exists():
            why = target.with_suffix(".txt")
            return {"end": "does not convert", "why": why.read_text() if why.exists() else ""}
    except Exception as error:  # whatever a converter raises
        return {"end": "does not convert", "why": f"{type(error).__name__}: {error}"[:200]}
    try:
        Session(target).close()
    except GraphfixError as error:
        return {"end": "does not load", "why": str(error)[:200]}
    if not end:
        verdict = verify(
            source,
            target,
            tolerance=HALF_GATE,
            safety="valid-rows",
            may_change=("inputs", "dims"),
            locate=False,
        )
        end, why = (AGREES, "") if verdict.ok else ("is off", str(verdict)[:200])
    before, after = (
        sum(x.op_type == "Cast" for x in nodes_of(io.load(p).graph)) for p in (source, target)
    )
    return {
        "end": end,
        "why": why,
        "size": round(target.stat().st_size / source.stat().st_size, 3),
        "casts": after - before,
    }


def judge_there(converter: str, source: Path) -> str:
    """Run what was made on DirectML, at the longest and the shortest usual size."""
    verdict = verify(
        source,
        folder_of(converter) / f"{name_of(source)}.onnx",
        cases=extreme_cases(list(make_cases(io.load(source)))),
        tolerance=HALF_GATE,
        safety="valid-rows",
        may_change=("inputs", "dims"),
        ep="dml",
        locate=False,
    )
    return AGREES if verdict.ok else str(verdict)[:200]


def usable(sources: list[Path]) -> list[Path]:
    """The models that are float32 and load."""
    found = []
    for path in sources:
        with contextlib.suppress(GraphfixError):
            Session(path).close()
            if not computes_in_half(io.load(path)):
                found.append(path)
    return found


def table(results: dict[str, dict[str, Row]], given: int) -> str:
    """The results as Markdown."""
    count = max(len(rows) for rows in results.values())
    lines = [
        f"On {given} exports, of which {count} are float32 and load (onnxruntime "
        f"{onnxruntime.__version__}, CPU, defaults of each; on DirectML 1.24.4 with a software "
        "driver, what loads on the CPU, at the longest and the shortest usual size):",
        "",
        f"| converter | {' | '.join(ENDS)} | agrees on DirectML | size | Casts added |",
        "|" + "---|" * (len(ENDS) + 4),
    ]
    for name, rows in results.items():
        ends = Counter(str(x["end"]) for x in rows.values())
        there = [x["dml"] for x in rows.values() if "dml" in x]
        told = f"{sum(x == AGREES for x in there)} of {len(there)}" if there else "not run"
        size = statistics.median(float(str(x["size"])) for x in rows.values() if "size" in x)
        casts = statistics.median(int(str(x["casts"])) for x in rows.values() if "casts" in x)
        numbers = " | ".join(str(ends[x]) for x in ENDS)
        lines.append(f"| {name} | {numbers} | {told} | {size:.2f} | {casts:g} |")
    return "\n".join(lines)


def main() -> None:
    """Judge what has not been judged yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--ep", choices=["cpu", "dml"], default="cpu")
    parser.add_argument("--only", action="append", help="a converter")
    parser.add_argument("--olive", help="a Python that has olive-ai")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after")
    parser.add_argument("--page", action="store_true", help="write docs/float16.md and .json")
    given = parser.parse_args()
    results = {name: known(name) for name in CONVERTERS}
    sources = [] if given.page else usable(given.models)
    until = time.monotonic() + given.seconds
    for name, convert in CONVERTERS.items():
        if given.page or (given.only and name not in given.only):
            continue
        rows = results[name]
        if given.ep == "cpu" and convert is None:
            if given.olive is None:
                continue
            script = Path(__file__).with_name("float16_olive.py")
            into = [str(script), str(folder_of(name)), *map(str, sources)]
            if not rows:
                subprocess.run([given.olive, *into], check=True, stdout=sys.stderr)
        for source in sources:
            row = rows.get(name_of(source))
            if time.monotonic() > until:
                break
            if given.ep == "cpu" and row is None:
                rows[name_of(source)] = judge(name, convert, source)
            elif given.ep == "dml" and row is not None and "size" in row and "dml" not in row:
                row["dml"] = judge_there(name, source)
            else:
                continue
            state_of(name).write_text(json.dumps(rows, indent=1))
            print(name, name_of(source), rows[name_of(source)], file=sys.stderr, flush=True)
    text = table({k: results[k] for k in CONVERTERS if results.get(k)}, len(given.models))
    print(text)
    if given.page:
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")
        PAGE.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

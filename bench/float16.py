"""float16 side by side: what each converter makes of a folder of models, as a table.

    python bench/float16.py MODELS/*.onnx [--ep dml]

Each converter gets the same float32 exports and keeps inputs and outputs as they are. A result
agrees if it passes the gate of float16: 1e-2 of the largest element, a cosine of 0.9999. Models
that are not float32, or that ONNX Runtime does not load as they are, are left out and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from graphfix import job, pipeline
from graphfix.errors import GraphfixError
from graphfix.model import io
from graphfix.model.values import nodes_of
from graphfix.proof.compare import HALF_GATE, computes_in_half
from graphfix.proof.verify import verify
from graphfix.runtime.session import Session

Convert = Callable[[Path, Path], None]


@dataclass
class Row:
    """What one converter did, over all models."""

    counts: Counter[str] = field(default_factory=Counter)
    size: list[float] = field(default_factory=list)
    casts: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def common(source: Path, target: Path) -> None:
    """onnxconverter_common.float16, as the tutorials call it."""
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def transformers(source: Path, target: Path) -> None:
    """onnxruntime.transformers.float16."""
    from onnxruntime.transformers import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def olive(source: Path, target: Path) -> None:
    """Olive's OnnxFloatToFloat16."""
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.float16_conversion import OnnxFloatToFloat16

    made = create_pass_from_dict(OnnxFloatToFloat16, {"keep_io_types": True}, disable_search=True)
    result = made.run(ONNXModelHandler(str(source)), str(target.with_suffix("")))
    onnx.save(onnx.load(result.model_path), target)


def ours(spec: str) -> Convert:
    """What ``graphfix run -p SPEC`` makes."""

    def convert(source: Path, target: Path) -> None:
        report = job.repair_file(source, target, spec, kernels=False)
        if not report.ok:
            io.save(_converted(source, spec), target)

    return convert


def _converted(source: Path, spec: str):  # noqa: ANN202
    model = io.load(source)
    pipeline.run(model, spec)
    return model


CONVERTERS: dict[str, Convert] = {
    "onnxconverter_common": common,
    "onnxruntime.transformers": transformers,
    "Olive": olive,
    "graphfix -p float16": ours("float16"),
    "graphfix -p directml,float16": ours("directml,float16"),
}


def judge(row: Row, name: str, convert: Convert, source: Path, ep: str) -> None:
    """Convert one model and note what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "half.onnx"
        try:
            with contextlib.redirect_stdout(sys.stderr):
                convert(source, target)
        except Exception as error:  # whatever a converter raises
            row.counts["does not convert"] += 1
            row.failed.append(f"{source.name}: {type(error).__name__}")
            return
        try:
            Session(target).close()
        except GraphfixError as error:
            row.counts["does not load"] += 1
            row.failed.append(f"{source.name}: {str(error)[:100]}")
            return
        verdict = verify(
            source,
            target,
            tolerance=HALF_GATE,
            safety="valid-rows",
            may_change=("inputs", "dims"),
            locate=False,
        )
        row.counts["agrees" if verdict.ok else "is off"] += 1
        if not verdict.ok:
            row.failed.append(f"{source.name}: {str(verdict)[:100]}")
        if ep == "dml":
            there = verify(
                source, target, tolerance=HALF_GATE, ep="dml", locate=False, safety="valid-rows"
            )
            row.counts["runs and agrees on DirectML"] += there.ok
        row.size.append(target.stat().st_size / source.stat().st_size)
        before, after = (
            sum(x.op_type == "Cast" for x in nodes_of(io.load(p).graph)) for p in (source, target)
        )
        row.casts.append(after - before)


def main() -> None:
    """Print the table as Markdown; what failed goes to stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--ep", choices=["cpu", "dml"], default="cpu")
    parser.add_argument("--only", action="append", help="a converter")
    given = parser.parse_args()
    sources = []
    for path in given.models:
        try:
            Session(path).close()
            if not computes_in_half(io.load(path)):
                sources.append(path)
        except GraphfixError:
            pass
    chosen = {k: v for k, v in CONVERTERS.items() if not given.only or k in given.only}
    ends = ["does not convert", "does not load", "is off", "agrees"]
    ends += ["runs and agrees on DirectML"] if given.ep == "dml" else []
    print(f"{len(sources)} of {len(given.models)} models are float32 and load.\n")
    print(f"| converter | {' | '.join(ends)} | size | Casts added |")
    print("|" + "---|" * (len(ends) + 3))
    for name, convert in chosen.items():
        row = Row()
        for source in sources:
            judge(row, name, convert, source, given.ep)
        size = sorted(row.size)[len(row.size) // 2] if row.size else float("nan")
        casts = sorted(row.casts)[len(row.casts) // 2] if row.casts else 0
        numbers = " | ".join(str(row.counts[x]) for x in ends)
        print(f"| {name} | {numbers} | {size:.2f} | {casts} |", flush=True)
        for line in row.failed:
            print(f"{name}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

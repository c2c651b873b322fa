"""graphfix beside the tools that users would pick instead, over one set of exports.

    make compare GRAPHFIX_ZOO=folder
    python bench/side_by_side.py --zoo models --spec directml --spec fast --count 0 bert

The set: of the exports in the folders that ONNX Runtime loads on the CPU, ``--count`` are drawn at
random by ``--seed``. Each tool makes a file of each; kernels are predicted (``graphfix plan``), the
file is compared with the export (``graphfix verify``), run on DirectML if there is one, and timed
on the CPU, all files of a model alternately. Each step is a process of its own with a time limit
(``--limit``); one that crashes, hangs or refuses is a result. What is known of the same bytes,
tool, version and source of graphfix is not done again, so an interrupted run goes on where it was.

Writes ``docs/compare.json``, and from it ``docs/compare.md`` and the table of README, if no models
were named.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnxruntime
from peers import GRAPHFIX, PACKAGES, TOOLS
from side_by_side_page import into_readme, page
from steps import Said, Store, content, run, stop_all

from graphfix.benchmark.timing import Timing, compare_timings, time_ratio
from graphfix.engine.pipeline import resolve_passes
from graphfix.errors import UsageError
from graphfix.model_zoo.cache import hash_sources
from graphfix.runtime import process
from graphfix.runtime.python import find_python, has_provider, require_provider

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EXPORTED = "exported"
TURNS = 6
"""Processes that time the files of a model: the fewest of which an interval has 95 % confidence."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """What is done with each model.

    Attributes:
        store: What is known.
        tools: Tools by their label in the table.
        peers: The Python that has the other tools.
        versions: The version of each package there.
        seconds: The time limit of a step, for each file.
        dml: Whether to run on DirectML.
        on_device: Held by whoever runs on DirectML: one process at a time.
    """

    store: Store
    tools: dict[str, str]
    peers: Path
    versions: dict[str, str]
    seconds: float
    dml: bool
    on_device: threading.Lock = field(default_factory=threading.Lock)

    def study_model(self, name: str, export: Path) -> Json:
        """Return what is found of a model as exported and after each tool, without times."""
        results: dict[str, Json] = {}
        files: dict[str, Path] = {}
        for label, (path, why) in self._make_files(name, export):
            results[label] = {"made": not why, "why": why}
            if not why:
                files[label] = path
        for label, found in self._judge("cpu", export, files).items():
            results[label]["verify"] = found["run"]
            results[label]["plan"] = found.get("plan", {"kernels": None, "why": ""})
        if self.dml:
            with self.on_device:
                for label, found in self._judge("dml", export, files).items():
                    results[label]["dml"] = found["run"]
        return {"name": name, "tools": results}

    def add_times(self, export: Path, row: Json) -> None:
        """Time all files of a model that are right, alternately; a copy of the export with them."""
        results: dict[str, Json] = row["tools"]
        right = {
            label: self.file_of(row["name"], label, export)
            for label, result in results.items()
            if result["made"] and result["verify"]["ok"]
        }
        if EXPORTED not in right:
            return
        marks = ["time", *map(content, right.values()), runtime(), hash_script("clock.py")]
        times = self.store.get(marks, lambda: self._time(export, right))
        for label, found in zip((*right, "copy"), times["files"], strict=False):
            (row if label == "copy" else results[label])["copy" if label == "copy" else "time"] = (
                found
            )
        row["untimed"] = times["why"]

    def file_of(self, name: str, label: str, export: Path) -> Path:
        """Return where the file of a tool is."""
        return export if label == EXPORTED else self.store.made(f"{name}.{label}.onnx")

    def _make_files(self, name: str, export: Path) -> Iterator[tuple[str, tuple[Path, str]]]:
        yield EXPORTED, (export, "")
        for label, tool in self.tools.items():
            target = self.file_of(name, label, export)
            marks = ["make", content(export), tool, self._stamp(tool)]

            def make(tool: str = tool, target: Path = target) -> Json:
                for old in (target, target.with_name(f"{target.name}.data")):
                    old.unlink(missing_ok=True)
                python = sys.executable if tool.startswith(GRAPHFIX) else str(self.peers)
                script = str(HERE / "peers.py")
                said = run([python, "-P", script, tool, str(export), str(target)], self.seconds)
                if not said.why and not target.is_file():
                    return {"why": "it wrote no file"}
                return {"why": said.why, "made": "" if said.why else content(target)}

            made = self.store.get(marks, make)
            if not made["why"] and (not target.is_file() or content(target) != made["made"]):
                made = make()  # somebody has tidied up
            yield label, (target, made["why"])

    def _judge(self, ep: str, export: Path, files: dict[str, Path]) -> dict[str, Json]:
        """Return what judge.py says of each file; what is not known yet, by one process."""
        before = [ep, content(export), runtime(), hash_sources(), hash_script("judge.py")]
        marks = {label: [*before, content(path)] for label, path in files.items()}
        while unknown := [x for x in files if not self.store.knows(marks[x])]:
            command = [sys.executable, str(HERE / "judge.py"), ep, str(export)]
            said = run([*command, *(str(files[x]) for x in unknown)], self.seconds * len(unknown))
            told = [json.loads(line) for line in said.out.splitlines()]
            if len(told) < len(unknown):  # the first of which it says nothing has ended it
                told.append({"run": {"ok": False, "runs": False, "worst": None, "why": said.why}})
            for label, found in zip(unknown, told, strict=False):
                self.store.put(marks[label], found)
        return {label: self.store.get(marks[label], dict) for label in files}

    def _time(self, export: Path, files: dict[str, Path]) -> Json:
        """Return the time of each file relative to the export's; of a copy of the export last."""
        feeds = self.store.made(f"{export.stem}.feeds.npz")
        said = self._clock("feeds", str(export), str(feeds))
        processes: list[list[list[float]]] = []
        paths = [*map(str, files.values()), str(export)]
        for turn in range(TURNS):
            if not said.why:
                said = self._clock("runs", str(feeds), str(turn), *paths, files=len(paths))
            if said.why:
                return {"files": [], "why": said.why}
            processes.append(json.loads(said.out))
        feeds.unlink()
        timings = [Timing(tuple(map(tuple, runs))) for runs in zip(*processes, strict=True)]
        base, copy = timings[list(files).index(EXPORTED)], timings[-1]
        return {"files": [_ratio(x, base, copy) for x in timings], "why": ""}

    def _clock(self, *arguments: str, files: int = 1) -> Said:
        return run([sys.executable, str(HERE / "clock.py"), *arguments], self.seconds * files)

    def _stamp(self, tool: str) -> str:
        """Return what a tool's result depends on besides the model."""
        if tool.startswith(GRAPHFIX):
            return hash_sources()
        return f"{self.versions[PACKAGES[tool]]} {hash_script('peers.py')}"


def _ratio(own: Timing, base: Timing, copy: Timing) -> Json:
    """Return a time relative to the export's, and whether the clock tells the two apart."""
    ratio, claim = time_ratio(own, base), compare_timings(own, base, copy)
    assert ratio is not None
    sure = claim.ratio is not None
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high, "sure": sure}


def hash_script(name: str) -> str:
    """Return a hash of a script of this folder."""
    return hashlib.sha256((HERE / name).read_bytes()).hexdigest()


def runtime() -> str:
    """Return the ONNX Runtime that predicts, compares and times."""
    # Its own word, as the package has other names: on Windows onnxruntime-directml.
    return f"onnxruntime {onnxruntime.__version__} {platform.machine()}"


def models_in(folder: Path) -> dict[str, Path]:
    """Return the exports of a folder, in it or one level down, by name."""
    models = {x.stem: x for x in folder.glob("*.onnx")}
    for path in folder.glob("*/*.onnx"):
        if not path.name.endswith(".fixed.onnx"):
            models[path.parent.name if path.stem == "model" else path.stem] = path
    return dict(sorted(models.items()))


def reason_not_to_load(path: Path) -> str:
    """Return why ONNX Runtime does not load a file on the CPU; empty if it does."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions have no common base
        return str(error)
    return ""


def draw(models: dict[str, Path], count: int, seed: int) -> tuple[list[str], Json]:
    """Return the names of the set, and of how many it was drawn.

    Args:
        models: All exports by name.
        count: How many to draw; 0 for all.
        seed: The same seed draws the same models.
    """
    reasons = {name: reason_not_to_load(path) for name, path in models.items()}
    loaded = sorted(name for name, why in reasons.items() if not why)
    names = loaded
    if 0 < count < len(loaded):
        names = sorted(random.Random(seed).sample(loaded, count))
    broken = sorted(set(models) - set(loaded))
    return names, {"of": len(loaded), "seed": seed, "do_not_load": broken}


def peer_versions(peers: Path) -> dict[str, str]:
    """Return the version of each package that the Python of the other tools has."""
    if not peers.is_file():
        return {}
    said = run([str(peers), "-P", str(HERE / "peers.py"), "--versions"], 60)
    versions: dict[str, str] = json.loads(said.out) if not said.why else {}
    return versions


def choose_tools(specs: Sequence[str], versions: dict[str, str]) -> dict[str, str]:
    """Return the tools by their label, graphfix's specs last; say which are unavailable."""
    tools = {}
    for name, label in TOOLS.items():
        if PACKAGES[name] in versions:
            tools[label] = name
        else:
            print(f"{label} is skipped: make compare installs it in build/peers", file=sys.stderr)
    for given in specs:
        label, _, spec = given.partition("=")
        try:
            resolve_passes(spec or label)
        except UsageError as error:
            print(f"graphfix {given} is skipped: {error}", file=sys.stderr)
        else:
            tools[f"graphfix {label}"] = GRAPHFIX + (spec or label)
    return tools


class Progress:
    """Says how far a stage is, and about how long it still takes."""

    def __init__(self, stage: str, count: int) -> None:
        self._stage, self._count, self._done = stage, count, 0
        self._start = time.monotonic()

    def tell(self, name: str) -> None:
        """Say that one more is done."""
        self._done += 1
        left = (time.monotonic() - self._start) / self._done * (self._count - self._done)
        print(
            f"{self._stage} {self._done}/{self._count} {name}, about {left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


def study_all(study: Study, models: dict[str, Path], workers: int, *, timed: bool) -> list[Json]:
    """Return the rows of all models; times are taken last, one model at a time."""
    progress = Progress("judged", len(models))

    def study_one(name: str) -> Json:
        row = study.study_model(name, models[name])
        progress.tell(name)
        return row

    with ThreadPoolExecutor(workers) as pool:
        try:
            rows = list(pool.map(study_one, models))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise
    progress = Progress("timed", len(models))
    for row in rows if timed else ():
        study.add_times(models[row["name"]], row)
        progress.tell(row["name"])
    return rows


def directml_version() -> str:
    """Return the version of ONNX Runtime that has DirectML here; empty, and said, if none has."""
    try:
        require_provider("dml")
    except UsageError as error:
        print(f"not run on DirectML: {error}", file=sys.stderr)
        return ""
    if has_provider("dml"):
        return onnxruntime.__version__
    try:
        return str(process.worker_for(find_python("dml")).about["onnxruntime"])
    finally:
        process.stop_all()  # one process at a time is on the device


def _default_folders() -> list[Path]:
    zoo = os.environ.get("GRAPHFIX_ZOO")
    return [*([Path(zoo) / "models"] if zoo else []), ROOT / "models"]


def main(argv: Sequence[str] | None = None) -> int:
    """Do what is not known yet, and write what it comes to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="models of the folders, instead of a drawn set")
    parser.add_argument("--zoo", type=Path, action="append", help="a folder of exports, or several")
    parser.add_argument("--count", type=int, default=40, help="how many to draw; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    parser.add_argument("--spec", action="append", help="NAME or NAME=PASSES of graphfix")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a step for each file")
    parser.add_argument("--no-time", action="store_true", help="do not time them")
    parser.add_argument("--no-dml", action="store_true", help="do not run them on DirectML")
    parser.add_argument("--workers", type=int, default=2, help="models at a time, except for times")
    scripts = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    parser.add_argument("--peers", type=Path, default=ROOT / "build" / "peers" / scripts)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "compare")
    parser.add_argument("--out", type=Path, default=ROOT, help="where docs/ and README.md are")
    options = parser.parse_args(argv)
    folders = options.zoo or _default_folders()
    models = {name: path for x in folders for name, path in models_in(x).items()}
    if unknown := [x for x in options.names if x not in models]:
        print(f"{', '.join(map(str, folders))}: no {', '.join(unknown)}", file=sys.stderr)
        return 2
    dml = "" if options.no_dml else directml_version()
    versions = peer_versions(options.peers)
    tools = choose_tools(options.spec or ["directml", "fast"], versions)
    names, drawn = draw(models, options.count, options.seed)
    names = options.names or names
    study = Study(Store(options.work), tools, options.peers, versions, options.limit, bool(dml))
    chosen = {name: models[name] for name in names}
    rows = study_all(study, chosen, options.workers, timed=not options.no_time)
    used = [PACKAGES[x] for x in tools.values() if x in PACKAGES]
    data = {
        "schema": 2,
        "with": {"graphfix": version("graphfix"), **{x: versions[x] for x in used}},
        "onnxruntime": onnxruntime.__version__,
        "machine": f"{os.cpu_count()} x {platform.machine()}, {platform.system()}",
        "limit": options.limit,
        "drawn": drawn,
        "tools": [EXPORTED, *tools],
        "dml": dml,
        "rows": json.loads(json.dumps(rows).replace(f"{options.work / 'made'}{os.sep}", "")),
    }
    print(page(data))
    if not options.names:
        write_results(data, options.out)
    return 0


def write_results(data: Json, root: Path) -> None:
    """Write the result, its page and the table of README."""
    docs = root / "docs"
    docs.mkdir(parents=True, exist_ok=True)
    texts = {
        docs / "compare.json": json.dumps(data, indent=1) + "\n",
        docs / "compare.md": page(data),
    }
    if (readme := root / "README.md").is_file():
        texts[readme] = into_readme(readme.read_text(encoding="utf-8"), data)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main())

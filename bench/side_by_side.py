"""graphfix beside the tools that users would pick instead, over a folder of exports.

    make compare COMPARE="--zoo FOLDER"
    python bench/side_by_side.py --zoo models --spec directml --spec fast --no-time bert

What each tool makes of each model is counted (``graphfix plan``), held to the export
(``graphfix verify``), run on DirectML if there is one, and timed on the CPU, all files of a model
side by side (``graphfix bench``). Each step is a process of its own with a time limit; one that
crashes, hangs or refuses is a result. What was found for the same bytes, tool and version is not
done again, so it can be stopped at any time and goes on where it was; with ``--keep`` also what an
earlier source of graphfix found of the same bytes. On DirectML a model runs at the longest and the
shortest usual size. Writes ``docs/compare.json`` and ``docs/compare.md``, if all of the folder was
asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from peers import GRAPHFIX, PACKAGES, TOOLS
from side_by_side_page import page
from steps import Store, content, run

from graphfix.engine.pipeline import resolve_passes
from graphfix.errors import UsageError
from graphfix.model_zoo.cache import hash_sources
from graphfix.runtime.python import require_provider
from graphfix.spec.quoting import quote_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EXPORTED = "exported"
SECONDS = 600.0
TIMING_SECONDS = 3600.0

Json = dict[str, Any]
_CLI = [sys.executable, "-c", "import sys; from graphfix.cli import main; sys.exit(main())"]


@dataclass(frozen=True)
class Study:
    """What is done with each model.

    Attributes:
        store: What is known.
        tools: Tools by what they are called in the table.
        dml: Whether to run on DirectML.
        effort: Options for ``graphfix bench``; None if nothing is timed.
    """

    store: Store
    tools: dict[str, str]
    dml: bool
    effort: tuple[str, ...] | None

    def row(self, name: str, source: Path, *, timed: bool = True, there: bool = True) -> Json:
        """One model as exported and after each tool.

        Args:
            name: What it is called.
            source: The export.
            timed: Whether this one is timed, if any is.
            there: Whether this one is run on DirectML, if any is.
        """
        files = dict(self._files(name, source))
        found: Json = {"name": name, "tools": {}}
        for label, (path, why) in files.items():
            found["tools"][label] = (
                {"made": False, "why": why} if why else self._judged(source, path)
            )
        if there and self.dml:
            made = {label: path for label, (path, why) in files.items() if not why}
            for label, one in self._there(source, made).items():
                found["tools"][label]["dml"] = one
        same = {
            label: path
            for label, (path, why) in files.items()
            if not why and found["tools"][label]["verify"]["ok"]
        }
        if timed and self.effort is not None and EXPORTED in same and len(same) > 1:
            self._time(same, found["tools"])
        return found

    def _files(self, name: str, source: Path) -> Iterator[tuple[str, tuple[Path, str]]]:
        yield EXPORTED, (source, "")
        for label, tool in self.tools.items():
            target = self.store.made(f"{name}.{label}.onnx")
            marks = [content(source), tool, stamp(tool)]

            def make(tool: str = tool, target: Path = target) -> Json:
                for old in (target, target.with_name(f"{target.name}.data")):
                    old.unlink(missing_ok=True)
                command = [
                    sys.executable,
                    "-P",
                    str(HERE / "peers.py"),
                    tool,
                    str(source),
                    str(target),
                ]
                said = run(command, SECONDS)
                if not said.why and not target.is_file():
                    return {"why": "it wrote no file"}
                return {"why": said.why, "made": "" if said.why else content(target)}

            made = self.store.get(["make", *marks], make)
            if not made["why"] and (not target.is_file() or content(target) != made["made"]):
                made = make()  # somebody has tidied up
            yield label, (target, made["why"])

    def _judged(self, source: Path, path: Path) -> Json:
        """Counts of a file, and whether it computes what the export does."""
        marks = [content(source), content(path), runtime()]
        found: Json = {"made": True}

        def planned() -> Json:
            said = run([*_CLI, "plan", str(path), "--json"], SECONDS)
            if said.why:
                return {"kernels": None, "why": said.why}
            plan = json.loads(said.out)["plan"]
            took, sizes = plan["run"], _usual(path, plan["open"])
            said = run([*_CLI, "plan", str(path), "--json", *sizes], SECONDS) if sizes else said
            found = {} if said.why else json.loads(said.out)["plan"]["nodes"]
            inside = sum(found[x] for x in ("fused", "dml", "cpu")) if found else None
            kernels = {"kernels": took["dispatches"], "recompiled": took["recompiled"]}
            return {**kernels, "inside": inside, "why": ""}

        def counted() -> Json:
            said = run([sys.executable, str(HERE / "peers.py"), "--attentions", str(path)], SECONDS)
            counts: Json = {"why": said.why} if said.why else json.loads(said.out)
            return counts

        judge = hash_sources()
        found["plan"] = self.store.get(["plan", *marks], planned, judge)
        found["attentions"] = self.store.get(["attentions", *marks], counted, judge)
        found["verify"] = self.store.get(["cpu", *marks], lambda: verified(source, path), judge)
        return found

    def _there(self, source: Path, files: dict[str, Path]) -> dict[str, Json]:
        """Each file on DirectML; those that are not known yet in one process."""
        marks = {
            label: ["dml", content(source), content(path), runtime()]
            for label, path in files.items()
        }
        judge = hash_sources()
        while new := [x for x in files if not self.store.knows(marks[x], judge)]:
            command = [sys.executable, str(HERE / "on_directml.py"), str(source)]
            said = run([*command, *(str(files[x]) for x in new)], SECONDS * len(new))
            told = [json.loads(line) for line in said.out.splitlines()]
            if len(told) < len(new):  # the first that it does not tell of has ended it
                told.append({"ok": False, "runs": False, "worst": None, "why": said.why})
            for label, found in zip(new, told, strict=False):
                self.store.put(marks[label], found, judge)
        return {label: self.store.get(marks[label], dict, judge) for label in files}

    def _time(self, files: dict[str, Path], found: Json) -> None:
        """All files of a model side by side; those that are right."""
        assert self.effort is not None
        command = [*_CLI, "bench", *map(str, files.values()), "--ep", "cpu", "--no-fixed", "--json"]
        command += self.effort

        def timed() -> Json:
            said = run(command, TIMING_SECONDS)
            with contextlib.suppress(ValueError):
                data = json.loads(said.out)
                setups = [next(iter(x["setups"].values()), {}) for x in data["models"]]
                return {"models": [_kept(x) for x in setups], "why": ""}
            return {"models": [], "why": said.why or "it wrote no JSON"}

        marks = [*map(content, files.values()), runtime(), *self.effort]
        done = self.store.get(["time", *marks], timed)
        for label, one in zip(files, done["models"], strict=False):
            found[label]["time"] = one
        found[EXPORTED].setdefault("time", {"why": done["why"]})


def _usual(path: Path, names: Sequence[str]) -> list[str]:
    """Options for ``graphfix plan``: one row, and 512 of every other dim of these names."""
    inputs = onnx.load(path, load_external_data=False).graph.input
    rows = {x.type.tensor_type.shape.dim[0].dim_param for x in inputs if _rank(x) > 1}
    return [y for x in names for y in ("--dims", f"{quote_name(x)}={1 if x in rows else 512}")]


def _rank(value: onnx.ValueInfoProto) -> int:
    return len(value.type.tensor_type.shape.dim)


def _kept(setup: Json) -> Json:
    phases, ratios = setup.get("phases", {}), setup.get("ratios", {})
    steady = {k: v for k, v in phases.get("steady", {}).items() if k != "all_ms"}
    return {
        "steady": steady,
        "ratio": ratios.get("steady"),
        "copy": setup.get("copy", {}).get("steady"),
        "why": setup.get("error", ""),
    }


def verified(source: Path, path: Path) -> Json:
    """What ``graphfix verify`` says of a file beside the export."""
    said = run([*_CLI, "verify", str(source), str(path), "--json"], SECONDS)
    if said.code not in (0, 1):
        return {"ok": False, "runs": False, "worst": None, "why": said.why}
    try:
        verdict = json.loads(said.out)
    except ValueError:
        return {"ok": False, "runs": False, "worst": None, "why": said.why or "it wrote no JSON"}
    worst = verdict["worst"]
    return {
        "ok": verdict["ok"],
        "runs": not verdict["reason"],
        "worst": None if worst is None else worst["max_abs"],
        "why": "" if verdict["ok"] else verdict["reason"] or verdict["summary"],
    }


def stamp(tool: str) -> str:
    """What a tool's result depends on, the model left aside."""
    if tool.startswith(GRAPHFIX):
        return hash_sources()
    how = hashlib.sha256((HERE / "peers.py").read_bytes()).hexdigest()
    return f"{version(PACKAGES[tool])} {how}"


def runtime() -> str:
    """The ONNX Runtime that counts, verifies and times."""
    # Its own word, as the package has other names: on Windows onnxruntime-directml.
    return f"onnxruntime {onnxruntime.__version__} {platform.machine()}"


def models_in(folder: Path) -> dict[str, Path]:
    """The exports of a folder, in it or one level down, by name."""
    found = {x.stem: x for x in folder.glob("*.onnx")}
    for path in folder.glob("*/*.onnx"):
        if not path.name.endswith(".fixed.onnx"):
            found[path.parent.name if path.stem == "model" else path.stem] = path
    return dict(sorted(found.items()))


def versions(tools: Sequence[str]) -> dict[str, str]:
    """What it was measured with."""
    found = {"graphfix": version("graphfix"), "onnxruntime": onnxruntime.__version__}
    return found | {name: version(name) for name in (PACKAGES[x] for x in tools if x in PACKAGES)}


def _tools(specs: Sequence[str], names: Sequence[str] | None) -> dict[str, str]:
    """The tools by their label, graphfix's specs last; those that are unavailable are said."""
    found = {}
    for name in TOOLS if names is None else names:
        try:
            version(PACKAGES[name])
            found[TOOLS[name]] = name
        except PackageNotFoundError:
            print(f"{name} is left out: pip install {PACKAGES[name]}", file=sys.stderr)
    for given in specs:
        label, _, spec = given.partition("=")
        try:
            resolve_passes(spec or label)
        except UsageError as error:
            print(f"graphfix {given} is left out: {error}", file=sys.stderr)
        else:
            found[f"graphfix {label}"] = GRAPHFIX + (spec or label)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Do what is not known yet, and write what it comes to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="models of the folder; all by default")
    parser.add_argument("--zoo", type=Path, action="append", help="a folder of exports, or several")
    parser.add_argument("--spec", action="append", help="NAME or NAME=PASSES of graphfix")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="all by default")
    parser.add_argument("--no-time", action="store_true", help="do not time them")
    parser.add_argument("--time-every", type=int, default=1, metavar="N", help="time each N-th")
    parser.add_argument("--dml-every", type=int, default=1, metavar="N", help="run each N-th there")
    parser.add_argument("--no-dml", action="store_true", help="do not run them on DirectML")
    parser.add_argument("--keep", action="store_true", help="what an earlier source found holds")
    parser.add_argument("--processes", default="9", help="of each file; see graphfix bench")
    parser.add_argument("--seconds", default="0.25", help="of steady runs in each")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "compare")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="the folder of the result")
    given = parser.parse_args(argv)
    folders = given.zoo or [ROOT / "models"]
    models = {name: path for x in folders for name, path in models_in(x).items()}
    if unknown := [x for x in given.names if x not in models]:
        print(f"{', '.join(map(str, folders))}: no {', '.join(unknown)}", file=sys.stderr)
        return 2
    dml = not given.no_dml
    if dml:
        try:
            require_provider("dml")
        except UsageError as error:
            print(f"not run on DirectML: {error}", file=sys.stderr)
            dml = False
    tools = _tools(given.spec or ["directml", "fast"], given.tool)
    effort = None if given.no_time else ("--processes", given.processes, "--seconds", given.seconds)
    study = Study(Store(given.work, keep=given.keep), tools, dml, effort)
    rows = []
    for i, name in enumerate(given.names or models):
        print(f"{i + 1}/{len(given.names or models)} {name}", file=sys.stderr, flush=True)
        timed, there = i % given.time_every == 0, i % given.dml_every == 0
        rows.append(study.row(name, models[name], timed=timed, there=there))
    data = {
        "schema": 1,
        "with": versions(list(tools.values())),
        "machine": f"{os.cpu_count()} x {platform.machine()}, {platform.system()}",
        "tools": [EXPORTED, *tools],
        "dml": dml,
        "kept": given.keep,
        "rows": json.loads(json.dumps(rows).replace(f"{given.work / 'made'}{os.sep}", "")),
    }
    text = page(data)
    print(text)
    if not given.names:
        given.out.mkdir(parents=True, exist_ok=True)
        written = json.dumps(data, indent=1) + "\n"
        (given.out / "compare.json").write_text(written, encoding="utf-8", newline="\n")
        (given.out / "compare.md").write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

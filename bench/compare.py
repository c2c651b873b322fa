"""graphfix beside its peers on gigabytes: time and memory, written into docs/benchmarks.md.

    make bench
    python bench/compare.py --work FOLDER --only 1g-external --tools graphfix,onnxslim

Each run is a process of its own, imports included. Its time is the wall clock and, since a machine
is seldom idle, the processor's; its peak of memory is what the kernel counted for it and for what
it started. A run is repeated five times, or three if it takes over 10 seconds, or not at all over
40 seconds. Runs of the tools take turns. A run is stopped after five minutes of processor time, or
when it asks for more private memory than --memory allows; both are results.
"""

# This module imports nothing big: a process that is forked from it starts with its peak.
from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
TURNS = 5
LAYERS = 95

_PYTHON = str(BIN / "python")
_OPTIMIZE = """
import sys, onnx_ir as ir, onnxscript.optimizer
model = ir.load(sys.argv[1])
onnxscript.optimizer.optimize(model)
ir.save(model, sys.argv[2])
"""
_ONNXOPTIMIZER = """
import sys, onnx, onnxoptimizer
model = onnxoptimizer.optimize(onnx.load(sys.argv[1]))
onnx.save(model, sys.argv[2], save_as_external_data=bool(sys.argv[3:]))
"""
_COPY = """
import os, shutil, sys
shutil.copyfile(sys.argv[1], sys.argv[2])
os.fsync(os.open(sys.argv[2], os.O_RDONLY))
"""

# The command of each tool; what follows "external" is added where the weights lie outside.
TOOLS: dict[str, tuple[list[str], list[str]]] = {
    "graphfix": ([str(BIN / "graphfix"), "run", "IN", "-o", "OUT", "--no-verify"], []),
    "onnxscript": ([_PYTHON, "-c", _OPTIMIZE, "IN", "OUT"], []),
    "onnxslim": ([str(BIN / "onnxslim"), "IN", "OUT"], ["--save-as-external-data"]),
    "onnxsim": ([str(BIN / "onnxsim"), "IN", "OUT"], ["--save-as-external-data"]),
    "onnxoptimizer": ([_PYTHON, "-c", _ONNXOPTIMIZER, "IN", "OUT"], ["external"]),
    "polygraphy": (
        [str(BIN / "polygraphy"), "surgeon", "sanitize", "--fold-constants", "IN", "-o", "OUT"],
        ["--save-external-data", "out.onnx.data"],
    ),
    "copy": ([_PYTHON, "-c", _COPY, "IN", "OUT"], []),
}
NAMES = {
    "onnxscript": "onnxscript.optimize",
    "polygraphy": "polygraphy sanitize",
    "copy": "copying the file",
}
MODELS = {
    "1g-external": ("0.9 GB beside the model", ["--width", "448"]),
    "1g-inline": ("0.9 GB inside the model", ["--width", "448", "--inline"]),
    "4g-external": ("4 GB beside the model", ["--width", "944"]),
}
GROWING = ("graphfix",)
GROWTH = {10_000: 95, 30_000: 285, 100_000: 950}


@dataclass
class Runs:
    """What was measured of one tool on one model.

    Attributes:
        wall: Seconds by the clock, by run.
        cpu: Seconds of all its processors, by run.
        peak: MB of memory, by run.
        failed: Why there is no result, if there is none.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)
    failed: str = ""

    @property
    def wanted(self) -> int:
        """How often to run it."""
        if self.failed:
            return 0
        first = self.wall[0] if self.wall else 0.0
        return 5 if first < 10 else 3 if first < 40 else 1


def measure(command: list[str], runs: Runs, log: Path, memory: int, seconds: int) -> None:
    """Run a command and add what it took to ``runs``."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    # As on a user's machine, where Python keeps what it has compiled.
    usual = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=usual, preexec_fn=limit)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode == -signal.SIGKILL or process.returncode == -signal.SIGXCPU:
        runs.failed = f"stopped after {seconds} s of processor time"
    elif process.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()
        # Who dies for want of memory may have no time for a word.
        said = [line for line in lines if "Error" in line]
        why = said[-1][:70] if said else f"died at {used.ru_maxrss * 1024 / 1e9:.0f} GB of memory"
        known = ("MemoryError", "bad_alloc", "Unable to allocate", "Cannot allocate", "ENOMEM")
        if any(x in line for line in lines for x in known):
            why = f"asked for over {memory / 1e9:.0f} GB of memory"
        runs.failed = why
    runs.wall.append(time.perf_counter() - start)
    runs.cpu.append(used.ru_utime + used.ru_stime)
    runs.peak.append(used.ru_maxrss * 1024 / 1e6)


def compare(model: Path, tools: list[str], memory: int, seconds: int) -> dict[str, Runs]:
    """Every tool on one model, alternately."""
    results = {tool: Runs() for tool in tools}
    out = model.with_name("out.onnx")
    for turn in range(TURNS):
        for tool, runs in results.items():
            if turn >= runs.wanted:
                continue
            command, more = TOOLS[tool]
            outside = model.with_name(f"{model.name}.data").exists()
            names = {"IN": str(model), "OUT": str(out)}
            given = [names.get(x, x) for x in (*command, *(more if outside else []))]
            log = model.with_name(f"{model.stem}.{tool}.log")
            log.touch()
            before = {*model.parent.iterdir()}
            measure(given, runs, log, memory, seconds)
            for left in {*model.parent.iterdir()} - before:
                left.unlink()
            told = runs.failed or f"{runs.wall[-1]:.1f} s, {runs.peak[-1]:,.0f} MB"
            print(f"  {model.stem} {tool} {turn + 1}: {told}", flush=True)
    return results


def one(name: str, tools: list[str], given: argparse.Namespace) -> dict[str, Runs]:
    """The tools on one of MODELS."""
    model = given.work / f"{name}.onnx"
    synthesize(model, "--layers", str(LAYERS), *MODELS[name][1])
    mine = [x for x in tools if x != "copy" or "inline" in name]
    found = compare(model, mine, int(given.memory * 1e9), given.seconds)
    for left in (model, given.work / f"{model.name}.data"):
        left.unlink(missing_ok=True)
    return found


def grow(tools: list[str], given: argparse.Namespace) -> dict[str, dict[str, Runs]]:
    """The same graph with ten times the layers, and hardly any weights."""
    found = {}
    for count, layers in GROWTH.items():
        model = given.work / f"{count}.onnx"
        synthesize(model, "--layers", str(layers), "--width", "16")
        mine = [x for x in tools if x in GROWING]
        found[str(count)] = compare(model, mine, int(given.memory * 1e9), given.seconds)
    return found


def synthesize(path: Path, *options: str) -> None:
    """Write a model, in a process of its own."""
    subprocess.run([_PYTHON, str(HERE / "synth.py"), str(path), *options], check=True)


def machine() -> str:
    """What it was measured on, in a line."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        name = found[0].partition(": ")[2] if found else name
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {name}, {memory:.0f} GiB, Python {platform.python_version()}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="for the models")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs")
    parser.add_argument("--only", default=",".join([*MODELS, "growth"]))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--memory", type=float, default=12.0, help="GB that a run may ask for")
    # Of processor time: a busy machine must not decide who finishes.
    parser.add_argument("--seconds", type=int, default=300, help="that a run may take")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    tools, only = given.tools.split(","), given.only.split(",")
    load = os.getloadavg()[0]
    found: dict[str, dict[str, Runs]] = {}
    for name in only:
        found |= grow(tools, given) if name == "growth" else {name: one(name, tools, given)}
        save(given, found, load)
    results = str(given.work / "results.json")
    subprocess.run([_PYTHON, str(HERE / "page.py"), results, str(given.docs)], check=True)


def save(given: argparse.Namespace, found: dict[str, dict[str, Runs]], load: float) -> None:
    """Write what is known so far."""
    packages = ("graphfix", "onnxslim", "onnxsim", "onnxscript", "onnxoptimizer", "polygraphy")
    told: dict[str, Any] = {
        "machine": machine(),
        "load": [load, os.getloadavg()[0]],
        "memory": given.memory,
        "seconds": given.seconds,
        "versions": {name: version(name) for name in packages},
        "runs": {
            model: {tool: asdict(runs) | {"median": _medians(runs)} for tool, runs in by.items()}
            for model, by in found.items()
        },
    }
    file = given.work / "results.json"
    if file.exists():  # what --only and --tools leave out stays as it was measured before
        for model, by in json.loads(file.read_text())["runs"].items():
            told["runs"][model] = by | told["runs"].get(model, {})
    file.write_text(json.dumps(told, indent=1) + "\n")


def _medians(runs: Runs) -> dict[str, float]:
    return {name: statistics.median(getattr(runs, name)) for name in ("wall", "cpu", "peak")}


if __name__ == "__main__":
    main()

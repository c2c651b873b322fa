"""What each rule pays for its lines: on how many real models it fires, and what is lost without it.

Run as ``python bench/rent.py [--zoo FOLDER ...]``, or ``make rent``. Each model goes through the
profiles, ``ilens-mask``, ``check`` and ``plan``, and every tenth through the whole job (``run``
with its proof, ``float16``, ``padded``, ``ship``), while coverage counts the statements that run.
A pass that fires is left out of ``fast`` on up to three of its models, and the kernels are counted
again. Writes ``docs/rent.md``.

Lines that ran on no model are no verdict: an error has to be said on models that are not here.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import os
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
ZOO = Path(os.environ.get("GRAPHFIX_ZOO", ROOT.parent / "shared" / "zoo")) / "models"
SPECS = ("directml", "fast", "directml,ilens-mask", "thaw")
TRIED = 3
WORDS = 160
NOT_CALLED = (
    "graphfix/cli",
    "graphfix/zoo",
    "graphfix/show",
    "graphfix/benchmark",
    "graphfix/runtime",
)
PAGE = ROOT / "docs" / "rent.md"


@dataclass
class File:
    """A file of the package: its statements, and the models on which they ran.

    Attributes:
        body: The lines of statements inside functions, docstrings aside.
        ran: The models on which each line ran.
    """

    path: str
    body: frozenset[int]
    ran: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def models(self) -> set[str]:
        """The models on which any statement ran."""
        return set().union(*self.ran.values())


@dataclass
class Fired:
    """A pass: its changes on each model, and the kernels of models that went through without it."""

    changes: Counter[str] = field(default_factory=Counter)
    with_it: int = 0
    without: int = 0
    tried: int = 0


def statements(path: Path) -> frozenset[int]:
    """The first lines of the statements that are inside a function."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            body = function.body[ast.get_docstring(function) is not None :]
            inside = (x for statement in body for x in ast.walk(statement))
            found |= {x.lineno for x in inside if isinstance(x, ast.stmt)}
    return frozenset(found)


class Ledger:
    """What ran, by file, and what fired, by pass."""

    def __init__(self) -> None:
        folders = (ROOT / "graphfix", ROOT / "passes")
        paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
        self.files = {
            str(path): File(path.relative_to(ROOT).as_posix(), statements(path)) for path in paths
        }
        self.passes: defaultdict[str, Fired] = defaultdict(Fired)
        self.failed: list[str] = []
        source = [str(x) for x in folders]
        self._coverage = coverage.Coverage(data_file=None, source=source, config_file=False)

    @contextlib.contextmanager
    def watch(self, model: str) -> Iterator[None]:
        """Note which statements run for a model; what it raises is noted and goes no further."""
        self._coverage.start()
        try:
            yield
        except Exception as error:
            self.failed.append(f"{model}: {error}")
        finally:
            self._coverage.stop()
        data = self._coverage.get_data()
        for path in data.measured_files():
            for line in self.files[path].body & set(data.lines(path) or ()):
                self.files[path].ran[line].add(model)
        self._coverage.erase()


def name_of(path: Path) -> str:
    """What a model is called: by its file, or by its folder in models/."""
    return path.stem if path.stem != "model" else path.parent.name


def look(path: Path, ledger: Ledger) -> None:
    """The profiles, ``check`` and ``plan`` of a model; nothing is run."""
    import graphfix
    from graphfix.job import planning

    name = name_of(path)
    for spec in SPECS:
        with ledger.watch(name):
            model = graphfix.load(path)
            for done in graphfix.run(model, spec).passes:
                if done.changes:
                    ledger.passes[done.name].changes[name] += len(done.changes)
            with tempfile.TemporaryDirectory() as folder:
                graphfix.save(model, Path(folder) / "model.onnx")
    with ledger.watch(name):
        graphfix.check(graphfix.load(path))
    with ledger.watch(name):
        planning.plan(graphfix.load(path))


def work(path: Path, ledger: Ledger) -> None:
    """The whole job on a model, with its proof."""
    import graphfix
    from graphfix.shipping.container_spec import parse_containers

    name = name_of(path)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.onnx"
        jobs: tuple[Callable[[], object], ...] = (
            lambda: graphfix.repair_file(path, target),
            lambda: graphfix.repair_file(path, target, "directml,float16"),
            lambda: graphfix.padded(path),
            lambda: graphfix.ship_file(
                path, Path(folder) / "s", parse_containers(["T=200", "B=1"])
            ),
        )
        for job in jobs:
            with ledger.watch(name):
                job()


def leave_out(paths: list[Path], ledger: Ledger) -> None:
    """Count the kernels of ``fast`` with each pass and without it, on a few models of its own."""
    import graphfix
    from graphfix.engine import pipeline
    from graphfix.job import planning

    by = {name_of(path): path for path in paths}
    whole = pipeline.parse_passes("fast")

    @functools.cache  # the whole profile, once a model
    def kernels(path: Path, name: str) -> int | None:
        model = graphfix.load(path)
        graphfix.run(model, [x for x in whole if x.name != name])
        found = planning.kernels_per_run(model)
        return None if found is None else found["all"]

    for name in {x.name for x in whole}:
        fired = ledger.passes[name]
        for model, _ in fired.changes.most_common(TRIED):
            counts = kernels(by[model], ""), kernels(by[model], name)
            if counts[0] is not None and counts[1] is not None:
                fired.tried += 1
                fired.with_it += counts[0]
                fired.without += counts[1]


def lost(name: str, fired: Fired) -> str:
    """What is lost without a pass: kernels of ``fast``, or what its manual says is repaired."""
    from graphfix.engine import registry
    from graphfix.spec.manual import manual_of
    from graphfix.wording import plural

    if fired.tried:
        of = plural(fired.tried, "model")
        return f"{fired.with_it:,} kernels become {fired.without:,}, of {of}"
    why = " ".join(manual_of(registry.pass_class(name)).why.split())
    return why[: WORDS - 1].rsplit(" ", 1)[0].replace("|", "\\|") + " ..."


def page(ledger: Ledger, models: int) -> str:
    """The tables, the passes first."""
    lines = [
        "# What each rule pays",
        "",
        f"Made by `make rent` over {models} real exports. A pass stays while it fires on real"
        " models, or repairs a measured defect of DirectML in few lines.",
        "",
        "| pass | models | changes | without it |",
        "| --- | ---: | ---: | --- |",
    ]
    from graphfix.engine import registry

    for name in sorted(registry.pass_names(), key=lambda x: (len(ledger.passes[x].changes), x)):
        one = ledger.passes[name]
        lines.append(
            f"| `{name}` | {len(one.changes)} | {one.changes.total():,} | {lost(name, one)} |"
        )
    lines += [
        "",
        "Statements inside functions, and those that ran on some model. The command line, the pages"
        " and the processes that run models were not called. What says why a file is malformed, or"
        " guards a promise, does not run on good models.",
        "",
        "| file | statements | ran | models |",
        "| --- | ---: | ---: | ---: |",
    ]
    shares = [x for x in ledger.files.values() if x.body and not x.path.startswith(NOT_CALLED)]
    for one in sorted(shares, key=lambda x: (len(x.ran) - len(x.body), x.path)):
        lines.append(f"| {one.path} | {len(one.body)} | {len(one.ran)} | {len(one.models)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Go over all models and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", nargs="*", type=Path, default=[ZOO])
    parser.add_argument("--every", type=int, default=1, help="only every so many models")
    parser.add_argument("--jobs", type=int, default=10, help="the whole job on one of so many")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    folders = [ROOT / "models", *asked.zoo]
    paths = sorted(path for folder in folders for path in folder.rglob("*.onnx"))[:: asked.every]
    ledger = Ledger()
    for number, path in enumerate(paths):
        print(f"{number + 1}/{len(paths)} {path.stem}", file=sys.stderr, flush=True)
        look(path, ledger)
        if number % asked.jobs == 1:
            work(path, ledger)
    leave_out(paths, ledger)
    PAGE.write_text(page(ledger, len(paths)), encoding="utf-8")
    for line in dict.fromkeys(ledger.failed):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    main()

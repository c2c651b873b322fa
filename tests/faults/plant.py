"""Plants small faults, one at a time, and counts those that the tests of the same module notice.

Run as ``python -m tests.faults.plant [--count 200] [--seed N] [--only PREFIX]``, or
``make faults``. Faults are made by cosmic-ray: a bound moved, a comparison turned, a ``not`` more
or less, ``or`` for ``and``, ``any`` for ``all``, another number. Each is planted in a copy of the
repository, and the tests that stand where the module stands are run there:
``tests/proof/test_budget*.py`` for ``graphfix/proof/budget.py``, for a pass also what its manual
shows; if there are none, those of a few modules that import it, or all of the folder, where
these take a minute at most. Survivors are listed, to be looked at: a condition whose loss no test
notices is tested, or deleted. What :func:`is_no_fault` names is not planted.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from cosmic_ray import ast as trees
from cosmic_ray import mutating
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parso.tree import NodeOrLeaf

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    x.relative_to(ROOT).as_posix()
    for top in ("graphfix", "passes")
    for x in (ROOT / top).rglob("*.py")
)
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{x}" for x in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"core/ReplaceComparisonOperator_{x}" for x in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot")),
    *("core/ReplaceComparisonOperator_IsNot_Is", "core/ReplaceUnaryOperator_Delete_Not"),
    *("core/ReplaceAndWithOr", "core/ReplaceOrWithAnd", "core/AddNot", "core/NumberReplacer"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue"),
)
# Where the code is only words, a fault is a wrong word.
UNTESTED = ("graphfix/wording.py", "graphfix/version.py")
# How long the tests may take without a fault: those of the module, and those of others.
SECONDS = 240.0
SECONDS_OF_OTHERS = 60.0
# With a fault they may take a multiple, and some more: a loop may have no end now.
PATIENCE, MORE_SECONDS = 4.0, 20.0
MOST_FILES = 4  # tests of modules that import the one in question
# Where the system can fork, each run of the tests begins with these imported already.
PROCESSES = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
LIBRARIES = ("hypothesis", "numpy", "onnx", "onnx_ir", "onnx_shape_inference", "onnxruntime")
# Arguments that guard against mistakes of a programmer; right code does the same without.
GUARDS = ("frozen=True", "strict=True")


class SwapAnyAll(Operator):
    """Writes ``any`` for ``all``, and the other way round."""

    _OTHER: ClassVar[dict[str, str]] = {"any": "all", "all": "any"}

    def mutation_positions(self, node):
        if node.type == "name" and node.value in self._OTHER:
            yield node.start_pos, node.end_pos

    def mutate(self, node, _index):
        node.value = self._OTHER[node.value]
        return node

    @classmethod
    def examples(cls):
        return ()


@dataclass(frozen=True)
class Fault:
    """One place where one operator makes one fault.

    Attributes:
        file: The module, from the root of the repository.
        operator: What is done there.
        occurrence: Which of the places in the file.
        line: Where it is.
    """

    file: str
    operator: str
    occurrence: int
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.operator.removeprefix('core/')}"


def find_faults(file: Path) -> Iterator[Fault]:
    """Yield every fault that can be planted in a module."""
    tree = trees.get_ast(file.read_text(encoding="utf-8"))
    for name in (*OPERATORS, "SwapAnyAll"):
        operator = make_operator(name)
        places = (
            (node, index, start)
            for node in trees.ast_nodes(tree)
            for index, (start, _) in enumerate(operator.mutation_positions(node))
        )
        for occurrence, (node, index, start) in enumerate(places):
            if not is_no_fault(name, node, index):
                yield Fault(file.relative_to(ROOT).as_posix(), name, occurrence, start[0])


def is_no_fault(operator: str, node: NodeOrLeaf, index: int) -> bool:
    """Return whether code that is right stays right with a change, so that no test can tell.

    - ``x[0]`` as ``x[-1]``: the same element where there is one alone. The other change of that
      number, ``x[1]``, asks the same of the tests: whether they see which element is taken.
    - ``frozen=True`` and ``strict=True`` as ``False``: what they guard against does not happen.
    - ``if TYPE_CHECKING`` as ``if not TYPE_CHECKING``: its imports are for types alone.

    Args:
        operator: What makes the change.
        node: Where.
        index: Which of its changes there; for a number, 0 is one more and 1 is one less.
    """
    around = node.parent
    if operator == "core/NumberReplacer":
        is_whole_index = around is not None and around.type == "trailer"
        return is_whole_index and node.get_code(include_prefix=False) == "0" and index == 1
    if operator == "core/ReplaceTrueWithFalse":
        return around is not None and around.get_code(include_prefix=False) in GUARDS
    if operator == "core/AddNot":
        return node.type == "if_stmt" and node.children[1].get_code().strip() == "TYPE_CHECKING"
    return False


def make_operator(name: str) -> Operator:
    """Return the operator of this name."""
    return SwapAnyAll() if name == "SwapAnyAll" else get_operator(name)()


def own_tests(file: str) -> list[str]:
    """Return the test files that are named after a module, in the folder that mirrors its own."""
    parts = file.removeprefix("graphfix/").removesuffix(".py").split("/")
    folder, stem = ROOT.joinpath("tests", *parts[:-1]), parts[-1].removeprefix("_")
    if parts[0] == "passes":  # tests of a helper may stand in its family's folder
        folder = ROOT.joinpath("tests", *parts[:2])
    files = [*folder.rglob(f"test_{stem}.py"), *folder.rglob(f"test_{stem}_*.py")]
    return sorted(x.relative_to(ROOT).as_posix() for x in files)


def manual_tests(file: str) -> list[str]:
    """Return what every pass owes, of this one: what its manual shows; [] for other modules."""
    name = Path(file).stem.replace("_", "-")
    if not re.fullmatch(r"passes/(?!common/)\w+/[a-z]\w*\.py", file):
        return []
    tests = (
        f"test_before_becomes_after[{name}]",
        f"test_what_it_leaves_alone_stays_for_the_reason[{name}]",
        *(f"test_a_graph_that_says_no_sizes_gives_a_result_or_a_sentence[{name}-{x}]"
          for x in ("rank", "nothing")),
    )  # fmt: skip
    return [f"tests/passes/test_every_pass.py::{test}" for test in tests]


@functools.cache
def nearest_tests(file: str) -> tuple[str, ...]:
    """Return the tests of a module, else of the modules that import it, else of its folder."""
    if own := own_tests(file):
        return (*own, *manual_tests(file))
    stem, room = Path(file).stem, Path(file).parts[:2]
    imports = re.compile(rf"from [\w.]*\b{stem} import|from [\w.]+ import {stem}\b")
    users = [x for x in MODULES if imports.search((ROOT / x).read_text(encoding="utf-8"))]
    users.sort(key=lambda x: Path(x).parts[:2] != room)
    if tests := list(dict.fromkeys(test for user in users for test in own_tests(user))):
        return tuple(tests[:MOST_FILES])
    folder = Path("tests", *Path(file.removeprefix("graphfix/")).parts[:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return (folder.as_posix(),)


def copy_repository(folder: Path) -> None:
    """Copy what the tests need; in the copy the passes lie inside the package."""
    skipped = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=skipped)
    for name in ("passes", "models"):
        (folder / "graphfix" / name).symlink_to(folder / name, target_is_directory=True)


@functools.cache
def seconds_without_fault(folder: Path, tests: tuple[str, ...], most: float) -> float | None:
    """Return how long tests take in the copy as it is; None if they fail, or take too long."""
    begin = time.monotonic()
    passed = run_tests(folder, tests, most, write_bytecode=True)
    return time.monotonic() - begin if passed else None


def run_tests(
    folder: Path, tests: tuple[str, ...], most: float, *, write_bytecode: bool = False
) -> bool:
    """Return whether tests pass in a copy; those that take more seconds than ``most`` do not."""
    process = PROCESSES.Process(target=run_pytest, args=(folder, tests, write_bytecode))
    process.start()
    process.join(most)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode in (0, 5)


def run_pytest(folder: Path, tests: tuple[str, ...], write_bytecode: bool) -> None:
    """Run tests in a copy of the repository, and end the process with pytest's code.

    Bytecode of a fault is not written: it would be taken for the module's, which may have the same
    size and second.
    """
    os.chdir(folder)
    sys.dont_write_bytecode = not write_bytecode
    sys.path[:] = [str(folder), *(x for x in sys.path if Path(x).resolve() != ROOT)]
    for name in [x for x in sys.modules if x.partition(".")[0] == "tests"]:
        del sys.modules[name]
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        # Hypothesis is a plugin, and imported already.
        quiet = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
        os._exit(pytest.main(["-x", "-q", *quiet, *tests]))


def plant_fault(fault: Fault, folder: Path) -> tuple[bool | None, str]:
    """Plant a fault in the copy; return whether the nearest tests notice, and the difference.

    None stands for tests that fail, or take too long, without a fault.
    """
    path, tests = folder / fault.file, nearest_tests(fault.file)
    most = SECONDS if own_tests(fault.file) else SECONDS_OF_OTHERS
    seconds = seconds_without_fault(folder, tests, most)
    if seconds is None:
        return None, f"without a fault its tests fail or take {most:.0f} s: {' '.join(tests)}"
    with mutating.use_mutation(path, make_operator(fault.operator), fault.occurrence) as codes:
        before, after = codes
        noticed = not run_tests(folder, tests, PATIENCE * seconds + MORE_SECONDS)
    lines = difflib.unified_diff(before.splitlines(), (after or "").splitlines(), lineterm="", n=0)
    return noticed, "\n".join(x for x in lines if x[:3] not in ("---", "+++") and x[:2] != "@@")


def main() -> int:
    """Plant faults drawn at random, print each survivor and the share that was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", default="", help="modules whose path begins so")
    given = parser.parse_args()
    chosen = [x for x in MODULES if x.startswith(given.only) and x not in UNTESTED]
    every = [fault for file in chosen for fault in find_faults(ROOT / file)]
    faults = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"seed {given.seed}: {len(faults)} of {len(every)} faults in {len(chosen)} modules")
    for library in LIBRARIES:
        importlib.import_module(library)
    outcomes, begin = Counter[bool | None](), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        copy_repository(folder)
        for number, fault in enumerate(faults, 1):
            noticed, difference = plant_fault(fault, folder)
            outcomes[noticed] += 1
            if not noticed:
                verdict = "not judged" if noticed is None else "survives"
                print(f"{verdict}: {fault}\n{difference}", flush=True)
            if number % 10 == 0:
                print(f"{number} after {time.monotonic() - begin:.0f} s", flush=True)
    judged = outcomes[True] + outcomes[False]
    print(f"{outcomes[True]} of {judged} faults were noticed, {outcomes[None]} not judged")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Plants small faults, one at a time, and counts those that the tests of the same module notice.

Run as ``python -m tests.faults.plant [--count 200] [--seed N] [--only PREFIX]``, or
``make faults``. Faults are made by cosmic-ray: a bound moved, a comparison turned, a ``not`` more
or less, ``or`` for ``and``, ``any`` for ``all``, another number. Each is planted in a copy of the
repository, and the tests that stand where the module stands are run there: ``tests/proof/test_budget*.py`` for
``graphfix/proof/budget.py``; all of ``tests/proof`` if there are none. Survivors are listed, to be
looked at: a condition whose loss no test notices is tested, or deleted.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cosmic_ray import ast as trees
from cosmic_ray import mutating
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{x}" for x in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"core/ReplaceComparisonOperator_{x}" for x in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot")),
    *("core/ReplaceComparisonOperator_IsNot_Is", "core/ReplaceUnaryOperator_Delete_Not"),
    *("core/ReplaceAndWithOr", "core/ReplaceOrWithAnd", "core/AddNot", "core/NumberReplacer"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue"),
)
# Where the code is only words, a fault is a wrong word.
UNTESTED = ("graphfix/wording.py", "graphfix/version.py")
SECONDS = 120.0


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
        places = [x for node in trees.ast_nodes(tree) for x in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(places):
            yield Fault(file.relative_to(ROOT).as_posix(), name, occurrence, start[0])


def make_operator(name: str) -> Operator:
    """Return the operator of this name."""
    return SwapAnyAll() if name == "SwapAnyAll" else get_operator(name)()


def nearest_tests(file: str) -> list[str]:
    """Return the test files of a module, or the folder of tests that is nearest to it."""
    parts = file.removeprefix("graphfix/").removesuffix(".py").split("/")
    folder, stem = Path("tests", *parts[:-1]), parts[-1]
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    own = sorted((ROOT / folder).glob(f"test_{stem}.py")) + sorted(
        (ROOT / folder).glob(f"test_{stem}_*.py")
    )
    if own:
        return [x.relative_to(ROOT).as_posix() for x in own]
    if folder == Path("tests"):
        return [x.relative_to(ROOT).as_posix() for x in sorted((ROOT / folder).glob("test_*.py"))]
    return [folder.as_posix()]


def copy_repository(folder: Path) -> None:
    """Copy what the tests need; in the copy the passes lie inside the package."""
    skipped = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=skipped)
    for name in ("passes", "models"):
        (folder / "graphfix" / name).symlink_to(folder / name, target_is_directory=True)


@functools.cache
def run_without_fault(folder: Path, tests: tuple[str, ...]) -> None:
    """Run tests once in the copy as it is; raise SystemExit if they fail there."""
    if not run_tests(folder, list(tests)):
        raise SystemExit(f"without a fault these tests fail or take too long: {' '.join(tests)}")


def run_tests(folder: Path, tests: list[str]) -> bool:
    """Return whether the tests pass in a copy; tests that take too long do not."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return result.returncode in (0, 5)


def plant_fault(fault: Fault, folder: Path) -> tuple[bool, str]:
    """Plant a fault in the copy; return whether the nearest tests notice, and the difference."""
    path, tests = folder / fault.file, nearest_tests(fault.file)
    run_without_fault(folder, tuple(tests))
    with mutating.use_mutation(path, make_operator(fault.operator), fault.occurrence) as codes:
        before, after = codes
        noticed = not run_tests(folder, tests)
    lines = difflib.unified_diff(before.splitlines(), (after or "").splitlines(), lineterm="", n=0)
    return noticed, "\n".join(x for x in lines if x[:3] not in ("---", "+++") and x[:2] != "@@")


def main() -> int:
    """Plant faults drawn at random, print each survivor and the share that was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", default="", help="modules whose path begins so")
    given = parser.parse_args()
    files = [x for top in ("graphfix", "passes") for x in sorted((ROOT / top).rglob("*.py"))]
    names = [x for x in files if x.relative_to(ROOT).as_posix() not in UNTESTED]
    chosen = [x for x in names if x.relative_to(ROOT).as_posix().startswith(given.only)]
    every = [fault for file in chosen for fault in find_faults(file)]
    faults = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"seed {given.seed}: {len(faults)} of {len(every)} faults in {len(chosen)} modules")
    survivors, begin = [], time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        copy_repository(folder)
        for number, fault in enumerate(faults, 1):
            noticed, difference = plant_fault(fault, folder)
            if not noticed:
                survivors.append(fault)
                print(f"survives: {fault}\n{difference}", flush=True)
            if number % 10 == 0:
                share = 1 - len(survivors) / number
                seconds = time.monotonic() - begin
                print(f"{number}: {share:.0%} noticed, {seconds:.0f} s", flush=True)
    print(f"{len(faults) - len(survivors)} of {len(faults)} faults were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

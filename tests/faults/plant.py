"""Plants small faults, one at a time, and counts those that the tests of the same module notice.

Run as ``python -m tests.faults.plant [--count 200] [--seed N] [--only PREFIX]``, or
``make faults``, on a system that can fork. Faults are made by cosmic-ray: a bound moved, a
comparison turned, a ``not`` more or less, ``or`` for ``and``, ``any`` for ``all``, another number.
Each is planted in a copy of the repository, and the tests that stand where the module stands are
run there: ``tests/proof/test_budget*.py`` for ``graphfix/proof/budget.py``, for a pass also what
its manual shows; if there are none, those of a few modules that import it, or all of the folder,
where these take a minute at most. :mod:`tests.faults.loaded` plants most of them in a process that
has these tests loaded. Survivors are listed, to be looked at: a condition whose loss no test
notices is tested, or deleted. What :func:`is_no_fault` names is not planted.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import importlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from cosmic_ray import ast as trees
from cosmic_ray import mutating
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

from tests.faults.loaded import (
    FORK,
    MORE_SECONDS,
    OPTIONS,
    PATIENCE,
    Planter,
    Verdict,
    run_in_fork,
    silence,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
UNTESTED = {
    "graphfix/wording.py": "it is only words: a fault is a wrong word",
    "graphfix/version.py": "the same",
    "graphfix/runtime/_windows.py": "Windows alone runs it: it asks DXGI",
}
# How long the tests may take without a fault: those of the module, and those of others.
SECONDS = 240
SECONDS_OF_OTHERS = 60
MOST_FILES = 4  # tests of modules that import the one in question
# Each run of the tests begins with these imported already.
LIBRARIES = (
    *("click", "filelock", "hypothesis.extra.numpy", "numpy", "onnx.parser", "onnx.reference"),
    *("onnx_ir", "onnx_shape_inference", "onnxruntime", "psutil", "rich"),
)
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
    nodes = list(trees.ast_nodes(trees.get_ast(file.read_text(encoding="utf-8"))))
    for name in (*OPERATORS, "SwapAnyAll"):
        operator = make_operator(name)
        places = (
            (node, index, start)
            for node in nodes
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
    - ``maxsize=4096`` as ``4095``: how much a cache remembers.
    - ``if TYPE_CHECKING`` as ``if not TYPE_CHECKING``: its imports are for types alone.

    Args:
        operator: What makes the change.
        node: Where.
        index: Which of its changes there; for a number, 0 is one more and 1 is one less.
    """
    around = node.parent
    if operator == "core/NumberReplacer":
        if around is not None and around.get_code(include_prefix=False).startswith("maxsize="):
            return True
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


def imported_path(file: str, folder: Path) -> Path:
    """Return a module's path in the copy as Python says it: passes lie inside the package."""
    return folder / "graphfix" / file if file.startswith("passes/") else folder / file


def enter_copy(folder: Path) -> None:
    """Let this process run tests in a copy of the repository, and print nothing.

    Bytecode of a fault is not written: it would be taken for the module's, which may have the same
    size and second.
    """
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.path[:] = [str(folder), *(x for x in sys.path if Path(x).resolve() != ROOT)]
    for name in [x for x in sys.modules if x.partition(".")[0] == "tests"]:
        del sys.modules[name]
    silence()


def run_tests(folder: Path, tests: Sequence[str], most: float) -> bool:
    """Return whether tests pass in a copy; those that take more seconds than ``most`` do not."""

    def work() -> int:
        enter_copy(folder)
        return pytest.main([*OPTIONS, *tests])

    return run_in_fork(work, most) in (0, 5)


def judge_loaded(
    file: str, texts: list[str], folder: Path, most: int
) -> tuple[float, list[Verdict]]:
    """Return how long the tests of a module take, and the verdict on each fault in it.

    Args:
        file: The module.
        texts: Its text with each fault.
        folder: A copy of the repository.
        most: How many seconds the tests may take without a fault; if they take longer, or fail,
            there is no verdict.
    """
    receiver, sender = FORK.Pipe(duplex=False)

    def work() -> None:
        enter_copy(folder)
        planter = Planter(imported_path(file, folder), texts, most, sender)
        pytest.main([*OPTIONS, *nearest_tests(file)], plugins=[planter])

    process = FORK.Process(target=work)
    process.start()
    sender.close()
    messages = []
    with contextlib.suppress(EOFError):
        while True:
            messages.append(receiver.recv())
    process.join()
    seconds, *verdicts = messages or [0.0]
    return seconds, verdicts


def judge_faults(faults: list[Fault], folder: Path) -> Iterator[tuple[Fault, Verdict | None, str]]:
    """Yield each of a module's faults, the verdict of the nearest tests, and what it changes.

    None stands for tests that fail, take too long, or are all skipped without a fault.
    """
    file = faults[0].file
    path, tests = folder / file, nearest_tests(file)
    most = SECONDS if own_tests(file) else SECONDS_OF_OTHERS
    text = path.read_text(encoding="utf-8")
    texts = [
        mutating.mutate_code(text, make_operator(fault.operator), fault.occurrence)
        for fault in faults
    ]
    seconds, verdicts = judge_loaded(file, texts, folder, most)
    for fault, text_with_fault, verdict in zip_longest(faults, texts, verdicts):
        if verdict == "at import":
            path.write_text(text_with_fault, encoding="utf-8")
            passed = run_tests(folder, tests, PATIENCE * seconds + MORE_SECONDS)
            path.write_text(text, encoding="utf-8")
            verdict = "survives" if passed else "noticed"
        yield fault, verdict, difference(text, text_with_fault)


def difference(before: str, after: str) -> str:
    """Return the lines that differ, each after ``-`` or ``+``."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(x for x in lines if x[:3] not in ("---", "+++") and x[:2] != "@@")


def room_of(file: str) -> str:
    """Return the room of a module, as a reader looks for it."""
    parts = file.split("/")
    return parts[0] if parts[0] == "passes" else "/".join(parts[:2])


def draw_faults(only: str, count: int, seed: int) -> list[Fault]:
    """Draw faults of all modules whose path begins so, and print how many there are."""
    chosen = [x for x in MODULES if x.startswith(only) and x not in UNTESTED]
    every = [fault for file in chosen for fault in find_faults(ROOT / file)]
    faults = random.Random(seed).sample(every, min(count, len(every)))
    print(f"seed {seed}: {len(faults)} of {len(every)} faults in {len(chosen)} modules", flush=True)
    return faults


def main() -> int:
    """Plant faults drawn at random, print each survivor and the share that was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--only", default="", help="modules whose path begins so")
    options = parser.parse_args()
    by_file = defaultdict[str, list[Fault]](list)
    for fault in draw_faults(options.only, options.count, options.seed):
        by_file[fault.file].append(fault)
    for library in LIBRARIES:
        importlib.import_module(library)
    judged = defaultdict[str, Counter[bool]](Counter)  # of each room: noticed, or not
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        copy_repository(folder)
        for file, faults in by_file.items():
            outcomes = Counter[bool]()
            for fault, verdict, changed in judge_faults(faults, folder):
                if verdict is not None:
                    outcomes[verdict == "noticed"] += 1
                if verdict != "noticed":
                    print(f"{verdict or 'not judged'}: {fault}\n{changed}")
            judged[room_of(file)] += outcomes
            print(f"{file}: {outcomes[True]} of {outcomes.total()}", flush=True)
    total = sum(judged.values(), Counter[bool]())
    unjudged = sum(map(len, by_file.values())) - total.total()
    print(f"after {time.monotonic() - begin:.0f} s, {unjudged} not judged:")
    for room, outcomes in [*sorted(judged.items()), ("all rooms", total)]:
        print(f"{room}: {outcomes[True]} of {outcomes.total()} faults were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

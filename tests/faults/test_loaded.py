"""Faults are planted in the functions of a process that has them loaded, and judged there."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="a process cannot fork here")

from tests.faults import loaded

MODULE = """
LIMIT = 3

def small(x, most=4):
    return x < LIMIT and all(y < most for y in (x, 1))

def adder(n):
    def add(x):
        return x + n + 1
    return add

class Box:
    size = 2
    def volume(self):
        return self.size ** 3

def lonely():
    return 7
"""
TESTS = """
import module

ADD = module.adder(1)

def test_small():
    assert module.small(2)
    assert not module.small(5)

def test_add():
    assert module.adder(2)(3) == 6

def test_volume():
    assert module.Box().volume() == 8
"""


def _change(old: str, new: str) -> loaded.Change | None:
    assert old in MODULE
    texts = (MODULE, MODULE.replace(old, new))
    return loaded.find_change(*(compile(x, "module.py", "exec") for x in texts))


@pytest.mark.parametrize(
    ("old", "new", "functions", "planted"),
    [
        ("x < LIMIT", "x <= LIMIT", {"small"}, {"small"}),
        ("y < most", "y <= most", {"small.<locals>.<genexpr>"}, {"small", "genexpr"}),
        ("x + n + 1", "x + n + 2", {"adder.<locals>.add"}, {"adder", "add"}),
        ("size ** 3", "size ** 2", {"Box.volume"}, {"Box", "volume"}),
        ("return 7", "return  7", set(), set()),
    ],
)
def test_what_a_fault_changes(old: str, new: str, functions: set[str], planted: set[str]) -> None:
    change = _change(old, new)
    assert change is not None
    assert {name for name, _ in change.functions} == functions
    assert {name.split(".")[-1].strip("<>") for name, _ in change.new_codes} == planted


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("most=4", "most=5"),
        ("size = 2", "size = 3"),
        ("LIMIT = 3", "LIMIT = [x for x in (3, 4)][0]"),
        ("return 7", "return lambda: 7"),
    ],
)
def test_what_runs_at_import_is_for_another_process(old: str, new: str) -> None:
    assert _change(old, new) is None


def test_a_fork_returns_what_its_work_does() -> None:
    assert loaded.run_in_fork(lambda: 0, 20.0) == 0
    assert loaded.run_in_fork(lambda: 3, 20.0) == 3
    assert loaded.run_in_fork(lambda: os.kill(os.getpid(), 9) or 0, 20.0) == -9
    assert loaded.run_in_fork(lambda: 1 // 0, 20.0) == 1


def test_a_fork_that_takes_too_long_ends() -> None:
    def wait_for_ever() -> int:
        while True:
            pass

    assert loaded.run_in_fork(wait_for_ever, 0.05) is None


def _judge(folder: Path, tests: str, faults: list[tuple[str, str]]) -> list[loaded.Verdict]:
    module = folder / "module.py"
    module.write_text(MODULE, encoding="utf-8")
    (folder / "test_module.py").write_text(tests, encoding="utf-8")
    receiver, sender = loaded.FORK.Pipe(duplex=False)
    texts = [MODULE.replace(old, new) for old, new in faults]

    def work() -> int:
        sys.path.insert(0, str(folder))
        planter = loaded.Planter(module, texts, 20, sender)
        options = (*loaded.OPTIONS, "-p", "no:xdist", "--rootdir", str(folder), "-c", os.devnull)
        return pytest.main([*options, str(folder)], plugins=[planter])

    loaded.run_in_fork(work, 60.0)
    sender.close()
    messages = []
    while receiver.poll():
        try:
            messages.append(receiver.recv())
        except EOFError:
            break
    assert module.read_text(encoding="utf-8") == MODULE
    seconds, *verdicts = messages or [0.0]
    assert seconds >= 0
    return verdicts


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="a process that has threads may not fork")
def test_the_tests_that_call_what_changed_judge_it(tmp_path: Path) -> None:
    faults = {
        ("x < LIMIT", "x <= LIMIT"): "survives",
        ("x < LIMIT", "x > LIMIT"): "noticed",
        ("x + n + 1", "x + n + 2"): "noticed",
        ("size ** 3", "size ** 2"): "noticed",
        ("return 7", "return 8"): "not called",
        ("size = 2", "size = 3"): "at import",
        ("size ** 3", "size **  3"): "not called",
        ("x + n + 1", "x + n + undefined"): "noticed",
    }
    assert _judge(tmp_path, TESTS, list(faults)) == list(faults.values())


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="a process that has threads may not fork")
@pytest.mark.parametrize(
    "tests",
    [
        TESTS.replace("== 6", "== 7"),
        "import not_there",
        "import pytest; pytestmark = pytest.mark.skip(reason='not here')\n" + TESTS,
    ],
)
def test_no_verdict_where_the_tests_fail_or_skip_without_a_fault(
    tmp_path: Path, tests: str
) -> None:
    assert _judge(tmp_path, tests, [("x < LIMIT", "x > LIMIT")]) == []

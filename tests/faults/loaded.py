"""Plants faults in a process that has the tests of a module loaded: some tenths of a second each.

pytest collects the tests once. Each of them is run, to see which functions of the module it calls.
Then for each fault the process forks: in the fork every function that the fault changes gets its
new code, and the tests that call one of these are run. What a fault changes in code that runs when
the module is imported is not planted so.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from types import FrameType

FORK = multiprocessing.get_context("fork")
# Hypothesis is a plugin, and imported already.
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
# With a fault tests may take a multiple, and some more: a loop may have no end now.
PATIENCE, MORE_SECONDS = 4.0, 30.0
# How much longer than on an idle machine it may take where others work, too.
BUSY = 10
# A list that grows without end ends the process before it ends the machine.
MOST_BYTES = 10 << 30

# "at import": it changes what runs when the module is imported, so another process must tell.
Verdict = Literal["noticed", "survives", "not called", "at import"]
# A function is known by its name and first line, as in the frame of a call.
FunctionKey = tuple[str, int]
# Code is known by its place: the second function written in the first one is (0, 1).
Place = tuple[int, ...]


def function_key(code: CodeType) -> FunctionKey:
    """Return what a function of one file is known by."""
    return code.co_qualname, code.co_firstlineno


def walk_code(code: CodeType, place: Place = ()) -> Iterator[tuple[Place, CodeType]]:
    """Yield the code of all that is written within some code, with its place."""
    nested = (x for x in code.co_consts if isinstance(x, CodeType))
    for number, inner in enumerate(nested):
        yield (*place, number), inner
        yield from walk_code(inner, (*place, number))


def own_part(code: CodeType) -> tuple[object, ...]:
    """Return what code does itself, to be compared: not what the functions written in it do."""
    constants = [(type(x), repr(x)) for x in code.co_consts if not isinstance(x, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def runs_at_import(place: Place, codes: dict[Place, CodeType]) -> bool:
    """Return whether code runs when its module is imported: the body of a class, say."""
    for depth in range(1, len(place) + 1):
        code = codes[place[:depth]]
        if code.co_flags & 0x1:  # CO_OPTIMIZED: a function, or a comprehension
            return code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
    return True


@dataclass(frozen=True)
class Change:
    """What a fault changes in the functions of a module.

    Attributes:
        functions: Those that do something else themselves.
        new_codes: The new code of these, and of the functions that they are written in.
    """

    functions: frozenset[FunctionKey]
    new_codes: dict[FunctionKey, CodeType]


def find_change(old: CodeType, new: CodeType) -> Change | None:
    """Return what differs in the functions of a module, None if something differs at import.

    Args:
        old: The code of the module.
        new: Its code with a fault.
    """
    codes, new_codes = dict(walk_code(old)), dict(walk_code(new))
    if own_part(old) != own_part(new) or codes.keys() != new_codes.keys():
        return None
    changed = [x for x, code in codes.items() if own_part(code) != own_part(new_codes[x])]
    if any(runs_at_import(place, codes) for place in changed):
        return None
    around = {place[:depth] for place in changed for depth in range(1, len(place) + 1)}
    return Change(
        frozenset(function_key(codes[place]) for place in changed),
        {function_key(codes[place]): new_codes[place] for place in around},
    )


def plant_change(change: Change, path: Path) -> None:
    """Give every function of a module that a fault changes its new code, wherever it is held."""
    gc.unfreeze()  # pytest's collection was frozen, and the functions with it
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename == str(path):
            value.__code__ = change.new_codes.get(function_key(value.__code__), value.__code__)
    gc.freeze()


def silence() -> None:
    """Send what this process prints to nowhere."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def run_in_fork(
    work: Callable[[], int], seconds: float, processor_seconds: int | None = None
) -> int | None:
    """Return what work in a fork returns, or what ended it; None if it takes more seconds.

    The fork is the first of a group of processes: what it starts ends with it.

    Args:
        work: What to do there.
        seconds: How long it may take, by the clock.
        processor_seconds: How long by the processor's, which other processes do not slow down.
    """

    def begin() -> None:
        os.setpgid(0, 0)
        silence()
        if sys.platform == "linux":  # macOS refuses
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        if processor_seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
        os._exit(work())

    process = FORK.Process(target=begin)
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None
    return process.exitcode


def run_items(session: pytest.Session, items: list[pytest.Item]) -> int:
    """Run some of the collected tests until one fails, and return 1 if one did."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


@dataclass(frozen=True)
class Passing:
    """How the tests pass without a fault.

    Attributes:
        calls: For each test, by its number, the functions of the module that it calls.
        seconds: How long each takes.
    """

    calls: list[set[FunctionKey]]
    seconds: list[float]

    def tests_of(self, functions: frozenset[FunctionKey]) -> list[int]:
        """Return the tests that call one of some functions, the quickest first."""
        callers = (x for x, called in enumerate(self.calls) if called & functions)
        return sorted(callers, key=self.seconds.__getitem__)


def watch_tests(session: pytest.Session, path: Path) -> Passing | None:
    """Run all collected tests, and note what each calls of a module; None when one fails."""
    passing = Passing([], [])
    called: set[FunctionKey] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == str(path):
            called.add(function_key(frame.f_code))

    for item in session.items:
        called.clear()
        begin = time.monotonic()
        sys.setprofile(note)
        threading.setprofile(note)
        failed = run_items(session, [item])
        sys.setprofile(None)
        if failed:
            return None
        passing.calls.append(set(called))
        passing.seconds.append(time.monotonic() - begin)
    return passing


class Planter:
    """Judges faults in place of pytest's run of the tests that it collected.

    Args:
        path: The module, in a copy of the repository.
        faults: The module's text with each fault.
        seconds: How long all tests may take without a fault, by the processor's clock.
        verdicts: Where to it is sent how many seconds the tests take, and then the verdict on each
            fault; nothing if the tests do not pass, or all are skipped here.
    """

    def __init__(self, path: Path, faults: list[str], seconds: int, verdicts: Connection) -> None:
        self.path, self.faults, self.seconds, self.verdicts = path, faults, seconds, verdicts
        self.has_passed = False  # a test

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge each fault."""
        passing = None if session.testsfailed else self._watch(session)
        if passing is not None:
            self.verdicts.send(sum(passing.seconds))
            text = self.path.read_text(encoding="utf-8")
            for fault in self.faults:
                self.path.write_text(fault, encoding="utf-8")  # for processes that tests start
                self.verdicts.send(self._judge(session, passing, text, fault))
                self.path.write_text(text, encoding="utf-8")
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test has passed."""
        self.has_passed |= report.when == "call" and report.passed

    def _watch(self, session: pytest.Session) -> Passing | None:
        """Watch the tests in a fork, where what they leave behind is in nobody's way."""
        with tempfile.TemporaryFile() as notes:

            def work() -> int:
                passing = watch_tests(session, self.path)
                if passing is None or not self.has_passed:
                    return 1
                pickle.dump((passing.calls, passing.seconds), notes)
                notes.flush()
                return 0

            if run_in_fork(work, BUSY * self.seconds, self.seconds) != 0:
                return None
            notes.seek(0)
            return Passing(*pickle.load(notes))

    def _judge(self, session: pytest.Session, passing: Passing, text: str, fault: str) -> Verdict:
        codes = (compile(x, str(self.path), "exec", dont_inherit=True) for x in (text, fault))
        if (change := find_change(*codes)) is None:
            return "at import"
        tests = passing.tests_of(change.functions)
        if not tests and any(x.get_closest_marker("process") for x in session.items):
            tests = list(range(len(session.items)))  # it may be called in what they start
        if not tests:
            return "not called"

        def work() -> int:
            plant_change(change, self.path)
            return run_items(session, [session.items[x] for x in tests])

        seconds = sum(passing.seconds[x] for x in tests)
        passed = run_in_fork(work, PATIENCE * seconds + MORE_SECONDS) == 0
        return "survives" if passed else "noticed"

"""Valid models with one fault in them: gone through, or refused in a sentence; nothing else.

``GRAPHFIX_FUZZ=5000`` tries so many instead of a few.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import random
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.errors import FaultError, GraphfixError
from tests.conformance.cases import cases
from tests.hostile.corrupt import CORRUPTIONS, corrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TRIES = int(os.environ.get("GRAPHFIX_FUZZ", "60"))
SPECS = ("directml", "fast", "ilens-mask")
# A hundred times what it takes: only what has no end is told.
SECONDS = 60.0


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What does not end fails, where the system can say so."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"not ended after {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def repair(path: Path, spec: str) -> object:
    return graphfix.repair_file(path, path.with_name("o.onnx"), spec, check=False)


# The public verbs that take a model, each with what it does at all cost: a fault in the model is
# told in a sentence by each. Those that run models have few seconds for it.
VERBS: dict[str, Callable[[Path], object]] = {
    "check": graphfix.check,
    "check on the CPU": lambda path: graphfix.check(path, ep="cpu"),
    "check a ModelProto": lambda path: graphfix.check(onnx.load(path)),
    **{f"run {spec}": functools.partial(repair, spec=spec) for spec in SPECS},
    "run in memory": lambda path: graphfix.run(path, "fast"),
    "run a ModelProto": lambda path: graphfix.run(onnx.load(path), "fast"),
    "plan": graphfix.plan,
    "explain": lambda path: graphfix.explain("fold", path),
    "fix": lambda path: graphfix.fix(path, "directml", path.with_name("o.onnx"), budget=1),
    "verify": lambda path: graphfix.verify(path, path, budget=1, locate=False),
    "padded": lambda path: graphfix.padded(path),
    "bench": lambda path: graphfix.bench(path, runs=1, processes=1, seconds=0, copy=False),
    "ship": lambda path: graphfix.ship(path, path.with_name("folder"), "T=8"),
    "merge": lambda path: graphfix.merge(path, path, check=False),
    "reduce": lambda path: graphfix.reduce(path, ep="cpu", budget=1),
    "save": lambda path: graphfix.save(graphfix.load(path), path.with_name("o.onnx")),
}
# The others are a second each.
QUICK = [x for x in VERBS if x.partition(" ")[0] in ("check", "run", "plan", "explain", "save")]


def go_through(path: Path, verbs: Iterable[str]) -> list[str]:
    """Let each verb have it; the sentences of those that refuse it.

    Raises:
        FaultError: What a verb met was not foreseen; that is a fault of graphfix.
    """
    told = []
    for verb in verbs:
        try:
            with bounded():
                VERBS[verb](path)
        except FaultError:
            raise
        except (GraphfixError, DecodeError) as error:  # what onnx.load raises is not ours
            told.append(str(error))
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corrupted")


def corrupted_file(folder: Path, number: int) -> Path:
    rng = random.Random(number)
    small = [x for x in cases() if x.kind != "real"]
    data = None
    while data is None:
        data = corrupted(rng.choice(small), rng.choice(CORRUPTIONS), rng)
    path = folder / "m.onnx"
    path.write_bytes(data)
    return path


def often(tries: int) -> settings:
    return settings(
        max_examples=tries,
        deadline=None,
        derandomize="GRAPHFIX_FUZZ" not in os.environ,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@often(TRIES)
@given(number=st.integers(0, 2**32))
def test_a_model_with_one_fault_is_refused_or_gone_through(folder: Path, number: int) -> None:
    assert all(x.strip() for x in go_through(corrupted_file(folder, number), QUICK))


@often(max(TRIES // 20, 3))
@given(number=st.integers(0, 2**32))
def test_every_public_verb_goes_through_it_or_refuses_it(folder: Path, number: int) -> None:
    assert all(x.strip() for x in go_through(corrupted_file(folder, number), VERBS))


def test_all_verbs_are_tried() -> None:
    """Of those in ``graphfix.__all__``, all that take a model."""
    tried = {x.partition(" ")[0] for x in VERBS}
    verbs = {x for x in graphfix.__all__ if inspect.isfunction(getattr(graphfix, x))}
    assert verbs - tried == {"get_pass", "load", "load_plugin", "repair_file", "ship_file", "zoo"}


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda x: x.__name__)
def test_each_fault_is_made(corruption: object) -> None:
    """A corruption that changed nothing would let the test above pass for nothing."""
    rng = random.Random(1)
    some = random.Random(2).sample([x for x in cases() if x.kind != "real"], 120)
    assert any(_is_changed(case.sized("plain"), corruption, rng) for case in some)


def _is_changed(kept: onnx.ModelProto, corruption: object, rng: random.Random) -> bool:
    proto = onnx.ModelProto()
    proto.CopyFrom(kept)
    with contextlib.suppress(IndexError, KeyError, onnx.defs.SchemaError):
        corruption(proto, rng)  # type: ignore[operator]
        return proto != kept
    return False

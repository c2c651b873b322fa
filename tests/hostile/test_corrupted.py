"""Valid models with one fault in them: gone through, or refused in a sentence; nothing else.

``GRAPHFIX_FUZZ=5000`` tries so many instead of a few.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphfix import job
from graphfix.errors import GraphfixError
from graphfix.files import io
from graphfix.job import checking
from tests.conformance.cases import cases
from tests.hostile.corrupt import CORRUPTIONS, corrupted

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def go_through(path: Path) -> list[str]:
    """Let each verb have it; the sentences of those that refuse it."""
    told = []
    for spec in ("", *SPECS):
        try:
            with bounded():
                if spec:
                    job.repair_file(path, path.with_name("o.onnx"), spec, check=False)
                else:
                    checking.check(io.load(path), ep="dml")
        except GraphfixError as error:
            told.append(str(error))
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corrupted")


@settings(
    max_examples=TRIES,
    deadline=None,
    derandomize="GRAPHFIX_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(number=st.integers(0, 2**32))
def test_a_model_with_one_fault_is_refused_or_gone_through(folder: Path, number: int) -> None:
    rng = random.Random(number)
    small = [x for x in cases() if x.kind != "real"]
    data = None
    while data is None:
        data = corrupted(rng.choice(small), rng.choice(CORRUPTIONS), rng)
    path = folder / "m.onnx"
    path.write_bytes(data)
    assert all(x.strip() for x in go_through(path))


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

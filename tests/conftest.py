"""What tests of several rooms need."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import settings

from graphfix.cli import _terminal
from graphfix.engine import pipeline
from tests import links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("graphfix", deadline=None)
settings.load_profile("graphfix")
# No test that Hypothesis draws for tries more than this, for machines that are slow.
EXAMPLES = int(os.environ.get("GRAPHFIX_EXAMPLES", "0"))

HERE = Path(__file__).parent
# What `make test` leaves to `make test-all`, by the folder of a test; see pyproject.toml.
MARKERS = {
    "dml": "dml",
    "webgpu": "webgpu",
    "exports": "exports",
    **dict.fromkeys(("conformance", "hostile", "mutants"), "fuzz"),
    **dict.fromkeys(("bench", "benchmark", "docs", "float16_search", "probing"), "process"),
    **dict.fromkeys(("runtime", "shipping", "shipped", "show", "model_zoo"), "process"),
}
# Elsewhere, these files kill what they start, or start the command again and again.
KILLED = {"test_atomic_file", "test_ended", "test_interrupts", "test_kills", "test_moments"}
STARTED = {"test_outcome", "test_progress", "test_quiet", "test_reduce", "test_reduction"}
STARTED |= {"test_cpu_kernels", "test_fault_search", "test_quantizers", "test_round_trip"}
STARTED |= {"test_streams", "test_bench", "test_arguments", "test_auto", "test_merging"}
# These draw the most models.
GENERATED = {"test_rules_generated", "test_shapes_generated", "test_slice_ends"}

LOOP = """<ir_version: 9, opset_import: ["" : 17]>
    m (float[1, T, 4] x) => (float[1, T, 4] y) { y = Loop (m, c, x) <body = b
    (int64 i, bool go, float[1, T, 4] a) => (bool again, float[1, T, 4] out)
    { again = Identity (go) out = Relu (a) }> }"""


def pytest_configure() -> None:
    """Hear Ctrl-C, and let children hear it, also where a shell ignores it (`nohup make test`)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until all tests are collected: nothing of them is garbage


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: searching them for garbage is a sixteenth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(HERE).parts[0]
        if folder in MARKERS:
            item.add_marker(MARKERS[folder])
        elif item.path.stem in KILLED | STARTED:
            item.add_marker("process")
        elif item.path.stem in GENERATED:
            item.add_marker("fuzz")
    if EXAMPLES:
        for item in items:
            drawn = getattr(item, "obj", None)
            own = getattr(drawn, "_hypothesis_internal_use_settings", None)
            if own is not None and own.max_examples > EXAMPLES:
                function = getattr(drawn, "__func__", drawn)
                function._hypothesis_internal_use_settings = settings(own, max_examples=EXAMPLES)


@pytest.fixture(scope="session", autouse=True)
def a_pass_that_raises_is_a_failure() -> Iterator[None]:
    """Users get the rest of the repairs where a pass raises; a test has to see it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "can_drop_pass", lambda *_: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def steps_are_not_printed() -> Iterator[None]:
    """Tests read the messages on stderr; tests/cli/test_progress.py reads the steps as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_terminal, "print_steps_once", lambda: lambda _: None)
        yield


@pytest.fixture
def symlink() -> Callable[[Path, Path | str], None]:
    """Make a link to a file, or skip the test."""
    return links.symlink


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model that runs for days."""
    proto = onnx.parser.parse_model(LOOP)
    for name, value in (("m", 2**35), ("c", True)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    onnx.save(proto, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"

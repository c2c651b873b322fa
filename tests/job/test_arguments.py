"""What is wrong in a call from Python is said in a sentence, by an error of graphfix."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import GraphfixError, UsageError

TEXT = (
    '<ir_version: 8, opset_import: ["" : 17]> m (float[T, 4] x) => (float[T, 4] y) {y = Relu (x)}'
)
VERBS = ("fix", "run", "check", "padded", "plan", "bench", "verify", "explain", "zoo", "ship")
MODEL = onnx.parser.parse_model(TEXT)
ONES = {"x": np.ones((2, 4), np.float32)}


def test_every_verb_is_a_callable_of_the_package() -> None:
    for name in VERBS:
        assert callable(getattr(graphfix, name)), name
        assert name in graphfix.__all__


def test_zoo_is_a_function_whatever_is_imported(tmp_path: Path) -> None:
    import graphfix.model_zoo.zoo

    assert not inspect.ismodule(graphfix.zoo)
    with pytest.raises(UsageError, match="none: there is no such folder"):
        graphfix.zoo(tmp_path / "none")


def test_ship_is_a_function_whatever_is_imported(tmp_path: Path) -> None:
    import graphfix.shipped.manifest
    import graphfix.shipping.build

    assert not inspect.ismodule(graphfix.ship)
    for model in (MODEL, ir.from_proto(MODEL)):
        for containers in ({"T": [8, 4]}, "T=4,8", ["T=4", "T=8"]):
            done = graphfix.ship(model, tmp_path / "shipped", containers)
            assert done.ok
            sizes = [x.sizes["T"] for x in done.manifest.containers]
            assert sizes == [4, 8]
    session = graphfix.Session(tmp_path / "shipped")
    assert session.run(None, {"x": ONES["x"]})[0].shape == (2, 4)


def test_progress_is_called_with_a_text(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    for verb in (
        lambda tell: graphfix.fix(tmp_path / "m.onnx", progress=tell),
        lambda tell: graphfix.run(MODEL, progress=tell),
        lambda tell: graphfix.verify(MODEL, MODEL, progress=tell),
        lambda tell: graphfix.padded(MODEL, dims={"T": 4}, container=8, progress=tell),
        lambda tell: graphfix.plan(MODEL, progress=tell),
        lambda tell: graphfix.bench(MODEL, ep="cpu", processes=1, progress=tell),
    ):
        told: list[str] = []
        verb(told.append)
        assert told
        assert all(isinstance(x, str) for x in told)
    assert "progress" in inspect.signature(graphfix.zoo).parameters


@pytest.mark.parametrize("verb", ["fix", "run", "check", "padded", "plan", "bench", "repair_file"])
@pytest.mark.parametrize(
    ("model", "says"),
    [(3, "int is no"), (None, "NoneType is no"), (["none.onnx", 3], "(list|int) is no")],
)
def test_what_is_no_model(verb: str, model: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        getattr(graphfix, verb)(model)


@pytest.mark.parametrize("verb", ["fix", "run", "check", "padded", "plan", "bench", "repair_file"])
def test_a_file_that_is_not_there(verb: str) -> None:
    with pytest.raises(GraphfixError, match=r"none\.onnx: no such file"):
        getattr(graphfix, verb)("none.onnx")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: graphfix.fix(MODEL, "nope"), "there is no pass 'nope'"),
        (lambda: graphfix.run(MODEL, [3]), "3 is no pass; give names"),
        (lambda: graphfix.run(MODEL, 3), "3 is no pass"),
        (lambda: graphfix.check(MODEL, [None]), "None is no pass"),
        (lambda: graphfix.fix(MODEL, dimz={}), "no option 'dimz'; did you mean 'dims'"),
        (lambda: graphfix.verify(MODEL, MODEL, dimz={}), "no option 'dimz'; did you mean 'dims'"),
        (lambda: graphfix.verify(MODEL, MODEL, dims={"Q": 3}), "no input has a dim named 'Q'"),
        (lambda: graphfix.plan(MODEL, dims={"Q": 3}), "no input has a dim 'Q'; there are: T"),
        (lambda: graphfix.plan(MODEL, dims={"T": (3, 4)}), r"T: one size is needed.* \[3, 4\]"),
        (lambda: graphfix.verify(MODEL, MODEL, dims=[7]), "give sizes by the name of a dim"),
        (lambda: graphfix.verify(MODEL, MODEL, dims={"T": "7"}), "give sizes by the name"),
        (lambda: graphfix.verify(MODEL, MODEL, feeds=3), "give an .npz file, or an array for each"),
        (lambda: graphfix.verify(MODEL, MODEL, tolerance=1e-3), "give a graphfix.Tolerance"),
        (lambda: graphfix.verify(MODEL, MODEL, ep="gpu"), "ep='gpu': give one of 'cpu', 'dml'"),
        (lambda: graphfix.fix(MODEL, ep="gpu"), "ep='gpu': give one of 'cpu', 'dml'"),
        (lambda: graphfix.reduce(MODEL, ep="gpu"), "ep='gpu': give one of 'cpu', 'dml'"),
        (lambda: graphfix.reduce(MODEL, against="gpu"), "against='gpu': give one of 'cpu'"),
        (lambda: graphfix.ship(MODEL, "out", "T=4", ep="gpu"), "ep='gpu': give one of 'cpu'"),
        (lambda: graphfix.verify(MODEL, MODEL, safety="none"), "safety='none': give one of"),
        (lambda: graphfix.padded(MODEL, ep="gpu"), "ep='gpu': give one of 'cpu', 'dml'"),
        (lambda: graphfix.padded(MODEL, container="8"), "give sizes"),
        (
            lambda: graphfix.check(MODEL, ep="gpu"),
            "there is no provider 'gpu'; ep is one of cpu, dml",
        ),
        (lambda: graphfix.bench(MODEL, ep="gpu"), "ep='gpu': give one of 'auto'"),
        (lambda: graphfix.bench(MODEL, ep=3), "ep=3: give one of 'auto'"),
        (lambda: graphfix.bench(MODEL, ep=["cpu", "gpu"]), "ep='gpu': give one of 'cpu'"),
        (lambda: graphfix.bench(MODEL, ep=[]), "there is no provider to time on: name at least"),
        (lambda: graphfix.bench([]), "name at least one model"),
        (lambda: graphfix.explain(3), "give the name of a pass"),
        (lambda: graphfix.zoo(jobs=0), "at least 1"),
        (lambda: graphfix.ship(3, "out", "T=4"), "int is no model"),
        (lambda: graphfix.ship(MODEL, 3, "T=4"), "int is no path"),
        (lambda: graphfix.ship(MODEL, "out", {"T": "x"}), "give sizes by the name of a dim"),
        (lambda: graphfix.ship(MODEL, "out", "T"), "write NAME=SIZE"),
        (lambda: graphfix.ship(MODEL, "out", "T=4", cache="8"), "give sizes"),
        (lambda: graphfix.load(3), "int is no path"),
        (lambda: graphfix.save(ir.from_proto(MODEL), 3), "int is no path"),
        (lambda: graphfix.Session(3), "int is no path"),
    ],
)
def test_a_wrong_argument(call: Callable[[], object], says: str) -> None:
    with pytest.raises(GraphfixError, match=says):
        call()


def test_feeds_of_lists_and_sizes_of_numpy_are_taken() -> None:
    assert graphfix.verify(MODEL, MODEL, feeds={"x": ONES["x"].astype(np.float32)})
    assert graphfix.verify(MODEL, MODEL, dims={"T": np.int64(3)}).dims
    with pytest.raises(GraphfixError, match="has shape"):
        graphfix.verify(MODEL, MODEL, feeds={"x": [1.0, 2.0]})


def test_models_in_memory_are_timed() -> None:
    done = graphfix.bench(
        [MODEL, ir.from_proto(MODEL)], ep="cpu", dims={"T": [8]}, processes=1, runs=1, seconds=0.0
    )
    assert done.ok
    assert done.dims == {"T": 8}

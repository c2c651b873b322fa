"""The whole job on files: what is written, what is not, and what is said of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Match, NodePass, Safety
from graphfix.editing.exclusions import NO_EXCLUSIONS
from graphfix.engine.report import Report
from graphfix.errors import FeedError, GraphfixError, ModelError, UsageError
from graphfix.files import io
from graphfix.job import one_file, planning
from graphfix.job.culprits import Culprits
from graphfix.proof.verdict import Verdict
from graphfix.runtime import python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.editing.builder import Builder
    from graphfix.facts.view import View

ATTENTION = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 8] x, int64[B] lengths) => (float[B, T, 8] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] axis = {1},
     float inf = {-inf}>
    {
        shape = Shape (x) t = Gather (shape, one) index = Range (zero, t, one)
        row = Unsqueeze (index, first)
        until = Unsqueeze (lengths, axis)
        hidden = GreaterOrEqual (row, until)
        wide = Unsqueeze (hidden, axis)
        q = Tanh (x)
        k = Transpose <perm = [0, 2, 1]> (q)
        scores = MatMul (q, k)
        masked = Where (wide, inf, scores)
        weights = Softmax <axis = -1> (masked)
        y = MatMul (weights, x)
    }"""
UNBOUNDED = ATTENTION.replace("Tanh", "Identity")


@dataclass(frozen=True)
class Wrong(NodePass[Match]):
    """Softmax(x) becomes Softmax(1.01 x): nearly right, which verification must see."""

    name: ClassVar[str] = "wrong"
    safety: ClassVar[Safety] = "exact"
    anchors: ClassVar[tuple[str, ...]] = ("Softmax",)

    by: float = 1.01

    def match(self, node: ir.Node, view: View) -> Match | None:
        return None if node.metadata_props else Match(node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        scaled = op.Mul(match.node.inputs[0], np.array(self.by, np.float32))
        return op.Softmax(scaled, axis=-1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(ATTENTION), path)
    return path


def listing(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir())


def test_a_repaired_model_is_verified_and_written_beside(file: Path) -> None:
    report = graphfix.repair_file(file, passes="additive-mask,cumsum-index")
    assert report.ok
    assert report.changed
    assert report.verdict is not None
    assert len(report.verdict.cases) >= 3
    assert report.output == str(file.with_name("model.fixed.onnx"))
    ops = [n.op_type for n in onnx.load(report.output).graph.node]
    assert "Where" not in ops
    assert "Range" not in ops


def test_a_failed_verdict_writes_nothing_and_names_the_tensor(file: Path) -> None:
    report = graphfix.repair_file(file, passes=[Wrong()])
    assert not report.ok
    assert report.output is None
    assert listing(file.parent) == ["model.onnx"]
    assert report.verdict.first_divergence.tensor == "weights"


def test_what_the_original_hid_must_stay_hidden(tmp_path: Path) -> None:
    # Without a bound on the scores, padding of 1e4 is not hidden by a floor of -1e4.
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(UNBOUNDED), path)
    report = graphfix.repair_file(path, strict=True)
    assert not report.ok
    assert "padding" in report.verdict.worst.case
    assert [p.advice for p in report.passes if "floor=-1e9" in p.advice]
    assert graphfix.repair_file(path, passes="additive-mask:floor=-1e12").ok


def test_a_difference_within_the_tolerance_passes(file: Path) -> None:
    loose = graphfix.Tolerance(max_abs=10.0, cosine=-1.0)
    assert graphfix.repair_file(file, passes=[Wrong()], tolerance=loose).ok


def test_without_verification_nothing_is_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was run")

    monkeypatch.setattr("graphfix.job.one_file.prove", refuse)
    report = graphfix.repair_file(file, passes=[Wrong()], check=False)
    assert report.output is not None
    assert report.verdict is None


def test_a_dry_run_writes_nothing(file: Path) -> None:
    report = graphfix.repair_file(file, dry_run=True)
    assert report.changed
    assert report.output is None
    assert listing(file.parent) == ["model.onnx"]


def test_nothing_to_repair_writes_the_same_bytes(file: Path) -> None:
    first = graphfix.repair_file(file)
    again = graphfix.repair_file(first.output, file.with_name("again.onnx"))
    assert not again.changed
    assert again.ok
    assert Path(again.output).read_bytes() == Path(first.output).read_bytes()


def test_external_weights_are_referred_to(file: Path) -> None:
    folder = file.parent / "big"
    folder.mkdir()
    text = ATTENTION.replace("y = MatMul (weights, x)", "c = MatMul (weights, x) y = MatMul (c, w)")
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    model = ir.from_proto(proto)
    ir.save(model, folder / "m.onnx", external_data="m.data", size_threshold_bytes=64)
    report = graphfix.repair_file(folder / "m.onnx")
    assert report.ok
    assert listing(folder) == ["m.data", "m.fixed.onnx", "m.onnx"]
    elsewhere = file.parent / "elsewhere"
    elsewhere.mkdir()
    report = graphfix.repair_file(folder / "m.onnx", elsewhere / "m.onnx")
    assert report.ok
    model, data = listing(elsewhere)
    assert model == "m.onnx"
    assert re.fullmatch(r"m\.onnx\.[0-9a-f]{16}\.data", data)
    report = graphfix.repair_file(folder / "m.onnx", elsewhere / "n.onnx", [Wrong()])
    assert not report.ok
    model, data = listing(elsewhere)
    assert model == "m.onnx"
    assert re.fullmatch(r"m\.onnx\.[0-9a-f]{16}\.data", data)


def test_a_model_that_the_runtime_rejects_is_an_error_before_the_passes(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    onnx.save(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
            m (bool[1, 1, N] x) => (bool[1, 1, N] y) <bool[1, 1, 1] w = {1}>
            { y = Conv (x, w) }"""),
        path,
    )
    with pytest.raises(ModelError, match="does not load in ONNX Runtime"):
        graphfix.repair_file(path)
    assert listing(tmp_path) == ["bad.onnx"]


def test_given_inputs_are_used(file: Path) -> None:
    feeds = file.with_name("in.npz")
    x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    np.savez(feeds, x=x, lengths=np.array([5, 3]))
    report = graphfix.repair_file(file, feeds=feeds)
    assert report.ok
    assert len(report.verdict.cases) >= 1


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((1, 2, 8), np.float32)}, "lengths"),
        ({"x": np.zeros((1, 2, 8)), "lengths": np.array([1])}, "x"),
        ({"x": np.zeros((1, 2, 9), np.float32), "lengths": np.array([1])}, "x"),
    ],
)
def test_inputs_that_do_not_fit_say_how(
    file: Path, arrays: dict[str, np.ndarray], says: str
) -> None:
    feeds = file.with_name("in.npz")
    np.savez(feeds, **arrays)
    with pytest.raises(FeedError, match=says):
        graphfix.repair_file(file, feeds=feeds)
    assert listing(file.parent) == ["in.npz", "model.onnx"]


def test_given_sizes_are_used(file: Path) -> None:
    report = graphfix.repair_file(file, dims={"T": [6, 11]})
    sizes = {dims["T"] for dims in report.verdict.dims.values()}
    assert sizes == {6, 11}


def test_the_input_is_not_overwritten(file: Path) -> None:
    data = file.read_bytes()
    with pytest.raises(UsageError, match="the input itself"):
        graphfix.repair_file(file, file)
    assert file.read_bytes() == data
    assert listing(file.parent) == ["model.onnx"]


def test_the_kernels_of_a_run_are_counted_before_and_after(file: Path) -> None:
    report = graphfix.repair_file(file, passes="additive-mask,fold")
    counted = report.kernels
    assert counted is not None
    before, after = counted["before"], counted["after"]
    assert before is not None
    assert after is not None
    wanted = planning.plan(graphfix.load(file))
    assert before["directml"] == wanted.steps_on("graph", "dml")
    assert before["cpu"] == wanted.steps_on("cpu")
    assert before["all"] == before["directml"] + before["cpu"]
    assert after["all"] != before["all"]
    assert before["recompiled"] == wanted.recompiled
    assert report.to_json()["kernels"] == counted


def test_a_file_is_read_once_to_be_repaired_and_once_to_be_held_to(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted, kernels and places, is counted in what the proof has read."""
    read: list[Path] = []
    load = io._load_once
    monkeypatch.setattr(io, "_load_once", lambda path: read.append(path) or load(path))
    # Named passes: those of a profile are tried again where a count is above the original's.
    report = graphfix.repair_file(file, passes="additive-mask,cumsum-index")
    assert report.kernels is not None
    assert read.count(file) == 2


def test_kernels_are_counted_only_where_the_model_is_run_anyway(file: Path) -> None:
    assert graphfix.repair_file(file, check=False).kernels is None
    assert graphfix.repair_file(file, dry_run=True).kernels is None
    assert graphfix.repair_file(file, kernels=False).kernels is None
    asked = graphfix.repair_file(file, check=False, kernels=True).kernels
    assert asked is not None
    assert asked["before"] is not None


def test_a_model_that_does_not_load_has_no_kernels(tmp_path: Path) -> None:
    path = tmp_path / "conv.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (bool[1, 1, T] x, float[1, 1, 3] w) => (float[1, 1, U] y)
        { c = Conv (x, w) y = Relu (c) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    report = graphfix.repair_file(path, passes="fold", check=False, kernels=True)
    assert report.kernels is not None
    assert report.kernels["before"] is None
    assert report.kernels["after"] is None


def test_kernels_of_many_nodes_are_counted_only_if_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphfix.job.planning._TOO_MANY", 3)
    assert graphfix.repair_file(file).kernels is None
    assert graphfix.repair_file(file, kernels=True).kernels is not None


def test_nodes_of_functions_are_counted_as_often_as_they_are_called(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = " ".join(f"x{i + 1} = f.Outer (x{i})" for i in range(5))
    text = f"""<ir_version: 9, opset_import: ["" : 17, "f" : 1]>
        m (float[N] x0) => (float[N] x5) {{ {calls} }}
        <domain: "f", opset_import: ["" : 17, "f" : 1]> Outer (a) => (b) {{ c = f.Inner (a)
            b = f.Inner (c) }}
        <domain: "f", opset_import: ["" : 17]> Inner (a) => (b) {{ c = Relu (a) b = Neg (c) }}"""
    onnx.save(onnx.parser.parse_model(text), file)
    monkeypatch.setattr("graphfix.job.planning._TOO_MANY", 35)
    assert graphfix.repair_file(file).kernels is not None
    monkeypatch.setattr("graphfix.job.planning._TOO_MANY", 34)
    assert graphfix.repair_file(file).kernels is None


def test_kernels_of_what_did_not_change_are_counted_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(onnx.parser.parse_model(MASKLESS), file)
    counted: list[object] = []
    real = planning.plan
    monkeypatch.setattr(planning, "plan", lambda x, ep: counted.append(x) or real(x, ep=ep))
    report = graphfix.repair_file(file)
    assert len(counted) == 1
    assert report.kernels is not None
    assert report.kernels["before"] is not None
    assert report.kernels["after"] == report.kernels["before"]


FROZEN = """<ir_version: 9, opset_import: ["" : 17]>
    m (float[N, 4] x) => (float[N, 2, 2] y) <int64[3] shape = {-1, 2, 2}>
    { y = Reshape <allowzero = 1> (x, shape) }"""


def test_fixed_sizes_that_do_not_run_on_directml_are_said(file: Path) -> None:
    """One kernel for a whole model is no success where DirectML refuses it."""
    onnx.save(onnx.parser.parse_model(FROZEN), file)
    report = graphfix.repair_file(file, passes="fix-dims:N=2")
    told = "does not run correctly (1 error: reshape-allowzero at Reshape of y)"
    assert report.on_provider == f"{told}, predicted"
    assert not report.worse
    repaired = graphfix.repair_file(file, passes="reshape-allowzero")
    assert repaired.on_provider == f"{told} -> runs, predicted"


def test_a_profile_says_what_a_repair_costs(file: Path) -> None:
    """A mask of its own pays where layers share it; of one layer it takes two kernels more."""
    profile = graphfix.repair_file(file, check=False, kernels=True)
    assert profile.kernels is not None
    before, after = (profile.kernels[x] for x in ("before", "after"))
    assert before is not None
    assert after is not None
    assert after["directml"] > before["directml"]
    (row,) = [x for x in profile.kept if x.by == "additive-mask"]
    assert "more kernels on DirectML" in row.why
    assert not [x for x in profile.left if x.by == "additive-mask"]
    again = graphfix.repair_file(profile.output, file.with_name("again.onnx"), check=False)
    assert not again.changed


@dataclass(frozen=True)
class Heavier(NodePass[Match]):
    """Relu(x) becomes two kernels, and a Reshape that DirectML cannot read."""

    name: ClassVar[str] = "heavier"
    safety: ClassVar[Safety] = "exact"
    anchors: ClassVar[tuple[str, ...]] = ("Relu",)

    def match(self, node: ir.Node, view: View) -> Match | None:
        return None if node.metadata_props else Match(node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        flat = op.Reshape(match.node.inputs[0], np.array([-1], np.int64), allowzero=1)
        return op.Relu(op.Abs(op.Relu(flat)))


def test_more_errors_and_more_kernels_are_worse(file: Path) -> None:
    onnx.save(onnx.parser.parse_model(MASKLESS), file)
    report = graphfix.repair_file(file, passes=[Heavier()])
    assert report.ok
    assert report.worse == "errors 0 -> 1, kernels 1 -> 4, recompiled per new length 1 -> 4"
    assert report.to_json()["worse"] == report.worse
    assert graphfix.repair_file(file, passes="fold").worse == ""


def test_float16_that_only_adds_casts_leaves_the_model(file: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, 8] x, float[8, 8] u) => (float[B, 8] y)
        { h = MatMul (x, w) a = Tanh (x) b = MatMul (a, u) d = Relu (b) y = Add (d, h) }"""
    model = onnx.parser.parse_model(text)
    weights = onnx.numpy_helper.from_array(np.full((8, 8), 0.1, np.float32), "w")
    model.graph.initializer.append(weights)
    onnx.save(model, file)
    report = graphfix.repair_file(file, passes="float16:keep=h")
    assert report.ok
    assert not report.changed
    (left,) = report.left
    assert left.why.startswith("the weights keep their size, kernels 3 -> ")
    assert graphfix.repair_file(file, passes="float16").changed


MASKLESS = """<ir_version: 9, opset_import: ["" : 17]>
    m (float[N] x) => (float[N] y) { y = Relu (x) }"""
LEAK = "mean = ReduceMean <axes = [1]> (x) y = Sub (x, mean)"


class Promises(graphfix.Pass):
    """Changes nothing, and says that padding reaches nothing."""

    name = "promises"
    safety = "exact"
    safe_to_pad = True

    def sites(self, model: ir.Model) -> Iterator[graphfix.Match | graphfix.Skip]:
        yield from ()

    def repair(self, model: ir.Model) -> Iterator[graphfix.Change | graphfix.Skip]:
        yield from ()


@pytest.mark.parametrize(("body", "safe"), [("y = Relu (x)", True), (LEAK, False)])
def test_a_promise_of_safe_padding_is_held_also_where_nothing_was_repaired(
    tmp_path: Path, body: str, safe: bool
) -> None:
    text = f"m (float[B, T, 4] x) => (float[B, T, 4] y) {{ {body} }}"
    model = f'<ir_version: 8, opset_import: ["" : 17]> {text}'
    onnx.save(onnx.parser.parse_model(model), tmp_path / "m.onnx")
    report = graphfix.repair_file(tmp_path / "m.onnx", tmp_path / "o.onnx", [Promises()])
    assert report.padded is not None
    assert report.ok is safe
    assert (tmp_path / "o.onnx").exists() is safe


@pytest.mark.parametrize("spec", ["ilens-mask", "ilens-mask:axis=x.0"])
def test_where_no_leak_was_found_the_same_axis_is_padded(tmp_path: Path, spec: str) -> None:
    """A matrix of N rows: by its name N is a batch, which nobody would pad."""
    model = '<ir_version: 8, opset_import: ["" : 17]> m (float[N, 4] x) => (float[N, 4] y)'
    onnx.save(onnx.parser.parse_model(f"{model} {{ y = Relu (x) }}"), tmp_path / "m.onnx")
    report = graphfix.repair_file(tmp_path / "m.onnx", tmp_path / "o.onnx", spec)
    assert report.padded is not None
    assert report.ok


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("none/o.onnx", {}, "there is no folder"),
        (".", {}, "is a folder"),
        ("o.onnx", {"ep": "cuda"}, "CUDA is unavailable here"),
        ("o.onnx", {"feeds": "none.npz"}, "no such file"),
    ],
)
def test_what_needs_no_model_is_checked_before_it_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    options: dict[str, object],
    reason: str,
) -> None:
    monkeypatch.setattr(python, "available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(io, "load", lambda _: pytest.fail("the model was read"))
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(GraphfixError, match=reason):
        graphfix.fix(tmp_path / "m.onnx", "directml", tmp_path / target, **options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"feeds": {"x": np.ones((1, 2, 8), np.float32), "len": np.ones(1)}}, "no input of that"),
        ({"feeds": {"x": np.ones((1, 2, 8))}}, "'x' is float64, and the model wants float32"),
        ({"dims": {"TT": 4}}, "no input has a dim named 'TT'"),
    ],
)
def test_inputs_are_checked_before_anything_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(one_file, "repair_model", lambda *_, **__: pytest.fail("it was repaired"))
    if arrays := options.get("feeds"):
        np.savez(tmp_path / "f.npz", **arrays)
        options = {"feeds": tmp_path / "f.npz"}
    onnx.save(onnx.parser.parse_model(ATTENTION), tmp_path / "m.onnx")
    with pytest.raises(FeedError, match=reason):
        graphfix.fix(tmp_path / "m.onnx", "directml", tmp_path / "o.onnx", **options)


@pytest.mark.parametrize(
    ("outcomes", "tried", "ok"),
    [
        ([True], 1, True),
        ([False, True], 2, True),
        # An alternative that fails as well is followed by the next.
        ([False, False, True], 3, True),
        ([False, False, False], 3, False),
    ],
)
def test_alternatives_are_tried_until_one_is_proved(
    outcomes: list[bool], tried: int, ok: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    onnx.save(onnx.parser.parse_model(ATTENTION), tmp_path / "m.onnx")
    results: list[Report] = []

    def repair(*_: Any, **__: Any) -> Report:
        proved = outcomes[len(results)]
        verdict = Verdict(ok=proved, cases={}, reason="" if proved else "it differs")
        results.append(Report("", (), {}, {}, output="o" if proved else None, verdict=verdict))
        return results[-1]

    two = Culprits(exclusions=(NO_EXCLUSIONS, NO_EXCLUSIONS), searched="all of it")
    monkeypatch.setattr(one_file, "_repair_and_write", repair)
    monkeypatch.setattr(one_file, "find_culprits", lambda *_: two)
    report = one_file.repair_file(tmp_path / "m.onnx", None, "fold")
    assert len(results) == tried
    assert report.ok == ok
    assert report.output == ("o" if ok else None)
    assert (report.searched == "all of it") == (tried > 1)


def test_no_alternative_is_tried_where_a_failure_is_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    onnx.save(onnx.parser.parse_model(ATTENTION), tmp_path / "m.onnx")
    failed = Report("", (), {}, {}, verdict=Verdict(ok=False, cases={}, reason="it differs"))
    monkeypatch.setattr(one_file, "_repair_and_write", lambda *_, **__: failed)
    assert one_file.repair_file(tmp_path / "m.onnx", None, "fold", strict=True) is failed


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("m.onnx", "m.fixed.onnx"),
        ("a/m", "a/m.fixed.onnx"),
        ("a.b/m.x.pb", "a.b/m.x.fixed.pb"),
        (".", ".fixed.onnx"),
    ],
)
def test_the_default_target_stands_beside_the_model(source: str, target: str) -> None:
    assert one_file.default_target(Path(source)) == Path(target)

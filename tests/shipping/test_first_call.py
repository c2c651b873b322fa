"""A merged encoder-decoder: the caches of its encoder are made once, and the steps are right."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import FeedError
from graphfix.files import atomic_file, io
from graphfix.proof.by_channel import ChannelRule
from graphfix.shipped.manifest import NAME
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping import stream_bench
from graphfix.shipping.build import ship_file
from graphfix.shipping.chosen_inputs import constants_of, fix_and_fold_inputs
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.first_call import branch_input_of, find_first_call
from graphfix.shipping.stream_proof import prove
from graphfix.shipping.stream_steps import choose_running_plan, run_sequences
from tests.passes.cached import CAUSAL, SIZES, table
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

    Arrays = dict[str, np.ndarray[Any, Any]]

CPU, LATER = ["CPUExecutionProvider"], "fix-input:use_cache_branch=true"
CONTAINERS = parse_containers(["S=1,4", "made=6"])
CROSS = {"past_cross_key": "present_cross_key", "past_cross_value": "present_cross_value"}
OWN = {"past_key": "present_key", "past_value": "present_value"}
# As optimum names dims: what goes in is half of something, and what is cached has another name.
MERGED = f"""<ir_version: 8, opset_import: ["" : 17]>
merged (bool use_cache_branch, float[B, S, 4] x, float[B, E, 4] encoded,
    float[B, past, 4] past_key, float[B, past, 4] past_value,
    float[B, made, 4] past_cross_key, float[B, made, 4] past_cross_value)
    => (float[B, S, 4] y, float[B, grown, 4] present_key, float[B, grown, 4] present_value,
    float[B, any, 4] present_cross_key, float[B, any, 4] present_cross_value)
<{table("wk", 4, 4)}, {table("wv_", 4, 4)}, {table("cross_k", 4, 4)}, {table("cross_vv", 4, 4)},
 float[0, 1, 4] empty = {{}}, int64 nought = {{0}}, int64 one = {{1}}, int64 last = {{-1}},
 float low = {{-10000.0}}>
{{
    present_cross_key, present_cross_value, ck, cv = If (use_cache_branch) <
        then_branch = later () => (float[z, y1, 4] a, float[z, y1, 4] b, float[B, e, 4] c,
            float[B, e, 4] d) {{ a = Identity (empty) b = Identity (empty)
            c = Identity (past_cross_key) d = Identity (past_cross_value) }},
        else_branch = first () => (float[B, e, 4] a, float[B, e, 4] b, float[B, e, 4] c,
            float[B, e, 4] d) {{ a = MatMul (encoded, cross_k) b = MatMul (encoded, cross_vv)
            c = Identity (a) d = Identity (b) }}>
    k = MatMul (x, wk) v = MatMul (x, wv_)
    present_key = Concat <axis = 1> (past_key, k)
    present_value = Concat <axis = 1> (past_value, v)
    turned = Transpose <perm = [0, 2, 1]> (present_key) scores = MatMul (x, turned)
    {SIZES} {CAUSAL} weights = Softmax (hidden) inner = MatMul (weights, present_value)
    far = Transpose <perm = [0, 2, 1]> (ck) further = MatMul (inner, far)
    there = Softmax (further) y = MatMul (there, cv)
}}"""


def source_in(folder: Path, text: str = MERGED) -> Path:
    source = saved(text, folder / "merged.onnx")
    model = onnx.load(source)
    encoded = next(x for x in model.graph.input if x.name == "encoded")
    encoded.type.tensor_type.shape.dim[1].dim_param = "frames / 2"
    onnx.save(model, source)
    return source


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("merged")
    source = source_in(folder)
    done = ship_file(source, folder / "out", CONTAINERS, cache=(12,))
    assert done.ok, str(done.whole)
    return source, folder / "out"


class AsUsed:
    """The original: its first branch, then the other one, fed back what comes out."""

    def __init__(self, source: Path, encoded: np.ndarray[Any, Any]) -> None:
        self.session = graphfix_session(source)
        self.names = [x.name for x in self.session.get_outputs()]
        self.fed: Arrays = {x: np.zeros((1, 0, 4), np.float32) for x in OWN}
        self.fed |= {x: np.zeros((1, 1, 4), np.float32) for x in CROSS}
        self.fed |= {"encoded": encoded, "use_cache_branch": np.array(False)}

    def run(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        made = dict(zip(self.names, self.session.run(None, {**self.fed, "x": x}), strict=True))
        first = not self.fed["use_cache_branch"]
        again = OWN | CROSS if first else OWN
        self.fed |= {k: made[name] for k, name in again.items()}
        self.fed["use_cache_branch"] = np.array(True)
        return made["y"]


def graphfix_session(source: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(source, providers=CPU)


def drawn(seed: int, rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((1, rows, 4)).astype(np.float32)


def test_each_encoding_is_made_once(
    merged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = merged
    session = graphfix.Session(folder, providers=CPU)
    ran, step = [], session.step
    monkeypatch.setattr(session, "step", lambda one, *a: ran.append(one.file) or step(one, *a))
    stream = session.stream()
    for place, rows in enumerate((6, 3)):
        encoded = drawn(place, rows)
        grows = AsUsed(source, encoded)
        stream.reset()
        for step_, count in enumerate((5, 1, 1, 2)):
            x = drawn(step_, count)
            fed = {"x": x} if step_ > 1 else {"x": x, "encoded": encoded}
            np.testing.assert_allclose(stream.run(["y"], fed)[0], grows.run(x), rtol=0, atol=1e-5)
    assert ran.count("merged.first.onnx") == 2
    stream.reset()
    with pytest.raises(FeedError, match="'encoded' is missing"):
        stream.run(None, {"x": drawn(0, 1)})


def test_a_session_that_is_warmed_has_opened_the_first_call_too(
    merged: tuple[Path, Path],
) -> None:
    made = graphfix.Session(merged[1], providers=CPU, warm=True)._sessions.open_sessions
    assert {x.name for x in made} == {x.name for x in merged[1].glob("*.onnx")}


def test_a_host_may_give_the_caches_of_the_encoder(merged: tuple[Path, Path]) -> None:
    source, folder = merged
    grows = AsUsed(source, drawn(7, 5))
    grows.run(drawn(1, 4))
    fed = {k: x for k, x in grows.fed.items() if k not in ("encoded", "use_cache_branch")}
    x = drawn(2, 1)
    made = graphfix.Session(folder, providers=CPU).run(["y", "present_key"], {**fed, "x": x})
    np.testing.assert_allclose(made[0], grows.run(x), rtol=0, atol=1e-5)
    np.testing.assert_allclose(made[1], grows.fed["past_key"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("fed", "told"),
    [
        ({}, "the input 'encoded' is missing"),
        ({"encoded": drawn(0, 7)}, "made is 7, and the containers hold 6"),
        ({"encoded": drawn(0, 6)[0]}, r"'encoded' has shape \[6, 4\]"),
    ],
)
def test_what_does_not_fit_is_a_sentence(merged: tuple[Path, Path], fed: Arrays, told: str) -> None:
    stream = graphfix.Session(merged[1], providers=CPU).stream()
    with pytest.raises(FeedError, match=told):
        stream.run(None, {"x": drawn(1, 1), **fed})


def test_what_tokens_are_part_of_is_not_made_once(tmp_path: Path) -> None:
    text = MERGED.replace(
        "a = MatMul (encoded, cross_k)",
        "s = ReduceSum (x) more = Add (encoded, s) a = MatMul (more, cross_k)",
    )
    source = source_in(tmp_path, text)
    later = fix_and_fold_inputs(io.load(source), LATER)
    assert find_first_call(io.load(source), later) is None
    assert "encoded" in {x.name for x in later.graph.inputs}


def test_the_proof_tells_keys_from_values(merged: tuple[Path, Path], tmp_path: Path) -> None:
    source, folder = merged
    model = fix_and_fold_inputs(io.load(source), LATER)
    plan, constants, _ = choose_running_plan(source, model, CONTAINERS, (12,), ())
    steps, _ = run_sequences(plan, str(source), constants_of(source, model) | constants)
    assert prove(folder, steps, ChannelRule()).ok
    manifest = read_manifest(folder)
    assert manifest.stream is not None
    assert manifest.stream.opening is not None
    gives = dict(zip(CROSS, reversed(CROSS.values()), strict=True))
    opening = dataclasses.replace(manifest.stream.opening, gives=gives)
    stream = dataclasses.replace(manifest.stream, opening=opening)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for file in folder.iterdir():
        (wrong / file.name).write_bytes(file.read_bytes())
    text = dataclasses.replace(manifest, stream=stream).to_text()
    atomic_file.write_text(wrong / NAME, text)
    assert not prove(wrong, steps, ChannelRule()).ok


def test_steps_are_counted_with_the_first_call(merged: tuple[Path, Path]) -> None:
    source, folder = merged
    found = stream_bench.bench_stream(folder, source, ep="cpu", lengths=[3, 1, 1], processes=1)
    manifest = read_manifest(folder)
    assert manifest.stream is not None
    assert manifest.stream.opening is not None
    one, four = manifest.containers
    ran = [manifest.stream.opening.container, four, one, one]
    assert found.shipped.count.launched == sum(x.kernels["after"]["dispatches"] for x in ran)


def flag(nodes: str) -> ir.Model:
    """A model with a bool input, and what reads it; the If gives a constant."""
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        flagged (bool[1] use, float[1] x) => (float[1] y) <int64[1] front = {{0}}> {{
            {nodes} y = If (c) <
                then_branch = t () => (float[1] a) {{ a = Identity (x) }},
                else_branch = e () => (float[1] b) {{ b = Neg (x) }}> }}""")  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        ("c = Identity (use)", "use"),
        ("c = Squeeze (use, front)", "use"),
        ("u = Unsqueeze (use, front) c = Flatten (u)", "use"),
        ("c = Not (use)", ""),
        ("c = Identity (use) n = Not (use)", ""),
    ],
)
def test_an_input_selects_a_branch_if_it_does_nothing_else(nodes: str, name: str) -> None:
    assert branch_input_of(flag(nodes)) == name


def test_without_caches_of_an_encoder_there_is_no_first_call(tmp_path: Path) -> None:
    """Where the first call gives nothing that the later ones lack, all calls are alike."""
    source = source_in(tmp_path)
    later = fix_and_fold_inputs(io.load(source), LATER)
    kept = fix_and_fold_inputs(io.load(source), LATER)
    for value in kept.graph.outputs:
        value.name = f"other_{value.name}"
    assert find_first_call(io.load(source), kept) is None
    assert find_first_call(later.clone(), later) is None  # no branch is left
    call = find_first_call(io.load(source), later)
    assert call is not None
    assert dict(call.gives) == CROSS

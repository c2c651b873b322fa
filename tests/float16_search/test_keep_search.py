"""What must stay in float32 is found by running the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix import job
from graphfix.facts import shapes
from graphfix.feeds.case import Case
from graphfix.files.half_weights import KEPT_IN_FLOAT32_KEY
from graphfix.float16_search import float16_range, keep_search
from graphfix.float16_search.emulate import emulate_float16
from graphfix.float16_search.keep_search import search_kept_nodes
from graphfix.float16_search.trials import KeepSet, Trials
from graphfix.proof.budget import SearchBudget
from graphfix.proof.compare import HALF_GATE
from graphfix.proof.inner_tensors import TensorPairs
from graphfix.proof.verify import LoadedOriginal, Verdict
from graphfix.runtime.local_session import Session

RNG = np.random.default_rng(3)


def parse(signature: str, body: str, **weights: np.ndarray) -> ir.Model:
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]>\nm {signature} {{ {body} }}'
    )
    for name, array in weights.items():
        value = next(x for x in model.graph.inputs if x.name == name)
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        model.graph.register_initializer(value)
    return model


def f(*dims: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RNG.standard_normal(dims)).astype(np.float32)


# Each converted as the graph alone says misses the gate, or is lost on a device.
OVERFLOWS = parse(
    "(float[B, T, 16] x, float[16, 16] w, float[16, 16] v) => (float[B, T, 16] y)",
    """a = MatMul (x, w) b = Mul (a, a) c = Mul (b, a) d = Tanh (c) e = MatMul (d, v)
    y = Softmax (e)""",
    w=f(16, 16, scale=30),
    v=f(16, 16),
)
CANCELS = parse(
    "(float[B, T, 16] x, float[16, 16] w, float[16, 16] v, float far) => (float[B, T, 16] y)",
    """a = MatMul (x, w) b = Add (a, far) c = Tanh (a) d = Sub (b, far) e = MatMul (d, v)
    y = Add (e, c)""",
    w=f(16, 16, scale=0.3),
    v=f(16, 16, scale=0.3),
    far=np.array(3000, np.float32),
)
WIDE_NORM = parse(
    "(float[B, T, 16] x, float[16, 16] w, float[16] s) => (float[B, T, 16] y)",
    "a = MatMul (x, w) b = LayerNormalization (a, s, s) y = MatMul (b, w)",
    w=f(16, 16, scale=300),
    s=np.ones(16, np.float32),
)
GENTLE = parse(
    "(float[B, T, 16] x, float[16, 16] w) => (float[B, T, 16] y)",
    "a = MatMul (x, w) b = Tanh (a) y = MatMul (b, w)",
    w=f(16, 16, scale=0.3),
)


HEAVY = parse(
    "(float[B, 256, 256] x, float[256, 256] w) => (float[B, 256, 256] y)",
    "a = MatMul (x, w) b = Tanh (a) y = MatMul (b, w)",
    w=f(256, 256, scale=0.05),
)


def found(model: ir.Model) -> tuple[dict[str, str], ir.Model, bool]:
    copy = model.clone()
    chosen, result = search_kept_nodes(
        copy, graphfix.get_pass("float16"), tolerance=HALF_GATE, dims={"B": [1], "T": [9, 40]}
    )
    graphfix.run(copy, chosen)
    assert result.verdict is not None
    return result.reasons, copy, result.verdict.ok


def test_what_passes_as_it_is_keeps_nothing() -> None:
    reasons, after, ok = found(GENTLE)
    assert ok
    assert not reasons
    assert {x.const_value.dtype for x in after.graph.initializers.values()} == {ir.DataType.FLOAT16}


@pytest.mark.parametrize(
    ("model", "tensors", "why"),
    [
        (OVERFLOWS, {"c", "d"}, "is beyond float16 at"),
        (WIDE_NORM, {"b"}, "the mean square of what it takes reaches"),
        (CANCELS, {"b", "d"}, "the gate is missed otherwise"),
    ],
    ids=["overflow", "norm", "cancellation"],
)
def test_what_must_stay_is_found_and_named(model: ir.Model, tensors: set[str], why: str) -> None:
    plain = model.clone()
    graphfix.run(plain, "float16")
    reasons, after, ok = found(model)
    assert ok
    assert tensors <= {
        x.outputs[0].name for x in after.graph if KEPT_IN_FLOAT32_KEY in x.metadata_props
    }
    assert any(why in reason for reason in reasons.values())
    # Few of them: the products with weights are float16.
    assert "y" not in reasons or model is CANCELS
    verdict = graphfix.verify(model, after, tolerance=HALF_GATE, dims={"B": [2], "T": [23]})
    assert verdict.ok, str(verdict)
    if model is not WIDE_NORM:  # that one is right on the CPU, which norms in float32
        # As a device rounds it: ONNX Runtime's CPU adds and subtracts in float32 throughout.
        missed = graphfix.verify(
            model, emulate_float16(plain), tolerance=HALF_GATE, dims={"B": [2], "T": [23]}
        )
        assert not missed.ok


def test_the_job_finds_it_and_a_second_job_changes_nothing(tmp_path: Path) -> None:
    source, target, again = (tmp_path / f"{x}.onnx" for x in ("m", "half", "again"))
    ir.save(OVERFLOWS.clone(), source)
    report = job.repair_file(source, target, "float16", dims={"T": [9, 40]}, kernels=False)
    assert report.ok
    assert "keep=" in report.spec
    assert report.verdict is not None
    assert "of the largest element off" in str(report.verdict)
    reasons = " ".join(reason for _, reason in report.passes[0].skips)
    assert "is beyond float16 at" in reasons
    made = ir.load(target)
    assert {x.op_type for x in made.graph if KEPT_IN_FLOAT32_KEY in x.metadata_props} >= {
        "Mul",
        "Tanh",
    }
    second = job.repair_file(target, again, "float16", dims={"T": [9, 40]}, kernels=False)
    assert not second.changed
    assert again.read_bytes() == target.read_bytes()


def test_what_is_written_down_makes_the_same_again(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "half.onnx"
    ir.save(OVERFLOWS.clone(), source)
    report = job.repair_file(source, target, "float16", kernels=False)
    copy = OVERFLOWS.clone()
    graphfix.run(copy, report.spec)
    made = {x.outputs[0].name: x.op_type for x in ir.load(target).graph}
    assert made == {x.outputs[0].name: x.op_type for x in copy.graph}


def test_a_mask_is_no_large_activation() -> None:
    scores = f(4, 64)
    masked = np.where(np.arange(64) < 50, scores, np.float32(-30000))
    assert not float16_range.is_near_limit(masked)
    assert float16_range.is_near_limit(np.float32([1, 2, 20000, -30000]))
    lowest = np.where(np.arange(64) < 50, scores, np.float32(-3.4e38))
    gap = float16_range.measure_gap(
        lowest, np.where(lowest < -1, -30000, scores).astype(np.float16)
    )
    assert gap is not None
    assert gap.lost == 0
    lost = float16_range.measure_gap(scores, np.full_like(scores, np.inf).astype(np.float16))
    assert lost is not None
    assert lost.lost == scores.size


def test_rounding_is_that_of_float16() -> None:
    """To the last bit, of the smallest numbers too; infinite from 65520."""
    model = parse("(float16[N] x, float16[N] z) => (float16[N] y)", "y = Mul (x, z)")
    model.graph.outputs[0].dtype = ir.DataType.FLOAT16
    scales = (1, 200, 1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
    edges = [np.inf, -np.inf, 0, 1e9, -1e9, 65504, -65519, 65520, 2**-14, -(2**-14), 2**-24]
    x = np.concatenate([*(f(500, scale=scale) for scale in scales), edges]).astype(np.float32)
    session = Session(emulate_float16(model), optimize=False)
    made = session.run({"x": x, "z": np.ones_like(x)})["y"]
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(made, half)


def test_what_overflows_keeps_what_overflows_and_not_all_that_follows() -> None:
    """Infinity goes on to the end; it begins in one place."""
    layers = " ".join(
        f"h{i} = MatMul ({'g' if not i else f't{i - 1}'}, w) t{i} = Tanh (h{i})" for i in range(6)
    )
    model = parse(
        "(float[B, T, 16] x, float[16, 16] w, float big, float small) => (float[B, T, 16] y)",
        f"a = Mul (x, big) b = Mul (a, a) c = Log (b) g = Mul (c, small) {layers} y = Neg (t5)",
        w=f(16, 16, scale=0.3),
        big=np.array(2000, np.float32),
        small=np.array(0.1, np.float32),
    )
    reasons, after, ok = found(model)
    assert ok
    assert {"b", "c"} <= set(reasons) <= {"a", "b", "c", "g"}
    assert sum(x.op_type == "Cast" for x in after.graph) <= 4


def test_of_many_tensors_the_few_that_cost_are_kept() -> None:
    """What cancels is kept; layers before and behind it are float16."""
    model = parse(
        """(float[B, T, 16] x, float[16, 16] w, float[16, 16] v, float far)
        => (float[B, T, 16] y)""",
        """h = MatMul (x, w) a = Tanh (h) b = Add (a, far) d = Sub (b, far) e = MatMul (d, v)
        k = Tanh (e) l = MatMul (k, v) y = Tanh (l)""",
        w=f(16, 16, scale=0.3),
        v=f(16, 16, scale=0.3),
        far=np.array(300, np.float32),
    )
    reasons, after, ok = found(model)
    assert ok
    assert set(reasons) == {"b", "d"}
    assert set(reasons.values()) == {
        "the gate is missed otherwise (on made-up inputs; --feeds uses yours)"
    }
    assert {
        x.const_value.dtype for x in after.graph.initializers.values() if x.const_value.size > 1
    } == {ir.DataType.FLOAT16}


def test_where_an_attention_is_to_blame_its_scores_are_tried_first() -> None:
    """What is added to all scores is nothing to a Softmax; in float16 it makes them equal."""
    model = parse(
        """(float[B, T, 16] x, float[16, 64] p, float[64, 64] q, float[64, 64] v, float far)
        => (float[B, T, 64] y)""",
        """h = MatMul (x, p) n = Tanh (h) a = MatMul (n, q) t = Transpose <perm = [0, 2, 1]> (n)
        s = MatMul (a, t) m = Add (s, far) w = Softmax (m) c = MatMul (n, v) z = MatMul (w, c)
        y = Add (n, z)""",
        p=f(16, 64, scale=0.3),
        q=f(64, 64, scale=0.05),
        v=f(64, 64, scale=0.2),
        far=np.array(9000, np.float32),
    )
    tried: list[str] = []
    _, result = search_kept_nodes(
        model, graphfix.get_pass("float16"), tolerance=HALF_GATE, progress=tried.append
    )
    assert result.verdict is not None
    assert result.verdict.ok
    assert {"w"} < set(result.reasons) <= {"a", "t", "s", "m", "w"}
    # None kept, then the scores, from the products with weights on.
    kept = [x for x in tried if x.startswith("converting to float16: trying")]
    assert [x.rpartition("trying ")[2] for x in kept[:2]] == ["with 0 kept", "with 7 kept"]


def test_a_large_weight_of_what_stays_is_stored_in_float16_if_that_passes() -> None:
    model = parse(
        "(float[B, T, 40] x, float[40, 40] w, float[40, 40] v, float small) => (float[B, T, 40] y)",
        "a = MatMul (x, w) c = Mul (a, small) d = Tanh (c) y = MatMul (d, v)",
        w=f(40, 40, scale=12000),
        v=f(40, 40, scale=0.3),
        small=np.array(1e-4, np.float32),
    )
    copy = model.clone()
    chosen, result = search_kept_nodes(
        copy, graphfix.get_pass("float16"), tolerance=HALF_GATE, dims={"B": [1], "T": [9]}
    )
    assert result.verdict is not None
    assert result.verdict.ok
    assert "a" in result.reasons
    assert result.stored == ("w",)
    graphfix.run(copy, chosen)
    assert copy.graph.initializers["w"].dtype == ir.DataType.FLOAT16
    assert "store=w" in chosen.spec()
    # What the user keeps is float32 in the file as well.
    asked = graphfix.get_pass("float16", keep="a+c")
    _, kept = search_kept_nodes(model, asked, tolerance=HALF_GATE, dims={"B": [1], "T": [9]})
    assert kept.stored == ()


def test_what_only_the_loud_cases_of_verification_overflow_stays_too() -> None:
    """The CPU does not show it: it keeps float32 between a product and a norm."""
    model = parse(
        "(float[B, T, 16] x, float many, float[16] s, float[16, 16] w) => (float[B, T, 16] y)",
        "a = Mul (x, many) n = LayerNormalization (a, s, s) y = MatMul (n, w)",
        many=np.array(22.6, np.float32),
        s=np.ones(16, np.float32),
        w=f(16, 16, scale=0.3),
    )
    plain = model.clone()
    graphfix.run(plain, "float16")
    x = f(2, 5, 16)
    x[0, 3, 7] = 3e4
    assert np.isnan(Session(emulate_float16(plain), optimize=False).run({"x": x})["y"]).any()
    reasons, after, ok = found(model)
    assert ok
    assert {"a", "n"} <= set(reasons)
    device = Session(emulate_float16(after), optimize=False).run({"x": x})["y"]
    np.testing.assert_allclose(device, Session(model, optimize=False).run({"x": x})["y"], atol=1e-2)


def test_tensors_that_are_numbered_as_exporters_do_it() -> None:
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 16] x) => (float[B, T, 16] y) { h = Tanh (x) i = Mul (h, h) y = Exp (i) }""")
    names = iter(("input", "input.4", "y"))
    for node in model.graph:
        node.outputs[0].name = next(names)
    graphfix.run(model, "float16")
    made = emulate_float16(model)
    outputs = [x.name for node in made.graph for x in node.outputs]
    assert {"input", "input.4"} <= set(outputs)
    assert len(set(outputs)) == len(outputs)


def test_what_is_run_dozens_of_times_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[int]] = []
    looked = keep_search.find_overflows

    def seen(
        trials: Trials, kept: KeepSet, cases: Sequence[Case], has_time: Callable[[], bool]
    ) -> dict[str, str]:
        rows.append([x.feeds["x"].shape[0] for x in cases])
        return looked(trials, kept, cases, has_time)

    monkeypatch.setattr(keep_search, "find_overflows", seen)
    search_kept_nodes(HEAVY.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE)
    monkeypatch.setattr(keep_search, "_WORK", 3 * 2 * 256**3)  # of one row and of two
    search_kept_nodes(HEAVY.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE)
    monkeypatch.setattr(keep_search, "_WORK", 1)  # one runs, whatever it costs
    search_kept_nodes(HEAVY.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE)
    assert [max(x) for x in rows] == [3, 2, 1]


def test_a_candidate_that_misses_the_gate_is_run_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[list[bool]] = []

    def verdict(self: keep_search._KeepSearch, model: ir.Model, *, as_is: bool = False) -> Verdict:
        result = original(self, model, as_is=as_is)
        runs.append([all(x.ok for x in diffs) for diffs in result.cases.values()])
        return result

    original = keep_search._KeepSearch._judge_model
    monkeypatch.setattr(keep_search._KeepSearch, "_judge_model", verdict)
    search_kept_nodes(CANCELS.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE)
    assert any(not x[-1] for x in runs)
    assert all(all(x[:-1]) for x in runs)


def test_a_search_ends_with_its_tries_and_keeps_what_is_enough() -> None:
    kept: list[int] = []
    for most in (1, 4, 6):
        told: list[str] = []
        spending = SearchBudget(most)
        chosen, result = search_kept_nodes(
            CANCELS.clone(),
            graphfix.get_pass("float16"),
            tolerance=HALF_GATE,
            budget=spending,
            progress=told.append,
        )
        assert spending.tries == sum("trying with" in x for x in told) == most
        assert "d" in result.reasons
        ended = f"the search ended after {spending.spent} ("
        assert all(ended in reason for reason in result.reasons.values())
        after = CANCELS.clone()
        graphfix.run(after, chosen)
        assert graphfix.verify(CANCELS, emulate_float16(after), tolerance=HALF_GATE).ok
        kept.append(len(result.reasons))
    # What was not found to be right in float16 stays in float32: all, after a single try.
    assert len(CANCELS.graph) == kept[0] > kept[1] >= kept[2]


def test_a_search_goes_on_from_what_one_before_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = search_kept_nodes(CANCELS.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE)
    monkeypatch.setattr(keep_search, "find_overflows", None)  # it is known what overflows
    spending = SearchBudget(60)
    _, again = search_kept_nodes(
        CANCELS.clone(),
        graphfix.get_pass("float16"),
        tolerance=HALF_GATE,
        margin=0.4,
        budget=spending,
        known=first.reasons,
    )
    assert again.reasons == first.reasons
    assert spending.tries == 1
    # What is known is not enough: more is kept beside it.
    _, more = search_kept_nodes(
        CANCELS.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE, known={"c": "known"}
    )
    assert more.reasons["c"] == "known"
    assert "d" in more.reasons
    assert more.verdict is not None
    assert more.verdict.ok


def test_without_time_one_candidate_is_tried_and_the_smallest_part_of_the_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streamed: list[str] = []
    stream = Trials.stream_tensors

    def seen(self: Trials, candidate: ir.Model, case: Case) -> TensorPairs:
        streamed.append(case.name)
        return stream(self, candidate, case)

    monkeypatch.setattr(Trials, "stream_tensors", seen)
    spending = SearchBudget(60, -1.0, 9.0)
    _, result = search_kept_nodes(
        OVERFLOWS.clone(), graphfix.get_pass("float16"), tolerance=HALF_GATE, budget=spending
    )
    assert spending.tries == len(streamed) == 1
    assert {"c", "d"} <= set(result.reasons)


def test_what_a_candidate_computes_is_inferred_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inferred: list[ir.Model] = []
    infer = shapes.infer

    def seen(model: ir.Model) -> shapes.Shapes:
        inferred.append(model)
        return infer(model)

    monkeypatch.setattr(shapes, "infer", seen)
    trials = Trials(CANCELS.clone(), graphfix.get_pass("float16"), lambda _: None)
    trials.build_candidate(KeepSet())
    trials.build_candidate(KeepSet({"b": "why"}))
    assert inferred == [trials.before]
    copy = trials.before.clone()
    shapes.copy_shapes(trials.before, copy)
    mine, own = shapes.shapes_of(copy), infer(copy)
    for value in (*copy.graph.inputs, *(x for node in copy.graph for x in node.outputs)):
        assert mine.dims(value) == own.dims(value) is not None
        assert mine.dtype(value) == own.dtype(value)
        assert mine.known_elements(value) == own.known_elements(value)


def test_inner_tensors_are_looked_at_a_gibibyte_at_once() -> None:
    """A case says how large they would be; what runs here is small."""
    model = parse(
        "(float[B, T, 16] x) => (float[B, T, 16] y)",
        "a = Tanh (x) b = Tanh (a) c = Tanh (b) d = Tanh (c) y = Tanh (d)",
    )
    trials = Trials(model, graphfix.get_pass("float16"), lambda _: None)
    candidate = trials.build_candidate(KeepSet())
    names = trials.float_tensors
    assert len(names) == 5

    def runs(mebibytes: int) -> int:
        case = Case("large", {"B": 1, "T": (mebibytes << 20) // (8 * 16)}, {"x": f(1, 3, 16)})
        stream = trials.stream_tensors(candidate, case)
        assert [name for name, _, _ in stream.iter_pairs(names)] == names
        return stream.runs

    assert [runs(200), runs(300), runs(600)] == [1, 2, 5]


def test_what_cancels_before_a_branch_is_found() -> None:
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 16] x, bool much) => (float[B, T, 16] y)
        <float far = {3000.0}> {
            b = Add (x, far)
            d = Sub (b, far)
            y = If (much) <then_branch = t () => (float[B, T, 16] p) { p = Tanh (d) },
                else_branch = e () => (float[B, T, 16] q) { q = Softmax (d) }>
        }""")
    chosen, _ = search_kept_nodes(
        model, graphfix.get_pass("float16"), tolerance=HALF_GATE, dims={"B": [1], "T": [9]}
    )
    graphfix.run(model, chosen)
    assert {"b", "d"} <= {
        x.outputs[0].name for x in model.graph if KEPT_IN_FLOAT32_KEY in x.metadata_props
    }


PCM_SPECTRUM = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (int16[B, T] x) => (float[B, 2, F] y)
    <float[4, 1, 16] w = {{{", ".join(["0.5"] * 64)}}},
     int64[1] one = {{1}}, int64[2] half = {{2, 2}}>
    {{ f = Cast <to = 1> (x)  u = Unsqueeze (f, one)  s = Conv <strides = [8]> (u, w)
       a, b = Split <axis = 1> (s, half)  p = Mul (a, a)  q = Mul (b, b)  e = Add (p, q)
       r = Sqrt (e)  y = Sigmoid (r) }}"""


def test_a_spectrum_of_loud_samples_stays_in_float32() -> None:
    """Behind the Sigmoid no infinity shows: the tensors of a loud recording are looked at."""
    _, result = search_kept_nodes(
        ir.from_onnx_text(PCM_SPECTRUM), graphfix.get_pass("float16"), tolerance=HALF_GATE
    )
    assert {"s", "p", "q", "e"} <= set(result.reasons)


def test_all_inputs_have_the_sizes_that_a_user_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of verification, in which overflows are searched for."""
    originals: list[LoadedOriginal] = []

    class Recorded(LoadedOriginal):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            originals.append(self)

    monkeypatch.setattr(keep_search, "LoadedOriginal", Recorded)
    model, float16 = OVERFLOWS.clone(), graphfix.get_pass("float16")
    search_kept_nodes(model, float16, tolerance=HALF_GATE, margin=0.2, dims={"T": [9]})
    assert len(originals) > 1
    lengths = {case.feeds["x"].shape[1] for x in originals for case in x.cases}
    assert lengths == {9}

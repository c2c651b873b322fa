"""Runs of both models through branches that no case took."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.proof import forced_branches
from graphfix.proof.baseline import Baseline
from graphfix.proof.compare import Array, Tolerance
from graphfix.proof.forced_branches import ForcedBranches
from graphfix.runtime.port import Feeds

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
RARE = """m (float[B, T] x) => (float[B, T] y) <int64 most = {5000}, int64 at = {1}>
    { s = Shape (x)  t = Gather (s, at)  long = Greater (t, most)
      y = If (long) <
          then_branch = long_graph () => (float[B, T] a) { a = Tanh (x) },
          else_branch = short_graph () => (float[B, T] b) { b = Neg (x) }> }"""


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def several(count: int) -> str:
    """Return a graph with so many Ifs whose then branches no case takes."""
    ifs = "".join(
        f"""c{n} = Greater (t, m{n})  y{n} = If (c{n}) <
            then_branch = then{n} () => (float[B, T] a{n}) {{ a{n} = Tanh (x) }},
            else_branch = else{n} () => (float[B, T] b{n}) {{ b{n} = Neg (x) }}>\n"""
        for n in range(count)
    )
    limits = ", ".join(f"int64 m{n} = {{{5000 + n}}}" for n in range(count))
    outputs = ", ".join(f"float[B, T] y{n}" for n in range(count))
    return f"""m (float[B, T] x) => ({outputs}) <int64 at = {{1}}, {limits}>
        {{ s = Shape (x)  t = Gather (s, at) {ifs} }}"""


def forced(
    before: str, after: str = "", tell: list[str] | None = None, cases: tuple[Case, ...] = ()
) -> ForcedBranches:
    graph, repaired = model(before), model(after or before)
    original = Baseline(graph, graph, lambda: repaired, Tolerance(), lambda _: None)
    original.run_cases(cases or None, None, None, 0)
    return ForcedBranches(original, graph, repaired, "cpu", ([] if tell is None else tell).append)


def same_feeds(case: Case) -> Feeds:
    return case.feeds


def run_all(branches: ForcedBranches) -> list[tuple[Case, Array, Array]]:
    """Return each case, and the output of both models."""
    pairs = branches.run_both(same_feeds)
    return [(run.case, run.outputs["y"], outputs["y"]) for _, run, outputs in pairs]


def case(size: int) -> Case:
    return Case(f"T={size}", {"B": 1, "T": size}, {"x": np.full((1, size), 0.5, np.float32)})


def test_both_models_take_the_branch_in_the_first_case_and_in_the_largest() -> None:
    told: list[str] = []
    cases = (case(4), case(2), case(9), case(7))
    branches = forced(RARE, RARE.replace("Tanh", "Sigmoid"), told, cases)
    assert branches.untaken == ["the then branch of If 'y'"]
    assert branches.runs == []
    runs = run_all(branches)
    assert [x.name for x, *_ in runs] == [
        "T=4, the then branch of If 'y' forced",
        "T=9, the then branch of If 'y' forced",
    ]
    for made, before, after in runs:
        np.testing.assert_allclose(before, np.tanh(made.feeds["x"]), rtol=1e-6)
        np.testing.assert_allclose(after, 1 / (1 + np.exp(-made.feeds["x"])), rtol=1e-6)
    assert told == [f"before, T={n}, the then branch of If 'y'" for n in (4, 9)]
    assert [x.case.name for x in branches.runs] == [x.name for x, *_ in runs]
    assert branches.untaken == []


def test_the_repaired_model_is_fed_its_own_inputs() -> None:
    branches = forced(RARE, RARE.replace("float[B, T] x)", "float[B, T] x, float z)"))
    fed: list[str] = []

    def feeds(made: Case) -> Feeds:
        fed.append(made.name)
        return {**made.feeds, "z": np.float32(1)}  # type: ignore[dict-item]

    assert len(list(branches.run_both(feeds))) == len(fed) == 2
    assert all("forced" in x for x in fed)


def test_no_run_is_of_garbage() -> None:
    masked = RARE.replace("(float[B, T] x)", "(float[B, T] x, float[B, T, T] q, int64[B, T] keep)")
    masked = masked.replace("(float[B, T] y)", "(float[B, T] y, float[B, T, T] z)").replace(
        "int64 at = {1}>\n    {",
        """int64 at = {1}, int64 zero = {0}, float fill = {-1e4}, int64[1] ax = {1}>
        { e = Equal (keep, zero) u = Unsqueeze (e, ax) w = Where (u, fill, q) z = Softmax (w)""",
    )
    branches = forced(masked)
    names = [x.name for x, *_ in run_all(branches)]
    assert len(names) == 2
    assert not any("in the padding" in x for x in names)


def test_a_branch_that_one_of_both_cannot_be_forced_to_take_stays_untaken() -> None:
    none = "m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }"
    branches = forced(RARE, none)
    assert run_all(branches) == []
    assert branches.untaken == ["the then branch of If 'y'"]


def test_a_case_that_the_original_cannot_run_so_is_left_out() -> None:
    tall = """c = Constant <value_ints = [1, 9]> () d = Reshape (x, c) a = Identity (d)"""
    branches = forced(RARE.replace("a = Tanh (x)", tall), cases=(case(4), case(9)))
    assert [x.name for x, *_ in run_all(branches)] == ["T=9, the then branch of If 'y' forced"]
    branches = forced(RARE.replace("a = Tanh (x)", tall), cases=(case(4), case(8)))
    assert run_all(branches) == []
    assert branches.untaken == ["the then branch of If 'y'"]
    assert branches.runs == []


def test_a_branch_in_which_the_original_does_not_load_stays_untaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branches = forced(RARE)

    def refuse(*_: object) -> None:
        raise ModelError("no")

    monkeypatch.setattr(forced_branches, "open_session", refuse)
    assert run_all(branches) == []
    assert branches.untaken == ["the then branch of If 'y'"]


def test_a_branch_that_the_repaired_model_does_not_run() -> None:
    tall = "c = Constant <value_ints = [1, 9]> () d = Reshape (x, c) a = Identity (d)"
    branches = forced(RARE, RARE.replace("a = Tanh (x)", tall), cases=(case(4),))
    message = "the repaired model does not run with the then branch of If 'y' forced: "
    with pytest.raises(ModelError, match=message):
        run_all(branches)
    assert branches.runs == []
    assert branches.untaken == ["the then branch of If 'y'"]


@pytest.mark.parametrize(
    ("count", "named", "more"),
    [(3, 3, []), (4, 4, []), (5, 4, ["1 more branch"]), (7, 4, ["3 more branches"])],
)
def test_few_branches_are_named(count: int, named: int, more: list[str]) -> None:
    untaken = forced(several(count)).untaken
    assert untaken == [f"the then branch of If 'y{n}'" for n in range(named)] + more


def test_few_branches_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forced_branches, "_MOST_FORCED", 2)
    branches = forced(several(3), cases=(case(4),))
    runs: Iterator[object] = branches.run_both(same_feeds)
    assert len(list(runs)) == 4  # the first case is the largest as well
    assert branches.untaken == ["the then branch of If 'y2'"]


LOOP = """m (float[B, T] x, int64 n) => (float[B, T] y) {
    c = Constant <value = bool {1}> ()
    y = Loop (n, c, x) < body = b (int64 i, bool k, float[B, T] s) => (bool o, float[B, T] r)
        { o = Identity (k) r = Neg (s) } > }"""


def test_trips_of_loops_are_named_beside_the_branches() -> None:
    assert forced(LOOP).untaken == ["more trips of Loop 'y'"]


def test_few_loops_are_named() -> None:
    body = """y%d = Loop (n, c, x) < body = b%d (int64 i%d, bool k%d, float[B, T] s%d)
        => (bool o%d, float[B, T] r%d) { o%d = Identity (k%d) r%d = Neg (s%d) } >\n"""
    loops = "".join(body % ((n,) * 11) for n in range(5))
    outputs = ", ".join(f"float[B, T] y{n}" for n in range(5))
    text = f"""m (float[B, T] x, int64 n) => ({outputs})
        {{ c = Constant <value = bool {{1}}> () {loops} }}"""
    assert forced(text).untaken == [f"more trips of Loop 'y{n}'" for n in range(4)]

"""A benchmark as it is printed: phases as rows, models as columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from graphfix.benchmark.bench_result import (
    BACK,
    FIRST,
    MEMORY,
    NEW_LENGTH,
    SESSION,
    STEADY,
    Benchmark,
    Observations,
    Result,
    Setup,
    Timed,
)
from graphfix.benchmark.timing import Claim, Ratio, Timing
from graphfix.cli._benchmark import model_letters, print_benchmark
from graphfix.proof.compare import OutputDiff
from graphfix.runtime.profiling import NodePlacement

FAST = Ratio(0.5, 0.4, 0.6, 0.96, 6)
SAME = Ratio(1.01, 0.9, 1.1, 0.96, 6)
SLOW = Ratio(12.3, 11.0, 13.0, 0.96, 6)


def timing(seconds: float) -> Timing:
    return Timing(((seconds,), (seconds,)))


def benchmark(*models: Timed, setup: Setup | None = None, **facts: Any) -> Benchmark:
    about = facts.pop("about", {"onnxruntime": "1.2", "Python": "3.11", "processor": "fast"})
    setups = (setup or Setup("any shape", {"T": 7}),)
    ep = facts.pop("ep", "cpu")
    on_ep = tuple(replace(x, ep=ep) for x in models)
    return Benchmark(ep, facts.pop("note", ""), about, setups, on_ep)


def model(name: str, result: Result | None = None, **facts: Any) -> Timed:
    return Timed(name, {"any shape": result or Result({STEADY: timing(0.01)})}, **facts)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "100")

    def lines(result: Benchmark, *, verbose: bool = False) -> list[str]:
        print_benchmark(result, verbose=verbose)
        return capsys.readouterr().out.splitlines()

    return lines


def row(lines: list[str], label: str) -> str:
    """Return the text of a row and what is wrapped below it."""
    start = next(i for i, x in enumerate(lines) if x.strip().startswith(label))
    text = [lines[start].strip()[len(label) :].strip()]
    for line in lines[start + 1 :]:
        if not line.startswith("      "):
            break
        text.append(line.strip())
    return " ".join(text)


@pytest.mark.parametrize(
    ("count", "last"), [(1, "A"), (2, "B"), (26, "Z"), (27, "A1"), (53, "A2"), (54, "B2")]
)
def test_models_have_letters(count: int, last: str) -> None:
    letters = model_letters(benchmark(*[model("m")] * count))
    assert (len(letters), letters[-1]) == (count, last)
    assert len(set(letters)) == count


def test_a_model_alone(printed: Any) -> None:
    lines = printed(benchmark(model("a.onnx", notes=("takes one shape",))))
    assert [x for x in lines if x.startswith("  A ")] == [
        "  A         a.onnx",
        "  A         takes one shape",
        "  A         nodes: 0 copies",
    ]
    assert "any shape, T=7" in lines
    assert not any("times as long" in x for x in lines)
    assert row(lines, "outputs") == "the same as A on the CPU; largest difference 0"
    assert row(lines, "runtime") == "onnxruntime 1.2, Python 3.11"
    assert row(lines, "machine") == "fast"
    assert not any(x.strip().startswith(("adapter", "clock")) for x in lines)


def test_what_is_known_of_the_machine(printed: Any) -> None:
    about = {"DirectML.dll": "1.15", "system": "Linux", "Wine": "9", "adapter": "a", "clock": "c"}
    lines = printed(benchmark(model("a"), about=about, note="no DirectML"))
    assert row(lines, "runtime") == "DirectML.dll 1.15"
    assert row(lines, "machine") == "Linux, Wine 9"
    assert (row(lines, "adapter"), row(lines, "clock")) == ("a", "c")


def test_phases_are_rows(printed: Any) -> None:
    result = Result({SESSION: timing(1.5), STEADY: timing(0.0123), BACK: timing(0.1234)})
    lines = printed(benchmark(model("a", result)))
    assert [" ".join(x.split()) for x in lines if x.startswith("  CPU")] == [
        "CPU session 1500 ms 0%",
        "CPU steady 12.3 ms 0%",
        "CPU back 123 ms 0%",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9999, "1000 ms"), (1.0, "1000 ms"), (0.999, "999 ms"), (0.0999, "99.9 ms"),
        (0.01, "10.0 ms"), (0.00999, "9.99 ms"), (0.001, "1.00 ms"), (0.0001, "0.10 ms"),
    ],
)  # fmt: skip
def test_milliseconds_have_three_digits(seconds: float, text: str, printed: Any) -> None:
    lines = printed(benchmark(model("a", Result({STEADY: timing(seconds)}))))
    assert text in row(lines, "CPU  steady")


def test_models_beside_each_other(printed: Any) -> None:
    phases = {FIRST: timing(0.02), STEADY: timing(0.01)}
    claims = {FIRST: Claim(SAME), STEADY: Claim(FAST)}
    unknown = {FIRST: Claim(SLOW), STEADY: Claim(None, "too few turns")}
    lines = printed(
        benchmark(
            model("a", Result(phases)),
            model("b", Result(phases, claims)),
            model("c", Result({STEADY: timing(0.01)}, unknown)),
        )
    )
    assert row(lines, "CPU  first run").split() == [
        *("20.0", "ms", "0%"), *("20.0", "ms", "0%", "~1"), "-",
    ]  # fmt: skip
    assert row(lines, "CPU  steady").split() == [
        *("10.0", "ms", "0%"), *("10.0", "ms", "0%", "x0.50"), *("10.0", "ms", "0%", "?"),
    ]  # fmt: skip
    header, *rows = (x for x in lines if x.startswith(("              ", "  CPU")))
    assert [header.index(x) for x in "ABC"] == [header.index("A") + 26 * n for n in range(3)]
    assert all(x.index("ms") > header.index("A") for x in rows)
    assert row(lines, "x ") == "times as long as A; ~1: no difference was seen; ?: unknown"
    assert row(lines, "B / A").startswith("CPU, any shape, steady: 0.500 of the time (0.400 to")
    assert row(lines, "C / A") == "CPU, any shape, steady: cannot tell: too few turns"


@pytest.mark.parametrize(
    ("ratio", "short", "long"),
    [
        (FAST, "x0.50", "steady: 0.500 of the time"),
        (SLOW, "x12", "steady: 12.300 of the time"),
        (SAME, "~1", "steady: no difference seen: 1.010 of the time"),
        (Ratio(9.99, 9.0, 11.0, 0.95, 6), "x9.99", "steady: 9.990"),
        (Ratio(10.0, 9.0, 11.0, 0.95, 6), "x10", "steady: 10.000"),
    ],
)
def test_how_a_ratio_is_said(ratio: Ratio, short: str, long: str, printed: Any) -> None:
    result = Result({STEADY: timing(0.01)}, {STEADY: Claim(ratio)})
    lines = printed(benchmark(model("a"), model("b", result)))
    assert row(lines, "CPU  steady").split()[-1] == short
    assert long in row(lines, "B / A")
    assert f"with {ratio.confidence:.0%} confidence, from 6 processes each" in row(lines, "B / A")


def test_a_narrow_terminal_has_fewer_models_beside_each_other(
    printed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [model(x) for x in "abc"]
    for columns, rows in (("100", 1), ("90", 2), ("30", 3)):
        monkeypatch.setenv("COLUMNS", columns)
        lines = printed(benchmark(*models))
        assert sum(x.startswith("  CPU  steady") for x in lines) == rows


def test_the_first_model_beside_its_copy(printed: Any) -> None:
    result = Result({STEADY: timing(0.01)}, copy={STEADY: SAME})
    lines = printed(benchmark(model("a", result), ep="dml"))
    assert row(lines, "A / A").startswith("DirectML, steady, the copy of A: 1.010 of the time")
    assert not any("A / A" in x for x in printed(benchmark(model("a"))))


def test_another_shape(printed: Any) -> None:
    setup = Setup("any shape", {"B": 1, "T": 7}, {"B": 1, "T": 9})
    assert "any shape, B=1 T=7, other shape T=9" in printed(benchmark(model("a"), setup=setup))
    setup = Setup("any shape", {})
    assert "any shape, no dim is symbolic" in printed(benchmark(model("a"), setup=setup))


def test_a_model_that_failed(printed: Any) -> None:
    lines = printed(benchmark(model("a"), model("b", Result(error="it died"))))
    assert "  B         CPU: failed: it died" in lines
    assert not any(x.strip().startswith("outputs") for x in lines)


def test_a_model_without_this_setup_is_left_out(printed: Any) -> None:
    lines = printed(benchmark(model("a"), Timed("b", {})))
    assert not any(x.strip().startswith("B         nodes") for x in lines)


def test_outputs_that_differ_by_little(printed: Any) -> None:
    seen = Observations((OutputDiff("y", "T=7", ok=True, max_abs=0.25),), NodePlacement())
    lines = printed(benchmark(model("a", Result({STEADY: timing(0.01)}, seen=seen))))
    assert row(lines, "outputs").endswith("largest difference 0.25")


FOUR = {FIRST: timing(0.02), NEW_LENGTH: timing(0.03), STEADY: timing(0.01)}
CLAIMS = {FIRST: Claim(SLOW), STEADY: Claim(FAST), MEMORY: Claim(SAME)}
CLAIMS[NEW_LENGTH] = Claim(None, "too few turns")
BOTH = (
    model("a", Result({**FOUR, BACK: timing(0.04)}, memory=(1 << 20, 3 << 20, 5 << 20))),
    model("b", Result(FOUR, CLAIMS, memory=(4 << 20,))),
)


def test_four_figures_stand_in_one_order(printed: Any) -> None:
    lines = printed(benchmark(*BOTH))
    rows = [" ".join(x.split()) for x in lines if x.startswith("  CPU  ")]
    assert rows == [
        "CPU first run 20.0 ms 0% 20.0 ms 0% x12",
        "CPU new length 30.0 ms 0% 30.0 ms 0% ?",
        "CPU steady 10.0 ms 0% 10.0 ms 0% x0.50",
        "CPU memory 3 MiB 4 MiB ~1",
        "CPU back 40.0 ms 0% -",
    ]
    steady, memory = (next(x for x in lines if x.startswith(f"  CPU  {y}")) for y in PAIR)
    assert steady.index(" x0.50") == memory.index(" ~1")


PAIR = (STEADY, MEMORY)


@pytest.mark.parametrize("verbose", [False, True])
def test_several_providers_have_a_row_each(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, second = (replace(x, model="m.onnx") for x in BOTH)
    compared = replace(
        benchmark(first),
        models=(first, replace(second, ep="dml")),
        also={"dml": {"onnxruntime": "1.24.4", "adapter": "a card"}},
        missing={"webgpu": "WebGPU is unavailable here"},
    )
    print_benchmark(compared, verbose=verbose)
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[:2] == ["  A         m.onnx on the CPU", "  B         m.onnx on DirectML"]
    assert told.err.strip().endswith("without WebGPU: WebGPU is unavailable here")
    start = next(i for i, x in enumerate(lines) if "first run" in x)
    assert lines[start + 1 : start + 4] == [
        "  A CPU      20.0 ms          30.0 ms          10.0 ms          3 MiB",
        "  B DirectML 20.0 ms          30.0 ms          10.0 ms          4 MiB",
        "    of A     12 (11-13)       ?                0.50 (0.40-0.60) ~1 (0.90-1.10)",
    ]
    assert max(map(len, lines)) <= 80
    assert any("iqr" in x for x in lines) == verbose
    assert row(lines, "B / A").startswith("DirectML, any shape, steady: 0.500 of the time (0.400")
    assert "  runtime   DirectML: onnxruntime 1.24.4" in lines
    assert "  adapter   a card" in lines

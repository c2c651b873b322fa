"""``graphfix bench --ship``: a stream on the original and in containers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfix.benchmark.timing import Claim, Ratio, Timing
from graphfix.cli import _stream
from graphfix.errors import UsageError
from graphfix.proof.by_channel import ChannelRule, OutputPair
from graphfix.shipping import stream_bench
from graphfix.shipping.end_to_end import compare_outputs
from graphfix.shipping.stream_cost import StreamBenchmark, StreamCost, StreamSide
from tests.cli.conftest import said

Captured = pytest.CaptureFixture[str]
SAME = compare_outputs([OutputPair("y", "clip of 9", np.ones(3), np.ones(3))], ChannelRule())
OTHER = compare_outputs([OutputPair("y", "clip of 9", np.ones(3), np.zeros(3))], ChannelRule())
COST = StreamCost(1200, 30, 4, 3 << 19, 2, 5 << 20)


@pytest.fixture(autouse=True)
def _wide(quiet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def result(
    original: StreamSide | None = None, shipped: StreamSide | None = None, **facts: Any
) -> StreamBenchmark:
    times = {"making sessions": Timing(((0.5,),)), "all clips": Timing(((0.2,),))}
    usual: dict[str, Any] = {"ep": "cpu", "note": "", "lengths": (9, 5), "of": "clip"}
    usual |= {"claims": {}, "proof": SAME}
    return StreamBenchmark(
        original=original or StreamSide("m.onnx", COST, times),
        shipped=shipped or StreamSide("folder", StreamCost(), {}),
        **{**usual, **facts},
    )


def printed(made: StreamBenchmark, capsys: Captured) -> list[str]:
    capsys.readouterr()
    _stream._print_result(made)
    return capsys.readouterr().out.splitlines()


def test_both_sides_are_printed(capsys: Captured) -> None:
    lines = printed(result(), capsys)
    assert lines[0] == "2 clips of 5 to 9, on cpu"
    assert lines[2].split(maxsplit=1) == ["outputs", str(SAME)]
    assert lines[4] == "  m.onnx"
    assert [" ".join(x.split()) for x in lines[5:9]] == [
        "kernels 1,200 on DirectML, 30 of them recompiled; 4 on the CPU; predicted",
        "moved 1.50 MiB of inputs and outputs; 2 copies within the runs; 5 MiB at the peak",
        "time making sessions 500.0 ms",
        "time all clips 200.0 ms, 100.00 ms a clip",
    ]
    assert [" ".join(x.split()) for x in lines[10:13]] == [
        "folder",
        "kernels unknown: ONNX Runtime does not load it here",
        "moved 0.00 MiB of inputs and outputs",
    ]


def test_steps_are_added_up(capsys: Captured) -> None:
    lines = printed(result(of="step"), capsys)
    assert lines[0] == "2 steps that add 5 to 9, 14 in all, on cpu"
    assert not any("a step" in x for x in lines[1:])


def test_ratios_and_notes(capsys: Captured) -> None:
    claims = {
        "all clips": Claim(Ratio(0.5, 0.4, 0.6, 0.96, 6)),
        "first clip": Claim(None, "too few turns"),
    }
    lines = printed(result(claims=claims, notes=("a note",), note="a remark"), capsys)
    assert [" ".join(x.split()) for x in lines[-3:]] == [
        "ratio all clips: 0.50 of the time (0.40 to 0.60)",
        "ratio first clip: cannot tell: too few turns",
        "note a note",
    ]


@pytest.mark.parametrize(
    ("text", "lengths"), [("5\n9\n", [5, 9]), ("5 9 7", [5, 9, 7]), ("\n 5 \n\n", [5])]
)
def test_lengths_of_a_file(text: str, lengths: list[int], tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    path.write_text(text)
    assert _stream._read_lengths(str(path)) == lengths


def test_a_file_that_holds_none(tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    with pytest.raises(UsageError, match="cannot be read: "):
        _stream._read_lengths(str(path))
    path.write_text("5 x")
    with pytest.raises(UsageError, match="holds something else than lengths"):
        _stream._read_lengths(str(path))
    path.write_text(" \n")
    with pytest.raises(UsageError, match="is empty; write the length of each clip, one a line"):
        _stream._read_lengths(str(path))


@pytest.mark.parametrize("fails", [True, False])
def test_the_stream_is_timed(
    fails: bool, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, Any]] = []
    error = "it died" if fails else ""
    made = result(shipped=StreamSide("folder", COST, {}, error))

    def bench(*arguments: Any, **options: Any) -> StreamBenchmark:
        calls.append((arguments, options))
        return made

    monkeypatch.setattr(stream_bench, "bench_stream", bench)
    (tmp_path / "lengths").write_text("5 9")
    command = ("bench", "--ship", "folder", "--against", "m.onnx", "--ep", "cpu")
    code, out, err = said(capsys, *command, "--lengths", tmp_path / "lengths", "--processes", "2")
    assert code == int(fails)
    assert "2 clips of 5 to 9" in out
    assert ("graphfix: error: folder: it died" in err) == fails
    arguments, options = calls.pop()
    assert arguments == ("folder", "m.onnx")
    assert (options["ep"], options["lengths"], options["processes"]) == ("cpu", [5, 9], 2)
    assert options["clips"] == 30
    code, out, _ = said(capsys, *command, "--json", "--clips", "3")
    assert code == int(fails)
    assert json.loads(out)["ep"] == "cpu"
    assert calls.pop()[1]["lengths"] is None


def test_outputs_that_differ_are_a_failure(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = result(proof=OTHER)
    monkeypatch.setattr(stream_bench, "bench_stream", lambda *_, **__: made)
    command = ("bench", "--ship", "folder", "--against", "m.onnx", "--ep", "cpu")
    code, out, err = said(capsys, *command)
    assert code == 1
    assert out.splitlines()[2].startswith("  outputs   output 'y' ")
    assert "error: folder does not give what m.onnx gives: output 'y'" in err
    assert "graphfix verify m.onnx folder proves it again" in err
    code, out, _ = said(capsys, *command, "--json")
    assert code == 1
    assert json.loads(out)["outputs"]["ok"] is False


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ship", "folder"),
        ("--ship", "folder", "--against", "m.onnx", "n.onnx"),
        ("--ship", "folder", "--against", "m.onnx", "--report", "p.html"),
        (),
    ],
)
def test_what_a_stream_takes(arguments: tuple[str, ...], capsys: Captured) -> None:
    code, _, err = said(capsys, "bench", *arguments)
    assert code == 2
    text = " ".join(err.split())
    if arguments:
        assert "--ship DIR takes --against MODEL, no other models, no --report." in text
    else:
        assert "Name the models to time, or --ship DIR --against MODEL." in text

"""graphfix bench --ship: what a stream of clips costs, counted and timed."""

import json
from pathlib import Path

import pytest

from graphfix.cli import main
from graphfix.errors import UsageError
from graphfix.job import planning
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping.stream_bench import bench_stream
from graphfix.shipping.stream_cost import SESSIONS

Pair = tuple[Path, Path]
FIRST, CLIPS = "first clip", "all clips"


@pytest.fixture(scope="module")
def done(mean: Pair) -> object:
    return bench_stream(mean[1], mean[0], ep="cpu", lengths=[8, 5, 20, 8], processes=1)


def test_both_get_through_in_every_phase(done: object) -> None:
    assert done.ok
    for side in (done.original, done.shipped):
        assert set(side.phases) == {SESSIONS, FIRST, CLIPS}
        assert all(len(x.processes) == 1 for x in side.phases.values())


def test_what_is_launched_and_made_anew_is_counted(mean: Pair, done: object) -> None:
    plan = planning.plan_summary(mean[0])["run"]
    assert done.original.count.launched == 4 * plan["dispatches"]
    assert done.original.count.recompiled == 2 * plan["recompiled"]  # 5 and 20 are not 8
    small, large = (x.kernels["after"]["dispatches"] for x in read_manifest(mean[1]).containers)
    assert done.shipped.count.launched == 3 * small + large
    assert done.shipped.count.recompiled == 0


def test_padding_moves_more(done: object) -> None:
    def bytes_of(lengths: list[int], told: int) -> int:
        x = sum(n * 4 * 4 for n in lengths)
        pooled, frames = 4 * 3 * len(lengths), sum(4 * 3 * ((n + 1) // 2) for n in lengths)
        return x + (8 + told) * len(lengths) + pooled + frames  # a language; a length where told

    assert done.shipped.count.moved == bytes_of([8, 8, 20, 8], told=8)
    assert done.original.count.moved == bytes_of([8, 5, 20, 8], told=0)


def test_copies_within_a_run_are_counted(mean: Pair, done: object) -> None:
    plan = planning.plan_summary(mean[0])["run"]
    assert done.original.count.copies == 4 * plan["copies"]
    assert done.shipped.count.copies == 0


def test_no_ratio_comes_of_one_process(done: object) -> None:
    assert {x.ratio for x in done.claims.values()} == {None}
    assert "6 processes" in done.claims[CLIPS].why


def test_a_clip_that_fits_nowhere_is_refused(mean: Pair) -> None:
    with pytest.raises(UsageError, match="1 to 20 long"):
        bench_stream(mean[1], mean[0], ep="cpu", lengths=[21], processes=1)


def test_clips_are_drawn_from_a_seed(mean: Pair) -> None:
    drawn = [
        bench_stream(mean[1], mean[0], ep="cpu", clips=3, seed=s, processes=1).lengths
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(1 <= n <= 20 for n in drawn[0])


def test_the_command(mean: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("8\n20\n", encoding="utf-8")
    given = ["--ship", str(mean[1]), "--against", str(mean[0]), "--ep", "cpu", "--processes", "1"]
    assert main(["bench", *given, "--lengths", str(file)]) == 0
    told = capsys.readouterr().out
    assert "2 clips of 8 to 20, on cpu" in told
    assert "cannot tell" in told
    assert main(["bench", *given, "--lengths", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lengths"] == [8, 20]


@pytest.mark.parametrize("text", ["", "eight", None])
def test_lengths_that_are_none(
    mean: Pair, tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lengths.txt"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    given = ["--ship", str(mean[1]), "--against", str(mean[0]), "--ep", "cpu"]
    assert main(["bench", *given, "--lengths", str(file)]) == 2
    assert f"--lengths {file}" in capsys.readouterr().err.replace("\n", "")


def test_what_belongs_together(mean: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--ship", str(mean[1])]) == 2
    assert "--against" in capsys.readouterr().err
    assert main(["bench"]) == 2
    assert "Name the models" in capsys.readouterr().err

"""The zoo on a Dask cluster: workers come, die and are missing, and every model has its row."""

from __future__ import annotations

import _thread
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from graphfix.cli import main
from graphfix.model_zoo import dask_workers
from graphfix.model_zoo.model_process import Request
from graphfix.model_zoo.recipe import Recipe
from tests.systems import wine

if TYPE_CHECKING:
    from collections.abc import Iterator

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")


# Dask's own: threads that outlive their loop, sockets that the collector closes.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(wine(), reason="Dask's clock (metrics.resync) never comes to rest in Wine"),
    pytest.mark.xdist_group("dask"),
]
RELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"""

# What workers import: short work that leaves a trace of who did it.
SHORT = """
import os, time
from pathlib import Path

def short(data):
    name = data["recipe"]["id"]
    traces = Path(data["recipe"]["notes"])
    with (traces / name).open("a") as trace:
        trace.write(f"{os.getpid()}\\n")
    if name == "deadly":
        os.kill(os.getpid(), 9)
    time.sleep(0.3)
    return {"schema": 1, "id": name, "ok": True, "reason": ""}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "short_work.py").write_text(SHORT, encoding="utf-8")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made
    sys.path.remove(str(folder))
    del os.environ["PYTHONPATH"]


def requests(folder: Path, *names: str) -> list[Request]:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(RELU), path)
    traces = folder / "traces"
    traces.mkdir()
    return [Request(Recipe(n, path, notes=str(traces)), "cpu", str(folder)) for n in names]


def rows(cluster: Any, asked: list[Request]) -> dict[str, dict[str, Any]]:
    import short_work

    done = dask_workers.iter_rows(
        cluster.scheduler_address, asked, tell=print, work=short_work.short
    )
    return {row["id"]: row for row in done}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "AHEAD", 3)


def test_a_worker_killed_in_the_middle_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(8)]
    asked = requests(tmp_path, *names)
    traces = tmp_path / "traces"
    killed = []

    def kill_one() -> None:
        # A trace is there before its line is.
        while not (begun := [pid for x in traces.iterdir() for pid in x.read_text().split()]):
            time.sleep(0.01)
        killed.append(int(begun[0]))
        os.kill(killed[0], 9)

    killer = threading.Thread(target=kill_one)
    killer.start()
    found = rows(cluster, asked)
    killer.join()
    assert sorted(found) == names
    assert all(row["ok"] for row in found.values())
    # Its work was begun again by another process.
    again = [x.read_text().split() for x in traces.iterdir() if str(killed[0]) in x.read_text()]
    assert any(who[-1] != str(killed[0]) for who in again)


def test_work_that_kills_every_worker_ends_as_a_failed_row(cluster: Any, tmp_path: Path) -> None:
    found = rows(cluster, requests(tmp_path, "deadly", "mild"))
    assert found["mild"]["ok"]
    assert not found["deadly"]["ok"]
    assert "KilledWorker" in found["deadly"]["reason"]
    assert found["deadly"]["key"] == ""  # it is tried again next time
    deaths = (tmp_path / "traces/deadly").read_text().split()
    assert 1 < len(set(deaths)) <= 5


def test_the_command_line_does_the_same_there(
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / "a").mkdir()
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "a/model.onnx")
    recipe = "[bench]\nprocesses = 1\nruns = 1\n"  # what takes its time has its own tests
    (tmp_path / "a/model.toml").write_text(recipe, encoding="utf-8")
    (tmp_path / "b.onnx").write_bytes(b"no model")
    arguments = ["zoo", "--models", ".", "--dask", cluster.scheduler_address]
    assert main(arguments) == 1
    assert [json.loads(Path(f"build/zoo/{x}.json").read_text())["ok"] for x in "ab"] == [
        True,
        False,
    ]
    capsys.readouterr()
    assert main([*arguments, "a"]) == 0
    assert "a: cannot tell, known, " in capsys.readouterr().out


def test_directml_goes_to_workers_that_have_it(tmp_path: Path) -> None:
    kinds = {"able": {"dml": 1}, "plain": {}}
    workers = {
        name: {"cls": distributed.Worker, "options": {"nthreads": 1, "resources": resources}}
        for name, resources in kinds.items()
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False}}
    with distributed.SpecCluster(workers, scheduler) as mixed:

        def who(data: dict[str, Any]) -> dict[str, Any]:
            time.sleep(0.1)
            return {"id": data["recipe"]["id"], "by": distributed.get_worker().name}

        asked = requests(tmp_path, "a", "b", "c", "d")
        for ep, names in (("dml", {"able"}), ("cpu", {"able", "plain"})):
            there = [Request(r.recipe, ep, f"{r.key}-{ep}") for r in asked]  # type: ignore[arg-type]
            done = dask_workers.iter_rows(mixed.scheduler_address, there, tell=print, work=who)
            assert {row["by"] for row in done} == names


def test_a_worker_with_another_graphfix_refuses(tmp_path: Path) -> None:
    sent = {**requests(tmp_path, "a")[0].to_send(), "sources": "other"}
    row = dask_workers.run_at_worker(sent)
    assert not row["ok"]
    assert "has another graphfix; install the same there" in row["reason"]


def test_who_is_told_what_is_missing(tmp_path: Path) -> None:
    told: list[str] = []
    asked = [Request(r.recipe, "dml", r.key) for r in requests(tmp_path, "a")]
    dask_workers._warn_of_missing_workers([], asked, told.append)
    dask_workers._warn_of_missing_workers([{"resources": {}}], asked, told.append)
    dask_workers._warn_of_missing_workers([{"resources": {"dml": 1}}], asked, told.append)
    assert len(told) == 2
    assert "--resources dml=1" in told[1]


def test_ctrl_c_is_heard_while_a_scheduler_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask waits where Windows hears no signal, so that is done in another thread."""
    monkeypatch.setattr(dask_workers, "ANSWER_SECONDS", 3)
    # What a shell runs behind it does not hear SIGINT, and this may be run so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def press() -> None:
            with silent.accept()[0]:  # it is asked
                _thread.interrupt_main()
                over.wait(30)

        over = threading.Event()
        user = threading.Thread(target=press, daemon=True)
        user.start()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(KeyboardInterrupt):
            list(dask_workers.iter_rows(address, requests(tmp_path, "a"), tell=print))
        signal.signal(signal.SIGINT, before)
        given_up = [x for x in threading.enumerate() if x.name == dask_workers.ASKING]
        over.set()
        user.join()
    assert given_up
    given_up[0].join(60)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense"])
def test_nobody_there(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(dask_workers, "ANSWER_SECONDS", 1)
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "a.onnx")
    assert main(["zoo", "--models", ".", "--dask", address]) == 2
    assert "no scheduler answers there" in capsys.readouterr().err

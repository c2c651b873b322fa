"""``providers="auto"``: what it measures, remembers and says. Nothing is timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphfix
from graphfix.errors import UsageError
from graphfix.shipped import provider_choice, remembered_choice
from graphfix.shipped import session as module
from graphfix.shipped.provider_choice import ProviderChoice
from tests.shipped.test_session import Pair, alone, clip, same
from tests.shipped.test_stream import FULL, shipped

CPU, DML = "CPUExecutionProvider", "DmlExecutionProvider"
Measured = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which is not there yet; its name is none of ASCII."""
    home = tmp_path / "кэш 缓存"
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    return home / "graphfix"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Measured:
    """Each time that a session has measured: the openers. The CPU is always the fastest."""
    times: Measured = []

    def measure(
        openers: Mapping[str, Callable[[], Any]], usual: Sequence[str], *, container: str
    ) -> ProviderChoice:
        times.append({**openers, "usual": usual})
        openers[CPU]()()
        seconds = {name: 0.01 * (1 + i) for i, name in enumerate(openers)}
        return ProviderChoice(CPU, seconds, container=container)

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [DML, CPU])
    monkeypatch.setattr(module, "measure_providers", measure)
    return times


def files(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


def test_with_the_cpu_alone_nothing_is_measured(
    mean: Pair, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure_providers", lambda *_, **__: pytest.fail("measured"))
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["AzureExecutionProvider", CPU]
    )
    session = graphfix.Session(mean[1], providers="auto")
    assert session.get_providers() == [CPU]
    assert session.provider_choice == ProviderChoice(CPU)
    assert repr(session).endswith(
        "on CPUExecutionProvider; auto: CPU: no other provider is here, so nothing was measured>"
    )
    assert files(cache) == []
    same(session.run(None, clip(7)), alone(mean[0], clip(7)))


def test_it_measures_once_a_folder_and_says_so(
    mean: Pair, masked: Pair, measured: Measured, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "graphfix")
    session = graphfix.Session(mean[1], providers="auto")
    assert session.provider_choice is not None
    assert not session.provider_choice.remembered
    text = "CPU (measured now, a run of mean.20.onnx: CPU 10 ms; DirectML 20 ms)"
    assert repr(session).endswith(f"on CPUExecutionProvider; auto: {text}>")
    assert f"runs on {text}" in caplog.text
    same(session.run(None, clip(20)), alone(mean[0], clip(20)))
    assert len(session._sessions.open_sessions) == 1  # the one that was measured is kept
    again = graphfix.Session(mean[1], providers="auto")
    assert again.provider_choice is not None
    assert again.provider_choice.remembered
    assert again.provider_choice.seconds == session.provider_choice.seconds
    assert "auto: CPU (measured by an earlier session, a run of" in repr(again)
    assert len(measured) == len(files(cache)) == 1
    graphfix.Session(masked[1], providers="auto")
    assert len(measured) == len(files(cache)) == 2
    assert all(x["usual"] == [DML, CPU] for x in measured)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (onnxruntime, "__version__", "99.0"),
        (onnxruntime, "get_available_providers", lambda: ["WebGpuExecutionProvider", CPU]),
        (remembered_choice.platform, "processor", lambda: "another one"),
        (remembered_choice, "_devices_by_provider", lambda names: {x: ["new"] for x in names}),
    ],
    ids=["version", "provider", "processor", "device"],
)
def test_another_machine_measures_again(
    where: Any,
    name: str,
    value: Any,
    mean: Pair,
    measured: Measured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphfix.Session(mean[1], providers="auto")
    monkeypatch.setattr(where, name, value)
    graphfix.Session(mean[1], providers="auto")
    assert len(measured) == 2


def test_other_options_measure_again(mean: Pair, measured: Measured) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for more in ({}, {"share": True}, {"sess_options": options}):
        graphfix.Session(mean[1], providers="auto", **more)
    assert len(measured) == 3


def _edit(**changes: Any) -> Callable[[str], str]:
    def edit(text: str) -> str:
        data = json.loads(text)
        return json.dumps({**data, "choice": {**data["choice"], **changes}})

    return edit


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: "",
        lambda text: text[:40],
        lambda _: "[" * 100_000,
        lambda _: "[]",
        lambda _: "\0",
        lambda text: text.replace('"schema": 1', '"schema": 0'),
        lambda text: json.dumps({"key": json.loads(text)["key"]}),
        _edit(provider="CUDAExecutionProvider"),
        _edit(provider=[CPU]),
        _edit(seconds={CPU: 0.01}),
        _edit(seconds=[CPU, DML]),
        _edit(seconds={CPU: 0.01, DML: float("nan")}),
        _edit(seconds={CPU: "x", DML: 1}),
        _edit(seconds={CPU: 0.01}, reasons={DML: 3}),
        _edit(container=3),
        _edit(more=1),
    ],
)
def test_a_broken_file_is_measured_again(
    spoil: Callable[[str], str], mean: Pair, measured: Measured, cache: Path
) -> None:
    graphfix.Session(mean[1], providers="auto")
    (file,) = files(cache)
    whole = file.read_text(encoding="utf-8")
    file.write_text(spoil(whole), encoding="utf-8")
    assert graphfix.Session(mean[1], providers="auto").provider_choice
    assert len(measured) == 2
    assert files(cache) == [file]
    assert file.read_text(encoding="utf-8") == whole


@pytest.mark.parametrize("kind", ["a file", "no home", "a folder of the name"])
def test_without_a_place_to_remember_it_is_measured_each_time(
    kind: str, mean: Pair, measured: Measured, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "a file":
        cache.parent.write_text("", encoding="utf-8")
    elif kind == "no home":
        for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name)

        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", homeless)
    else:
        graphfix.Session(mean[1], providers="auto")
        (file,) = files(cache)
        file.unlink()
        file.mkdir()
        measured.clear()
    for _ in range(2):
        assert graphfix.Session(mean[1], providers="auto").get_providers() == [CPU]
    assert len(measured) == 2
    assert not [x for x in files(cache) if x.name.endswith(".part")]


def test_a_read_only_place_is_no_error(
    mean: Pair, measured: Measured, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")  # chmod says nothing to root

    monkeypatch.setattr(Path, "write_text", refuse)
    for _ in range(2):
        graphfix.Session(mean[1], providers="auto")
    assert len(measured) == 2
    assert files(cache) == []


def test_whoever_writes_at_once_leaves_one_whole_file(cache: Path) -> None:
    key: dict[str, Any] = {"devices": {CPU: [], DML: []}}
    choices = [ProviderChoice(CPU, {CPU: n / 7, DML: n / 3}) for n in range(1, 65)]

    def write_and_read(choice: ProviderChoice) -> ProviderChoice | None:
        remembered_choice.save_choice(key, choice)
        return remembered_choice.load_choice(key)

    with ThreadPoolExecutor(8) as threads:
        loaded = list(threads.map(write_and_read, choices))
    wanted = [replace(x, remembered=True) for x in choices]
    assert all(x in wanted for x in loaded)
    assert len(files(cache)) == 1


def test_a_failure_may_be_of_this_moment_and_is_not_remembered(
    mean: Pair, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here ONNX Runtime says that it has DirectML, and falls back to the CPU."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [DML, CPU])
    monkeypatch.setattr(provider_choice, "_call_within", lambda _, work: work())
    with pytest.warns(UserWarning, match="not in available provider names"):
        session = graphfix.Session(mean[1], providers="auto")
    assert session.get_providers() == [CPU]
    assert session.provider_choice is not None
    assert "fell back to CPUExecutionProvider" in session.provider_choice.reasons[DML]
    assert "DirectML does not run this folder" in caplog.text
    assert files(cache) == []
    same(session.run(None, clip(9)), alone(mean[0], clip(9)))


def test_a_stream_is_measured_at_a_small_step_behind_full_caches(
    tmp_path: Path, measured: Measured
) -> None:
    _, folder = shipped("causal and mask", tmp_path, (8, FULL))
    session = graphfix.Session(folder, providers="auto")
    assert len(measured) == 1
    assert session.provider_choice is not None
    name = session.provider_choice.container
    container = next(x for x in session.manifest.containers if x.file == name)
    assert container.sizes["S"] == 1
    assert FULL in container.sizes.values()
    assert session.stream()


def test_providers_are_set_to_auto_later(mean: Pair, measured: Measured) -> None:
    session = graphfix.Session(mean[1], [CPU])
    assert session.provider_choice is None
    session.set_providers("auto")
    assert session.provider_choice is not None
    session.set_providers([CPU])
    assert session.provider_choice is None
    assert len(measured) == 1


def test_another_text_than_auto(mean: Pair) -> None:
    with pytest.raises(UsageError, match="providers='CPUExecutionProvider': give a list of names"):
        graphfix.Session(mean[1], providers="CPUExecutionProvider")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="provider_options has one dict for each"):
        graphfix.Session(mean[1], providers="auto", provider_options=[{}])


def test_the_users_options_stay_as_they_are(mean: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    options = onnxruntime.SessionOptions()
    seen: list[bool] = []

    def make(_: object, options: Any, **__: object) -> Any:
        seen.append(options.enable_mem_pattern)
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    with pytest.raises(graphfix.ModelError, match="no adapter"):
        graphfix.Session(mean[1], options, [DML, CPU]).run(None, clip(7))
    assert seen == [False]
    assert options.enable_mem_pattern


def test_stand_ins_of_every_container_run(masked: Pair) -> None:
    session = graphfix.Session(masked[1], [CPU], warm=True)
    assert len(session._sessions.open_sessions) == len(session.manifest.containers)
    run = session._open_run(session.manifest.containers[-1], session._sessions)
    assert all(np.isfinite(x).all() for x in run())

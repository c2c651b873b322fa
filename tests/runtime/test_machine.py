"""Facts about a machine, for readers of timings."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from graphfix.runtime import _machine


class Windows:
    """What the script for Windows gives."""

    def __init__(self, **device: Any) -> None:
        self._device = device

    def adapter(self) -> dict[str, Any]:
        if not self._device:
            raise OSError("no DXGI")
        return self._device

    def file_version(self, path: str) -> str:
        assert path.endswith("DirectML.dll")
        return "1.15"

    def peak_memory(self) -> int:
        return 7


def about(provider: str, **device: Any) -> dict[str, Any]:
    return _machine.about(provider, lambda _: Windows(**device))


@pytest.fixture(autouse=True)
def _no_wine(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise AttributeError

    monkeypatch.setattr(_machine, "_wine_version", none)


def test_the_processor_and_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "_processor_name", lambda: "fast")
    monkeypatch.setattr(_machine.os, "cpu_count", lambda: 4)
    facts = about("CPUExecutionProvider")
    assert facts.keys() == {"processor", "clock"}
    assert facts["processor"] == "4 x fast"
    assert facts["clock"].endswith(" ns")
    monkeypatch.setattr(_machine.os, "cpu_count", lambda: None)
    assert about("CPUExecutionProvider")["processor"] == "fast"


def test_the_adapter_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = about("DmlExecutionProvider", name="card", driver="31", memory=3 << 20)
    assert facts["adapter"] == "card, driver 31, 3 MiB"
    assert facts["DirectML.dll"] == "1.15"
    assert about("DmlExecutionProvider", name="card", memory=0)["adapter"] == (
        "card, driver unknown, 0 MiB"
    )
    assert about("DmlExecutionProvider")["adapter"] == "unknown (no DXGI)"
    monkeypatch.setattr(_machine, "_query_nvidia", lambda _: ["card, 5", "other, 5"])
    facts = about("CUDAExecutionProvider")
    assert facts["adapter"] == "card, 5"
    assert "DirectML.dll" not in facts


def test_wine_says_that_the_card_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "_wine_version", lambda: "9")
    facts = about("DmlExecutionProvider", name="card", memory=0)
    assert facts["Wine"] == "9"
    assert facts["adapter"] == "a Vulkan device that Wine 9 calls card"


def test_the_peak_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = _machine.memory(lambda _: Windows())
    assert peak is not None
    assert peak == 7 if sys.platform == "win32" else peak > 1 << 20
    monkeypatch.setattr(_machine.sys, "platform", "win32")
    assert _machine.memory(lambda _: Windows()) == 7

    def fail(_: str) -> Any:
        raise RuntimeError

    assert _machine.memory(fail) is None


@pytest.mark.skipif(sys.platform == "win32", reason="there is no module resource")
@pytest.mark.parametrize(("platform", "factor"), [("darwin", 1), ("freebsd", 1024)])
def test_the_peak_memory_without_proc(
    platform: str, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    def no_file(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(_machine, "open", no_file, raising=False)
    monkeypatch.setattr(_machine.sys, "platform", platform)
    usage = type("Usage", (), {"ru_maxrss": 3})
    monkeypatch.setattr(resource, "getrusage", lambda _: usage)
    assert _machine.memory(lambda _: Windows()) == 3 * factor


def test_the_name_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _machine._processor_name()

    def no_file(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(_machine, "open", no_file, raising=False)
    monkeypatch.setattr(_machine.platform, "processor", lambda: "")
    monkeypatch.setattr(_machine.platform, "machine", lambda: "arm")
    assert _machine._processor_name() == "arm"
    monkeypatch.setattr(_machine.platform, "processor", lambda: "named")
    assert _machine._processor_name() == "named"


def test_a_program_is_asked_for_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> Any:
        assert command == ["nvidia-smi", "--q", "--format=csv,noheader,nounits"]
        assert options["check"]
        assert options["timeout"] > 0
        return subprocess.CompletedProcess(command, 0, "card, 5\n", "")

    monkeypatch.setattr(_machine.subprocess, "run", run)
    assert _machine._query_nvidia("--q") == ["card, 5"]

"""Steps of long work: each a process that may fail, none done twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from graphfix.runtime.process_group import ProcessGroup

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What a process said: its output, or why there is none."""

    out: str
    why: str = ""
    code: int = 0


_running: set[ProcessGroup] = set()
_stopped = threading.Event()


def stop_all() -> None:
    """End all steps that run in other threads, so that these raise, and begin no other."""
    _stopped.set()
    for group in list(_running):
        group.end_all()


def run(command: Sequence[str], seconds: float) -> Said:
    """Run a command to its end, or to the limit, at which all that it has started ends, too.

    Raises:
        InterruptedError: :func:`stop_all` was called.
    """
    if _stopped.is_set():
        raise InterruptedError
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=os.name != "nt",
    )
    together = ProcessGroup(process)
    _running.add(together)
    try:
        out, heard = process.communicate(timeout=seconds)
    except BaseException as error:  # what it has started may still write where it has ended
        together.end_all()
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return Said("", f"it did not end within {seconds:.0f} s", -1)
        raise
    finally:
        _running.discard(together)
    if _stopped.is_set():  # what it said is no result
        raise InterruptedError
    lines = [x.strip() for x in heard.decode("utf-8", "replace").splitlines() if x.strip()]
    why = f"exit code {process.returncode}: {lines[-1][:300] if lines else 'no word'}"
    code = process.returncode
    return Said(out.decode("utf-8", "replace"), why if code else "", code)


class Store:
    """What is known, by a hash of all that it depends on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, parts: Sequence[str], find: Callable[[], Json]) -> Json:
        """Return what was found before, or is found now and kept."""
        with contextlib.suppress(OSError, ValueError):
            known: Json = json.loads(self._known(parts).read_text(encoding="utf-8"))
            return known
        found = find()
        self.put(parts, found)
        return found

    def put(self, parts: Sequence[str], found: Json) -> None:
        """Keep what was found."""
        path = self._known(parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(found), encoding="utf-8")
        draft.replace(path)

    def knows(self, parts: Sequence[str]) -> bool:
        """Return whether :meth:`get` would find nothing again."""
        return self._known(parts).is_file()

    def _known(self, parts: Sequence[str]) -> Path:
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
        return self._folder / "known" / f"{name}.json"

    def made(self, name: str) -> Path:
        """Where a file that a tool makes goes."""
        path = self._folder / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def content(path: Path) -> str:
    """A hash of what a model computes with, its weights too; what it says of itself is left out."""
    data = path.read_bytes()
    digest = hashlib.sha256(data)
    with contextlib.suppress(Exception):  # a file that is no model is its bytes
        model = onnx.ModelProto.FromString(data)
        graph = model.graph
        del model.metadata_props[:]
        digest = hashlib.sha256(model.SerializeToString(deterministic=True))
        places = {
            entry.value
            for tensor in graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        for place in sorted(places):
            with (path.parent / place).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()

"""Steps of long work: each a process that may fail, none done twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
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


def run(command: Sequence[str], seconds: float) -> Said:
    """Run a command to its end, or to the limit, at which all that it has started ends, too."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=os.name != "nt",
    )
    together = ProcessGroup(process)
    try:
        out, heard = process.communicate(timeout=seconds)
    except BaseException as error:  # what it has started may still write where it has ended
        together.end_all()
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return Said("", f"it did not end within {seconds:.0f} s", -1)
        raise
    lines = [x.strip() for x in heard.decode("utf-8", "replace").splitlines() if x.strip()]
    why = f"exit code {process.returncode}: {lines[-1][:300] if lines else 'no word'}"
    code = process.returncode
    return Said(out.decode("utf-8", "replace"), why if code else "", code)


class Store:
    """What is known, by a hash of all that it depends on."""

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._folder = folder
        self._keep = keep

    def get(self, parts: Sequence[str], find: Callable[[], Json], judge: str = "") -> Json:
        """What was found before, or is found now and kept.

        ``judge`` is what else it depends on, the source of what counts and compares. A store that
        keeps takes what an earlier one found, too.
        """
        exact = self._known([*parts, judge])
        last = self._known(parts)
        for path in (exact, last) if self._keep else (exact,):
            with contextlib.suppress(OSError, ValueError):
                known: Json = json.loads(path.read_text(encoding="utf-8"))
                return known
        found = find()
        self.put(parts, found, judge)
        return found

    def put(self, parts: Sequence[str], found: Json, judge: str = "") -> None:
        """Keep what was found."""
        for path in (self._known([*parts, judge]), self._known(parts)):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part")
            draft.write_text(json.dumps(found), encoding="utf-8")
            draft.replace(path)

    def knows(self, parts: Sequence[str], judge: str = "") -> bool:
        """Whether :meth:`get` would find nothing again."""
        exact, last = self._known([*parts, judge]), self._known(parts)
        return exact.is_file() or (self._keep and last.is_file())

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

"""What was done already, by content: the same bytes, recipe and graphfix give the same result."""

import contextlib
import functools
import hashlib
import importlib.util
import json
from importlib import metadata
from pathlib import Path

from graphfix import version
from graphfix.files import atomic_file
from graphfix.json_types import plain
from graphfix.model_zoo.figures import Json
from graphfix.model_zoo.recipe import Recipe
from graphfix.runtime.provider import Ep

SCHEMA = 2
_DECIDES = ("onnx", "onnx-ir", "onnx-shape-inference", "onnxscript", "onnxruntime")
"""Packages that the result depends on."""


def key_of(recipe: Recipe, ep: Ep) -> str:
    """A hash of all that the result depends on: files, recipe, graphfix's source, provider."""
    runs_on = [f"{name} {_version(name)}" for name in _DECIDES]
    digest = hashlib.sha256(f"{SCHEMA} {sources()} {runs_on} {ep}".encode())
    # Not where the files are: the same model elsewhere is the same model.
    said = {k: v for k, v in vars(recipe).items() if k not in ("model", "feeds")}
    digest.update(json.dumps(said, sort_keys=True).encode())
    for file in recipe.files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


@functools.cache
def sources() -> str:
    """A hash of graphfix's source and its passes; the same on every system."""
    digest = hashlib.sha256(version.__version__.encode())
    homes = [Path(version.__file__).parent]
    passes = importlib.util.find_spec("graphfix.passes")  # elsewhere in an editable install
    homes += [Path(x) for x in (passes.submodule_search_locations or ())] if passes else []
    modules = {file for home in homes for kind in ("*.py", "*.csv") for file in home.rglob(kind)}
    for file in sorted(modules, key=lambda x: (x.name, x.read_bytes())):
        digest.update(file.name.encode() + file.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def known(path: Path, key: str | None = None) -> Json | None:
    """The result that lies at ``path``, if there is one, and with ``key`` only if it is of that."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        return None
    return row if key is None or row.get("key") == key else None


def keep(path: Path, row: Json) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.put_text(path, json.dumps(plain(row), indent=1) + "\n")


def _version(name: str) -> str:
    # On Windows onnxruntime is the package onnxruntime-directml, and with CUDA another one.
    for one in (name, f"{name}-directml", f"{name}-gpu") if name == "onnxruntime" else (name,):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"{metadata.version(one)} ({one})" if one != name else metadata.version(one)
    return "none"

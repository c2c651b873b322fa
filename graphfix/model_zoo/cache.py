"""The cache of rows, by content: same bytes, recipe and graphfix give the same row."""

import contextlib
import functools
import hashlib
import importlib.util
import json
from importlib import metadata
from pathlib import Path

from graphfix import version
from graphfix.files import atomic_file
from graphfix.json_types import to_plain
from graphfix.model_zoo.figures import Json
from graphfix.model_zoo.recipe import Recipe
from graphfix.providers.table import Ep
from graphfix.providers.versions import named_version

SCHEMA = 3
_DECIDES = ("onnx", "onnx-ir", "onnx-shape-inference", "onnxscript", "onnxruntime")
"""Packages that the result depends on."""


def key_of(recipe: Recipe, ep: Ep) -> str:
    """Return a hash of all that a row depends on: files, recipe, source, provider."""
    runs_on = [f"{name} {_package_version(name)}" for name in _DECIDES]
    digest = hashlib.sha256(
        f"{SCHEMA} {hash_sources()} {runs_on} {ep} {named_version(ep)}".encode()
    )
    # Without their paths: the same model in another folder is the same model.
    settings = {k: v for k, v in vars(recipe).items() if k not in ("model", "feeds")}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    for file in recipe.files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


@functools.cache
def hash_sources() -> str:
    """Return a hash of the source of graphfix and its passes; the same on every system."""
    digest = hashlib.sha256(version.__version__.encode())
    homes = [Path(version.__file__).parent]
    passes = importlib.util.find_spec("graphfix.passes")  # elsewhere in an editable install
    homes += [Path(x) for x in (passes.submodule_search_locations or ())] if passes else []
    modules = {file for home in homes for kind in ("*.py", "*.csv") for file in home.rglob(kind)}
    for file in sorted(modules, key=lambda x: (x.name, x.read_bytes())):
        digest.update(file.name.encode() + file.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def load_row(path: Path, key: str | None = None) -> Json | None:
    """Load the row at ``path``, or None; with ``key``, only if the row has that key."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        return None
    return row if key is None or row.get("key") == key else None


def save_row(path: Path, row: Json) -> None:
    """Write a row, all at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_text(path, json.dumps(to_plain(row), indent=1) + "\n")


def _package_version(name: str) -> str:
    # On Windows onnxruntime is the package onnxruntime-directml, and with CUDA another one.
    for package in (name, f"{name}-directml", f"{name}-gpu") if name == "onnxruntime" else (name,):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return (
                f"{metadata.version(package)} ({package})"
                if package != name
                else metadata.version(package)
            )
    return "none"

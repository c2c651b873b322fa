"""Whatever a manifest holds, a session is made of it or an error in one sentence."""

import copy
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfix
from graphfix.errors import GraphfixError, ModelError
from graphfix.shipped.manifest import NAME

Pair = tuple[Path, Path]
FEEDS = {"x": np.ones((1, 4, 5), np.float32), "language": np.array([2])}


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Each field, and each part of one."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, list):
        inner = list(enumerate(data))
    found = [path] if path else []
    return found + [x for key, value in inner for x in places(value, (*path, key))]


def changed(data: Any, path: tuple[Any, ...], value: object) -> Any:
    data = copy.deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


VALUES: tuple[object, ...] = (
    *(None, -1, 2**70, 1.5, True, "", "../x", [], {}, "nope"),
    *("9**9**9", "T*10**9", "Max()", "Mod(T, 0)", "T - 100", "T.real", "a" * 5000, [[]]),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda x: repr(x)[:12])
def test_a_field_of_another_kind(mean: Pair, tmp_path: Path, value: object) -> None:
    folder = tmp_path / "out"
    shutil.copytree(mean[1], folder)
    data = json.loads((folder / NAME).read_text(encoding="utf-8"))
    for path in places({k: v for k, v in data.items() if k not in ("provenance", "verdict")}):
        if path[-1] == "kernels" or "kernels" in path:
            continue
        text = json.dumps(changed(data, path, value))
        (folder / NAME).write_text(text, encoding="utf-8")
        with suppress(GraphfixError):  # anything else is a fault
            graphfix.Session(folder).run(None, FEEDS)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"schema": 1}'])
def test_what_is_no_manifest(mean: Pair, tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="ship the model again"):
        graphfix.Session(tmp_path)


def test_a_container_with_other_outputs(mean: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(mean[1], folder)
    data = json.loads((folder / NAME).read_text(encoding="utf-8"))
    data["outputs"][0]["name"] = "another"
    (folder / NAME).write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ModelError, match="'another' is in one of it and "):
        graphfix.Session(folder).run(None, FEEDS)


def test_no_names_are_all(mean: Pair) -> None:
    session = graphfix.Session(mean[1])
    assert len(session.run([], FEEDS)) == len(session.run(None, FEEDS)) == 2

"""A manifest with an impossible field is an error in one sentence, whatever the field is."""

import copy
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfix
from graphfix.errors import GraphfixError, ModelError
from graphfix.shipped.manifest import (
    NAME,
    Axis,
    Cache,
    Container,
    InputPort,
    Manifest,
    Opening,
    Port,
    StateLink,
    Streaming,
)

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


SOUND = Manifest(
    axis=Axis("T", "x", 1, 100.0, 2),
    batch="B",
    lengths="lengths",
    inputs=(InputPort("x", "tensor(float)", ("B", "T", 4), 0),),
    outputs=(Port("y", "tensor(float)", ("B", "floor(T/2)"), 0),),
    containers=(Container("a.onnx", {"B": 1, "T": 8}), Container("b.onnx", {"B": 1, "T": 16})),
    weights=("weights.data",),
    stream=Streaming(
        (Cache("T", "valid", True),),
        (StateLink("x", "y", 1),),
        opening=Opening(Container("first.onnx", {"B": 1}), ("x",), {"x": "y"}),
    ),
)
IMPOSSIBLE = (
    (("weights", 0), "../a", "'../a' is no file beside it"),
    (("containers", 0, "file"), "..", "'..' is no file beside it"),
    (("stream", "opening", "container", "file"), "a/b", "'a/b' is no file beside it"),
    (("containers",), [], "there are no containers"),
    (("containers", 1, "sizes"), {"B": 1}, "containers have sizes of different dims"),
    (("containers", 1, "sizes", "T"), -1, "the size of 'T' is -1"),
    (("containers", 1, "sizes", "T"), 2**62, "the size of 'T' is 4611686018427387904"),
    (("containers", 1, "sizes", "T"), True, "the size of 'T' is True"),
    (("inputs",), [], "there are no inputs"),
    (("outputs",), [], "there are no outputs"),
    (("inputs", 0, "type"), 3, "has a name or a type that is no text"),
    (("inputs", 0, "dims", 2), 1.5, "'x' has a dim 1.5"),
    (("inputs", 0, "dims", 2), "K", "which have no size"),
    (("inputs", 0, "dims", 2), 2**62, "which is no size"),
    (("inputs", 0, "rows"), 3, "rows of 'x' is 3, and there are 3 dims"),
    (("inputs", 0, "rows"), True, "rows of 'x' is True"),
    (("inputs", 0, "pad"), "0", "pad of 'x' is '0'"),
    (("batch",), "N", "batch is 'N'"),
    (("lengths",), 3, "lengths is 3"),
    (("axis", "dim"), "N", "axis names a dim without a size"),
    (("axis", "input"), "z", "an input that there is not"),
    (("axis", "axis"), -1, "axis is -1"),
    (("axis", "rate"), 0, "rate is 0"),
    (("axis", "rate"), "fast", "rate is 'fast'"),
    (("axis", "shortest"), 0, "shortest is 0"),
    (("axis", "shortest"), 9, "shortest is 9"),
    (("stream", "states", 0, "input"), "z", "the state 'z' is no input"),
    (("stream", "states", 0, "output"), "z", "the state 'x' is no input, or has no output"),
    (("stream", "states", 0, "axis"), 3, "axis of 'x' is 3"),
    (("stream", "opening", "inputs", 0), "z", "takes or gives what is no input"),
    (("stream", "opening", "gives"), {"z": "y"}, "takes or gives what is no input"),
    (("stream", "caches", 0, "dim"), "N", "the cache 'N' has no size"),
    (("stream", "caches", 0, "told"), None, "told is None"),
)


def test_a_sound_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(SOUND.to_text(), encoding="utf-8")
    assert Manifest.read(tmp_path) == SOUND


@pytest.mark.parametrize(("path", "value", "problem"), IMPOSSIBLE)
def test_each_impossible_field_is_named(
    tmp_path: Path, path: tuple[Any, ...], value: object, problem: str
) -> None:
    text = json.dumps(changed(json.loads(SOUND.to_text()), path, value))
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=re.escape(problem)):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("group", ["inputs", "outputs"])
def test_two_ports_of_one_name_are_an_error(tmp_path: Path, group: str) -> None:
    data = json.loads(SOUND.to_text())
    data[group] *= 2
    (tmp_path / NAME).write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ModelError, match=f"two {group} have the same name"):
        Manifest.read(tmp_path)

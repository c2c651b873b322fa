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
from graphfix.shipped.derived_size import DerivedSize
from graphfix.shipped.manifest import (
    NAME,
    Axis,
    Cache,
    Container,
    FileRecord,
    InputPort,
    Manifest,
    Opening,
    Port,
    StateLink,
    Streaming,
)
from graphfix.shipped.manifest_file import is_file_name, read_manifest

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


HASH = "0123456789abcdef" * 4
SOUND = Manifest(
    axis=Axis("T", "x", 1, 100.0, 2),
    batch="B",
    lengths="lengths",
    inputs=(
        InputPort("x", "tensor(float)", ("B", "T", 4), 0),
        InputPort("m", "tensor(int32)", ("B", "T"), 0, "mask", 0.0, 1.0, counted=True),
    ),
    outputs=(Port("y", "tensor(float)", ("B", "floor(T/2)"), 0),),
    containers=(Container("a.onnx", {"B": 1, "T": 8}), Container("b.onnx", {"B": 1, "T": 16})),
    derived=(DerivedSize("floor(T/2)", {"T": 1}, divide=2),),
    files=tuple(FileRecord(x, 7, HASH) for x in ("a.onnx", "b.onnx", "weights.data")),
)
SOUND_STREAM = Manifest(
    axis=Axis("S", "ids", 1),
    batch="B",
    lengths=None,
    inputs=(
        InputPort("ids", "tensor(int64)", ("B", "S"), 0, "tokens"),
        InputPort("past_in", "tensor(float)", ("B", "P", 4), 0),
        InputPort("hidden", "tensor(float)", ("B", "E"), 0),
        InputPort("cross", "tensor(float)", ("B", "E"), 0),
    ),
    outputs=(
        Port("y", "tensor(float)", ("B", "S"), 0),
        Port("past_out", "tensor(float)", ("B", "P + S", 4), 0),
    ),
    containers=(
        Container("1.onnx", {"B": 1, "S": 1, "P": 8, "E": 6}),
        Container("4.onnx", {"B": 1, "S": 4, "P": 8, "E": 6}),
    ),
    derived=(DerivedSize("P + S", {"P": 1, "S": 1}),),
    files=tuple(FileRecord(x, 7, HASH) for x in ("1.onnx", "4.onnx", "first.onnx")),
    stream=Streaming(
        (Cache("P", "valid", grows=True),),
        (StateLink("past_in", "past_out", 1),),
        opening=Opening(Container("first.onnx", {"E": 6}), ("hidden",), {"cross": "y"}),
    ),
)
IMPOSSIBLE: tuple[tuple[str, object, str], ...] = (
    ("files.2.name", "../a", "files[2].name is '../a', which is no name of a file beside it"),
    ("files.2.name", "b.onnx", "there are two files with the name 'b.onnx'"),
    ("files.0.name", "c.onnx", "'a.onnx' is none of its files"),
    ("files.0.bytes", -1, "files[0].bytes is -1, which is no whole number from 0"),
    ("files.0.sha256", HASH[1:], "which is no hash of 64 hexadecimal digits"),
    ("files.0.sha256", HASH.upper(), "which is no hash of 64 hexadecimal digits"),
    ("containers.0.file", "..", "containers[0].file is '..', which is no name of a file"),
    ("containers.0.file", "b.onnx", "there are two containers with the file 'b.onnx'"),
    ("containers", [], "there are no containers"),
    ("containers.1.sizes", {"B": 1}, "containers have sizes of different dims"),
    ("containers.1.sizes.T", -1, "containers[1].sizes.T is -1"),
    ("containers.1.sizes.T", 2**62, "containers[1].sizes.T is 4611686018427387904"),
    ("containers.1.sizes.T", True, "containers[1].sizes.T is True"),
    ("containers.1.sizes.T", 8, "'b.onnx' is not larger than 'a.onnx'"),
    ("containers.1.sizes.B", 0, "a container has no row"),
    ("containers.0.kernels", {"after": {"cpu": "x"}}, "kernels.after.cpu is 'x'"),
    ("inputs", [], "there are no inputs"),
    ("outputs", [], "there are no outputs"),
    ("inputs.0.type", 3, "inputs[0].type is 3, which is no text"),
    ("inputs.0.name", "\ud800", "which is no text that UTF-8 has"),
    ("inputs.0.dims.2", 1.5, "inputs[0].dims[2] is 1.5"),
    ("inputs.0.dims.2", "K", "the dim ['K'] of 'x' has no size"),
    ("inputs.0.dims.2", 2**62, "inputs[0].dims[2] is 4611686018427387904"),
    ("inputs.0.rows", 3, "inputs[0].rows is 3, which is no whole number from 0 to 2"),
    ("inputs.0.rows", True, "inputs[0].rows is True"),
    ("inputs.0.pad", "0", "inputs[0].pad is '0', which is no number"),
    ("inputs.0.pad", 1e300, "inputs[0].pad is 1e+300, which is no number of tensor(float)"),
    ("inputs.1.pad", 0.5, "inputs[1].pad is 0.5, which is no number of tensor(int32)"),
    ("inputs.1.pad", 2**31, "inputs[1].pad is 2147483648, which is no number of tensor(int32)"),
    ("inputs.0.kind", "picture", "inputs[0].kind is 'picture', which is none of data, tokens"),
    ("inputs.1.valid", None, "no value of a mask where there is content"),
    (
        "inputs.0.counted",
        True,
        "counted is True, which is true of an input that is no mask",
    ),
    ("inputs.0.counted", 0, "inputs[0].counted is 0, which is neither true nor false"),
    ("batch", "N", "batch is 'N', which is no dim with a size"),
    ("batch", "T", "batch is 'T', which is padded"),
    ("lengths", 3, "lengths is 3, which is no text"),
    ("lengths", "x", "lengths is 'x', an input"),
    ("axis.dim", "N", "axis.dim is 'N', which is no dim with a size"),
    ("axis.input", "z", "axis.input is 'z', which is no input"),
    ("axis.axis", -1, "axis.axis is -1"),
    ("axis.axis", 3, "axis.axis is 3, and there are 3 dims"),
    ("axis.axis", 0, "axis is not where 'x' has 'T'"),
    ("axis.rate", 0, "axis.rate is 0.0, which is not above 0"),
    ("axis.rate", "fast", "axis.rate is 'fast', which is no number"),
    ("axis.rate", 10**400, "which is no finite number"),
    ("axis.shortest", 0, "axis.shortest is 0"),
    ("axis.shortest", 9, "axis.shortest is 9, which is no whole number from 1 to 8"),
    ("derived.0.name", "T", "derived[0].name is 'T', which is the name of another size"),
    ("derived.0.of", {"K": 1}, "derived[0].of.K is 1, which is a multiple of no dim"),
    ("derived.0.of.T", 0.5, "derived[0].of.T is 0.5"),
    ("derived.0.of.T", -1, "has no size 'floor(T/2)'"),
    ("derived.0.of.T", 2**61, "is 9.22e+18, which is no size"),
    ("derived.0.divide", 0, "derived[0].divide is 0"),
    ("derived.0.least", "1", "derived[0].least is '1'"),
    ("derived.0.exact", 1, "derived[0].exact is 1"),
    ("provenance", [], "provenance is [], which is no object"),
    ("provenance", {"names": {"T": []}}, "provenance.names.T is empty"),
    ("verdict", None, "verdict is None, which is no object"),
)
IMPOSSIBLE_STREAM: tuple[tuple[str, object, str], ...] = (
    ("stream.opening.container.file", "a/b", "file is 'a/b', which is no name of a file"),
    ("stream.opening.container.file", "1.onnx", "two containers with the file '1.onnx'"),
    ("stream.opening.container.sizes", {"N": 1}, "has a size of 'N', and no other"),
    ("stream.opening.inputs.0", "z", "takes or gives what is no input, or a state"),
    ("stream.opening.gives", {"z": "y"}, "takes or gives what is no input, or a state"),
    ("stream.opening.gives", {"past_in": "y"}, "takes or gives what is no input, or a state"),
    ("stream.opening.gives", {"cross": 3}, "stream.opening.gives.cross is 3"),
    ("stream.states.0.input", "z", "the state 'z' is no input"),
    ("stream.states.0.output", "z", "the state 'past_in' is no input, or has no output"),
    (
        "stream.states.0",
        {"input": "past_in", "output": "y", "axis": 2},
        "axis of the state 'past_in' is 2, and there are 2 dims",
    ),
    ("stream.states.0.axis", 3, "axis of the state 'past_in' is 3"),
    ("stream.states.0.axis", "1", "stream.states[0].axis is '1'"),
    ("inputs.1.type", "tensor(float16)", "'past_in' is tensor(float16), and its output tensor(fl"),
    ("stream.caches.0.dim", "N", "stream.caches[0].dim is 'N', which is no dim with a size"),
    ("stream.caches.0.dim", "S", "'S' is new and a cache"),
    ("stream.caches.0.told", None, "stream.caches[0].told is None"),
    ("stream.caches.0.told", "ids", "a cache has the input 'ids' of the original"),
    ("stream.caches.0.grows", 1, "stream.caches[0].grows is 1"),
    ("containers.1.sizes.P", 4, "the caches of a later container are smaller"),
    ("containers.1.sizes.S", 1, "two containers have the same sizes"),
    ("containers.0.sizes.S", 0, "a container takes nothing new"),
    ("stream.joins", "yes", "stream.joins is 'yes'"),
    ("stream.rolls", None, "stream.rolls is None"),
)


def field_of(path: str) -> tuple[Any, ...]:
    return tuple(int(x) if x.isdigit() else x for x in path.split("."))


def refused(folder: Path, data: object, problem: str) -> None:
    (folder / NAME).write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ModelError, match=re.escape(problem)) as raised:
        read_manifest(folder)
    assert str(folder / NAME) in str(raised.value)
    assert "ship the model again" in str(raised.value)


@pytest.mark.parametrize("manifest", [SOUND, SOUND_STREAM], ids=["clips", "stream"])
def test_a_sound_manifest_is_read_as_it_was_written(tmp_path: Path, manifest: Manifest) -> None:
    (tmp_path / NAME).write_text(manifest.to_text(), encoding="utf-8")
    assert read_manifest(tmp_path) == manifest


@pytest.mark.parametrize(("path", "value", "problem"), IMPOSSIBLE)
def test_each_impossible_field_is_named(
    tmp_path: Path, path: str, value: object, problem: str
) -> None:
    refused(tmp_path, changed(json.loads(SOUND.to_text()), field_of(path), value), problem)


@pytest.mark.parametrize(("path", "value", "problem"), IMPOSSIBLE_STREAM)
def test_each_impossible_field_of_a_stream_is_named(
    tmp_path: Path, path: str, value: object, problem: str
) -> None:
    data = changed(json.loads(SOUND_STREAM.to_text()), field_of(path), value)
    refused(tmp_path, data, problem)


@pytest.mark.parametrize("manifest", [SOUND, SOUND_STREAM], ids=["clips", "stream"])
def test_each_missing_field_is_named(tmp_path: Path, manifest: Manifest) -> None:
    data = json.loads(manifest.to_text())
    free = {"kernels", "sizes", "provenance", "verdict", "of", "gives"}
    for path in places(data):
        if path[-1] == "schema" or isinstance(path[-1], int) or free & {*path[:-1]}:
            continue
        less = copy.deepcopy(data)
        inner = less
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        refused(tmp_path, less, f"{path[-1]} is missing")


@pytest.mark.parametrize("group", ["inputs", "outputs"])
def test_two_ports_of_one_name_are_an_error(tmp_path: Path, group: str) -> None:
    data = json.loads(SOUND.to_text())
    data[group] *= 2
    refused(tmp_path, data, f"there are two {group} with the name")


def test_fields_that_are_not_known_are_ignored(tmp_path: Path) -> None:
    data = {**json.loads(SOUND.to_text()), "later": {"a": [1]}}
    data["inputs"][0]["later"] = None
    (tmp_path / NAME).write_text(json.dumps(data), encoding="utf-8")
    assert read_manifest(tmp_path) == SOUND


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"schema": 2, "schema": 2}', "the key 'schema' is there twice"),
        ('{"schema": NaN}', "NaN is no number of JSON"),
        ('{"schema": 1}', "has schema 1, and this graphfix reads 2"),
        ('{"schema": 2.5}', "has schema 2.5"),
        ('{"schema": ' + "9" * 5000 + "}", "is no JSON"),
        ("[]", "has schema None"),
    ],
)
def test_json_that_means_nothing(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=re.escape(problem)):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        *((x, False) for x in ("", ".", "..", "a/b", "/a", "a\\b", "\\\\host\\share", "a\0")),
        *((x, True) for x in ("C:a", "C:", "a.onnx:b", "NUL", "nul.onnx", "com1", "a.onnx.", "a ")),
    ],
)
def test_names_of_no_file_beside_it(name: str, windows: bool) -> None:
    assert not is_file_name(name, windows=windows)
    assert is_file_name("a.16000.onnx", windows=windows)

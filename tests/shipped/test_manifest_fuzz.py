"""A manifest in which anything is changed is read, or refused in a sentence."""

from __future__ import annotations

import copy
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.errors import GraphfixError, ModelError
from graphfix.shipped.manifest import NAME
from graphfix.shipped.manifest_file import read_manifest
from tests.shipped.test_manifest import SOUND, SOUND_STREAM, places
from tests.shipped.test_session import CPU, tokens

EXAMPLES = int(os.environ.get("GRAPHFIX_EXAMPLES", "80"))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**53 + 1, 2**62 - 1, 2**62, -(2**62), 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["x", "T", "B", "S", "P", "mask", "lengths", "../x", "C:x", "tensor(float)"]),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


def parent_of(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data


def mutate(draw: st.DataObject, data: Any) -> Any:
    """Return the document with up to three fields changed, removed, doubled or exchanged."""
    data = copy.deepcopy(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        paths = places(data)
        path, other = (draw.draw(st.sampled_from(paths)) for _ in range(2))
        parent, key = parent_of(data, path), path[-1]
        match draw.draw(st.sampled_from(["value", "value", "remove", "double", "copy"])):
            case "value":
                parent[key] = draw.draw(VALUES)
            case "remove":
                del parent[key]
            case "double" if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(parent[key]))
            case "copy":
                parent[key] = copy.deepcopy(parent_of(data, other)[other[-1]])
    return data


@pytest.mark.parametrize("manifest", [SOUND, SOUND_STREAM], ids=["clips", "stream"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(draw=st.data())
def test_a_changed_manifest_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, manifest: Any, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"fuzz{bool(manifest.stream)}"
    folder.mkdir(exist_ok=True)
    data = mutate(draw, json.loads(manifest.to_text()))
    (folder / NAME).write_text(json.dumps(data), encoding="utf-8")
    try:
        changed = read_manifest(folder)
    except ModelError:
        return
    for container in changed.containers:
        sizes = changed.with_derived(container.sizes)
        for port in (*changed.inputs, *changed.outputs):
            assert min(port.shape_at(sizes), default=0) >= 0


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(draw=st.data())
def test_a_session_of_a_changed_manifest_runs_or_says_why(
    masked: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzzed"
    if not folder.exists():
        shutil.copytree(masked[1], folder)
    original = json.loads((masked[1] / NAME).read_text(encoding="utf-8"))
    (folder / NAME).write_text(json.dumps(mutate(draw, original)), encoding="utf-8")
    with suppress(GraphfixError):  # anything else is a fault
        session = graphfix.Session(folder, CPU, check_files=False)
        session.run(None, tokens(5))

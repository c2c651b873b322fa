"""Recipes: what a folder of models holds, and what does not fit in a ``model.toml``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import UsageError
from graphfix.model_zoo.recipe import Recipe, find_recipes, model_ids, read_recipe


def folder_of(root: Path, **files: str) -> Path:
    """Write files; ``a__b`` stands for ``a/b``, a name without a suffix for one of TOML."""
    for name, text in files.items():
        path = root.joinpath(*name.split("__"))
        path = path if path.suffix else path.with_suffix(".onnx")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def recipe_at(root: Path, text: str) -> Path:
    (root / "model.onnx").write_text("")
    path = root / "model.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_models_are_called_after_their_files_or_folders(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        **{
            "whisper": "",
            "one__model": "",
            "two__encoder": "",
            "two__decoder": "",
            "with__model.toml": "",
            "with__model": "",
            "none__notes.txt": "",
            ".hidden.onnx": "",
            "done.fixed.onnx": "",
            "notes.txt": "",
        },
    )
    (tmp_path / "folder.onnx").mkdir()
    names = ["one", "two.decoder", "two.encoder", "whisper", "with"]
    assert model_ids(tmp_path) == names
    recipes = find_recipes(tmp_path)
    assert [x.id for x in recipes] == names
    assert [x.model.name for x in recipes if x.id == "with"] == ["model.onnx"]
    assert [x.id for x in find_recipes(tmp_path, ["whisper", "one", "whisper"])] == [
        "whisper",
        "one",
    ]
    assert [x.id for x in find_recipes(tmp_path / "with")] == ["with"]


def test_a_folder_without_models_and_a_name_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder; name one with --models"):
        find_recipes(tmp_path / "none")
    with pytest.raises(UsageError, match=r"neither folders with a model\.toml nor \.onnx files"):
        find_recipes(tmp_path)
    folder_of(tmp_path, whisper="", moonshine="")
    with pytest.raises(UsageError, match=r"has no model 'whispr'.*'whisper'.*It has moonshine, wh"):
        find_recipes(tmp_path, ["whispr"])


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, a="", a__model="")
    with pytest.raises(UsageError, match="are both called 'a'; rename one"):
        model_ids(tmp_path)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    folder_of(tmp_path, **{"a__model.toml": "x = 1", "b__model.toml": "[", "c": ""})
    with pytest.raises(UsageError, match=r"x is no key of a recipe.*; .*is no TOML"):
        find_recipes(tmp_path)
    assert [x.id for x in find_recipes(tmp_path, ["c"])] == ["c"]


def test_what_a_recipe_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros(2))
    path = recipe_at(
        tmp_path,
        """name = "A model"
        passes = "fast"
        [dims]
        T = [1, 7]
        [feeds]
        notes = "16 kHz"
        file = "in.npz"
        [tolerance]
        max_abs = 0
        cosine = 0.5
        [expect.repairs]
        fold = 0
        [expect.near-misses]
        gelu = 3
        [expect.findings]
        resize = 1
        [gates]
        nodes = 4.5
        [bench]
        processes = 1
        runs = 2
        dims = { T = 1 }""",
    )
    recipe = read_recipe(path)
    assert (recipe.id, recipe.name, recipe.passes) == (tmp_path.name, "A model", "fast")
    assert (recipe.dims, recipe.notes) == ({"T": [1, 7]}, "16 kHz")
    assert recipe.feeds == tmp_path / "in.npz"
    assert recipe.tolerance == {"max_abs": 0, "cosine": 0.5}
    assert (recipe.repairs, recipe.near_misses) == ({"fold": 0}, {"gelu": 3})
    assert (recipe.findings, recipe.gates) == ({"resize": 1}, {"nodes": 4.5})
    assert recipe.bench == {"processes": 1, "runs": 2, "dims": {"T": 1}}
    path.write_text("\ufeff", encoding="utf-8")  # of Windows' Notepad
    empty = read_recipe(path)
    assert (empty.repairs, empty.near_misses, empty.findings, empty.feeds) == (None,) * 4
    assert empty.passes == "directml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 1", "name must be text, not 1"),
        ("dims = 1", r"dims must be a table, \[dims\], not 1"),
        ("dims.T = 1", "dims.T must be a list of sizes such as"),
        ("dims.T = []", "dims.T must be a list of sizes"),
        ("dims.T = [0]", "dims.T must be a whole number, 1 or more"),
        ("dims.T = [true]", "dims.T must be a whole number, 1 or more"),
        ("dims.T = [1.5]", "dims.T must be a whole number, 1 or more"),
        ("tolerance.max_abs = -1", "tolerance.max_abs must be a number, 0 or more"),
        ("tolerance.max_abs = nan", "tolerance.max_abs must be a number, 0 or more"),
        ("tolerance.max_abs = true", "tolerance.max_abs must be a number, 0 or more"),
        ('tolerance.max_abs = "1"', "tolerance.max_abs must be a number, 0 or more"),
        ("expect.repairs.fold = -1", "expect.repairs.fold must be a whole number, 0 or more"),
        ("bench.runs = 0", "bench.runs must be a whole number, 1 or more"),
        ("gates.node = 1", "gates.node is no key of a recipe.*'nodes'.*Known are crashes"),
        ("nam = 1", "nam is no key of a recipe.*'name'"),
        ('model = "other.onnx"', "model is 'other.onnx', and there is no such file beside it"),
        ('feeds.file = "x.npz"', "feeds.file is 'x.npz', and there is no such file beside it"),
        ("[", "is no TOML"),
        ("a = " + "[" * 5000, "its brackets go too deep"),
    ],
)
def test_what_does_not_fit_is_said_with_what_would(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(recipe_at(tmp_path, text))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_recipe(tmp_path / "model.toml")
    path = recipe_at(tmp_path, "")
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(UsageError, match="cannot be read"):
        read_recipe(path)


def test_the_files_that_the_work_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[T, 4] x) => (float[T, 4] y)
        <float[4] w = {1, 2, 3, 4}> { y = Add (x, w) }"""
    model = tmp_path / "model.onnx"
    ir.save(ir.from_onnx_text(text), model, external_data="w.bin", size_threshold_bytes=0)
    np.savez(tmp_path / "in.npz", x=np.zeros(2))
    path = tmp_path / "model.toml"
    path.write_text('feeds.file = "in.npz"', encoding="utf-8")
    names = ["model.onnx", "w.bin", "in.npz"]
    assert [x.name for x in read_recipe(path).files] == names
    assert all(x.parent == tmp_path for x in read_recipe(path).files)
    path.write_text("", encoding="utf-8")
    assert [x.name for x in read_recipe(path).files] == names[:2]
    monkeypatch.chdir(tmp_path)
    assert Recipe("m", Path("model.onnx")).files == [Path("model.onnx"), Path("w.bin")]
    model.write_bytes(b"no model")
    assert [x.name for x in read_recipe(path).files] == names[:1]

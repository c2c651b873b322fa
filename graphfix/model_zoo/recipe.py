"""Recipes: the ``model.toml`` of a model, read with an error for whatever does not fit.

A folder of ``.onnx`` files needs none: each file then has the recipe that asks for nothing.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphfix.errors import ModelError, UsageError
from graphfix.model_zoo.figures import FIGURES
from graphfix.wording import did_you_mean

Form = Callable[[object], Any] | Mapping[str, "Form"]

FILE = "model.toml"
_MADE_BY_RUN = ".fixed.onnx"

Counts = dict[str, int]


@dataclass(frozen=True)
class Recipe:
    """What to do with one model, and what is expected of it.

    Attributes:
        id: What the model is called at the command line: its folder, or its file's stem.
        model: The model's file.
        name: What it is, for people.
        shows: What it is here for.
        source: Which package and class it was exported from.
        license: Of that code.
        exporter: What exported it.
        weights: What its weights are.
        passes: Passes and profiles as ``-p`` takes them.
        dims: Sizes to verify at, by the name of the symbolic dim.
        notes: What a reader should know of the inputs.
        feeds: An ``.npz`` to verify with, or None for inputs made from the model.
        tolerance: What may differ: fields of :class:`graphfix.proof.compare.Tolerance`.
        repairs: How many repairs each pass must make; None if nothing is said of it.
        near_misses: How many near misses each pass must have; None if nothing is said of it.
        findings: How many errors and warnings of each rule must be left; None likewise.
        gates: The most that a figure of the repaired model may be, by the figure's name.
        bench: What to time: ``dims`` and ``other`` by symbolic dim, ``processes`` and
            ``runs``.
    """

    id: str
    model: Path
    name: str = ""
    shows: str = ""
    source: str = ""
    license: str = ""
    exporter: str = ""
    weights: str = ""
    passes: str = "directml"
    dims: dict[str, list[int]] = field(default_factory=dict)
    notes: str = ""
    feeds: Path | None = None
    tolerance: dict[str, float] = field(default_factory=dict)
    repairs: Counts | None = None
    near_misses: Counts | None = None
    findings: Counts | None = None
    gates: dict[str, float] = field(default_factory=dict)
    bench: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """Return the files that the work reads: the model, its weights and its inputs."""
        return [
            self.model,
            *_weight_files_of(self.model),
            *([] if self.feeds is None else [self.feeds]),
        ]


def find_recipes(folder: Path, names: Sequence[str] = ()) -> list[Recipe]:
    """Return the recipes in a folder; an ``.onnx`` file without ``model.toml`` gets an empty one.

    Args:
        folder: Holds them; or is itself the folder of one model.
        names: Which to take; all by default.

    Raises:
        UsageError: There are none, a name is unknown, or a recipe does not fit: all that is wrong.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; name one with --models")
    places = _paths_by_id(folder)
    if not places:
        raise UsageError(f"{folder}: has neither folders with a {FILE} nor .onnx files in it")
    for name in names:
        if name not in places:
            hint = did_you_mean(name, places)
            raise UsageError(f"{folder}: has no model {name!r}{hint} It has {', '.join(places)}")
    recipes, problems = [], []
    for name in dict.fromkeys(names or places):
        try:
            path = places[name]
            recipes.append(read_recipe(path) if path.name == FILE else Recipe(name, path))
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("; ".join(problems))
    return recipes


def model_ids(folder: Path) -> list[str]:
    """Return the ids of the models in a folder, in order."""
    return list(_paths_by_id(folder))


def _paths_by_id(folder: Path) -> dict[str, Path]:
    """Return each model's recipe, or its file if it has none, by the model's id."""
    if (folder / FILE).is_file():
        return {folder.resolve().name: folder / FILE}
    paths: dict[str, Path] = {}
    path_by_case: dict[str, Path] = {}
    for name, path in _iter_models(folder):
        # The name is that of a file of results, too: no two may differ in case only.
        previous = path_by_case.setdefault(os.path.normcase(name), path)
        if previous is not path:
            raise UsageError(f"{path} and {previous} are both called {name!r}; rename one")
        paths[name] = path
    return dict(sorted(paths.items()))


def _iter_models(folder: Path) -> Iterator[tuple[str, Path]]:
    for entry in folder.iterdir():
        if _is_model(entry):
            yield entry.stem, entry
        elif (entry / FILE).is_file():
            yield entry.name, entry / FILE
        elif entry.is_dir():
            models = [x for x in entry.iterdir() if _is_model(x)]
            for model in models:
                yield entry.name if len(models) == 1 else f"{entry.name}.{model.stem}", model


def _is_model(path: Path) -> bool:
    return (
        path.suffix == ".onnx"
        and path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith(_MADE_BY_RUN)
    )


def read_recipe(path: Path) -> Recipe:
    """Read the recipe in a ``model.toml``.

    Raises:
        UsageError: It cannot be read, has a key that is none, or a value that does not fit.
    """
    try:
        # Windows' Notepad may put a byte order mark in front.
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except RecursionError:
        raise UsageError(f"{path}: is no recipe: its brackets go too deep") from None
    except ValueError as error:  # also a number of more digits than Python reads
        raise UsageError(f"{path}: is no TOML: {error}") from error
    values = _check_value(path, "", data, _FORM)
    feeds, expect = values.get("feeds", {}), values.get("expect", {})
    npz = feeds.get("file")
    return Recipe(
        id=path.resolve().parent.name,
        model=_file_beside(path, "model", values.get("model", "model.onnx")),
        **{key: values[key] for key in (*_TEXTS, *_TABLES) if key in values},
        notes=feeds.get("notes", ""),
        feeds=_file_beside(path, "feeds.file", npz) if npz else None,
        repairs=expect.get("repairs"),
        near_misses=expect.get("near-misses"),
        findings=expect.get("findings"),
    )


def _check_value(path: Path, parent_key: str, value: object, form: Form) -> Any:  # noqa: ANN401  (TOML)
    """Return a value of the file, if it has the required form.

    Raises:
        UsageError: It has not, or is a table with a key that is none; where, and what would do.
    """
    if callable(form):
        try:
            return form(value)
        except ValueError as error:
            raise UsageError(f"{path}: {parent_key} must be {error}, not {value!r}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {parent_key} must be a table, [{parent_key}], not {value!r}")
    checked = {}
    for key, inner in value.items():
        inner_key = f"{parent_key}.{key}" if parent_key else key
        inner_form = form.get(_ANY) or form.get(key)
        if inner_form is None:
            hint = did_you_mean(key, form)
            known_keys = ", ".join(form)
            raise UsageError(
                f"{path}: {inner_key} is no key of a recipe{hint} Known are {known_keys}"
            )
        checked[key] = _check_value(path, inner_key, inner, inner_form)
    return checked


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value


def _parse_count(value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"a whole number, {least} or more")
    return value


def _parse_size(value: object) -> int:
    return _parse_count(value, 1)


def _parse_sizes(value: object) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of sizes such as [1, 7]")
    return [_parse_size(size) for size in value]


def _parse_number(value: object) -> float:
    # "not >= 0" is also true of NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError("a number, 0 or more")
    return value


_ANY = "*"
_TEXTS = ("name", "shows", "source", "license", "exporter", "weights", "passes")
_TABLES = ("dims", "tolerance", "gates", "bench")
_FORM: Form = {
    **dict.fromkeys((*_TEXTS, "model"), _parse_text),
    "dims": {_ANY: _parse_sizes},
    "feeds": {"notes": _parse_text, "file": _parse_text},
    "tolerance": dict.fromkeys(("max_abs", "cosine", "half"), _parse_number),
    "expect": {key: {_ANY: _parse_count} for key in ("repairs", "near-misses", "findings")},
    "gates": dict.fromkeys(FIGURES, _parse_number),
    "bench": {
        "dims": {_ANY: _parse_size},
        "other": {_ANY: _parse_size},
        "processes": _parse_size,
        "runs": _parse_size,
    },
}
"""What a recipe may hold: of each key, what makes its value or refuses it, or the keys in it."""


def _file_beside(path: Path, key: str, name: str) -> Path:
    file = path.parent / name
    if not file.is_file():
        raise UsageError(f"{path}: {key} is {name!r}, and there is no such file beside it")
    return file


def _weight_files_of(model: Path) -> list[Path]:
    """Return the files of a model's weights, as far as the model can be read."""
    from graphfix.files import io

    try:
        own, *weights = io.input_files(io.load(model))
    except ModelError:  # the work itself says what is wrong with the file
        return []
    home = model.parent.resolve()
    return sorted(
        model.parent / x.relative_to(home) if x.is_relative_to(home) else x
        for x in weights
        if x != own.resolve()
    )

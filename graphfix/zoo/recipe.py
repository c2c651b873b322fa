"""Recipes: what ``model.toml`` says of a model, read with an error for whatever does not fit.

A folder of ``.onnx`` files needs none: each file then has the recipe that asks for nothing.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graphfix.errors import ModelError, UsageError
from graphfix.zoo.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

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
        """What the recipe's work reads: the model, its weights and its inputs."""
        given = [] if self.feeds is None else [self.feeds]
        return [self.model, *_weights(self.model), *given]


def find(folder: Path, names: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of a folder: one for each folder in it with ``model.toml``, and one that asks for
    nothing for each other ``.onnx`` file in it or one level down.

    Args:
        folder: Holds them; or is itself the folder of one model.
        names: Which to take; all by default.

    Raises:
        UsageError: There are none, a name is unknown, or a recipe does not fit: all that is wrong.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; name one with --models")
    places = _places(folder)
    if not places:
        raise UsageError(f"{folder}: has neither folders with a {FILE} nor .onnx files in it")
    for name in names:
        if name not in places:
            close = difflib.get_close_matches(name, places, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UsageError(f"{folder}: has no model {name!r}; {hint}It has {', '.join(places)}")
    found, wrong = [], []
    for name in dict.fromkeys(names or places):
        try:
            place = places[name]
            found.append(read(place) if place.name == FILE else Recipe(name, place))
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError("; ".join(wrong))
    return found


def ids(folder: Path) -> list[str]:
    """What the models of a folder are called, in order."""
    return list(_places(folder))


def _places(folder: Path) -> dict[str, Path]:
    """Each model's recipe, or its file if it has none, by what the model is called."""
    if (folder / FILE).is_file():
        return {folder.resolve().name: folder / FILE}
    places: dict[str, Path] = {}
    known: dict[str, Path] = {}
    for name, place in _entries(folder):
        other = known.setdefault(os.path.normcase(name), place)  # it names a file of results
        if other is not place:
            raise UsageError(f"{place} and {other} are both called {name!r}; rename one")
        places[name] = place
    return dict(sorted(places.items()))


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
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


def read(path: Path) -> Recipe:
    """The recipe in a ``model.toml``.

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
    table = _Table(path, "", data)
    feeds, expect = table.table("feeds", "notes", "file"), table.table("expect", *_EXPECT)
    npz = feeds.text("file")
    recipe = Recipe(
        id=path.resolve().parent.name,
        model=_file(path, "model", table.text("model", "model.onnx")),
        **{key: table.text(key) for key in _TEXTS},
        passes=table.text("passes", "directml"),
        dims=table.table("dims").each(_sizes),
        notes=feeds.text("notes"),
        feeds=_file(path, "feeds.file", npz) if npz else None,
        tolerance=table.table("tolerance", "max_abs", "cosine", "half").each(_number),
        repairs=expect.optional("repairs", _count),
        near_misses=expect.optional("near-misses", _count),
        findings=expect.optional("findings", _count),
        gates=table.table("gates", *FIGURES).each(_number),
        bench=_bench(table.table("bench", "dims", "other", "processes", "runs")),
    )
    table.only("model", "passes", "dims", "feeds", "tolerance", "expect", "gates", "bench", *_TEXTS)
    return recipe


_TEXTS = ("name", "shows", "source", "license", "exporter", "weights")
_EXPECT = ("repairs", "near-misses", "findings")


class _Table:
    """A table of the file, that knows where it is when something in it does not fit."""

    def __init__(self, path: Path, name: str, data: Mapping[str, object]) -> None:
        self._path, self._name, self._data = path, name, data

    def wrong(self, key: str, message: str) -> UsageError:
        return UsageError(f"{self._path}: {self._at(key)} {message}")

    def only(self, *known: str) -> None:
        for key in self._data:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise self.wrong(key, f"is no key of a recipe; {hint}")

    def text(self, key: str, default: str = "") -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, f"must be text, not {value!r}")
        return value

    def table(self, key: str, *known: str) -> _Table:
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"must be a table, [{self._at(key)}], not {value!r}")
        inner = _Table(self._path, self._at(key), value)
        if known:
            inner.only(*known)
        return inner

    def each(self, convert: Callable[[object], T]) -> dict[str, T]:
        found = {}
        for key, value in self._data.items():
            try:
                found[key] = convert(value)
            except ValueError as error:
                raise self.wrong(key, f"must be {error}, not {value!r}") from None
        return found

    def optional(self, key: str, convert: Callable[[object], T]) -> dict[str, T] | None:
        return self.table(key).each(convert) if key in self._data else None

    def number(self, key: str, convert: Callable[[object], int]) -> dict[str, int]:
        given = {key: self._data[key]} if key in self._data else {}
        return _Table(self._path, self._name, given).each(convert)

    def _at(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _bench(table: _Table) -> dict[str, Any]:
    sizes = {key: table.optional(key, _size) for key in ("dims", "other")}
    given = {key: value for key, value in sizes.items() if value is not None}
    return {**given, **table.number("processes", _size), **table.number("runs", _size)}


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number, 0 or more")
    return value


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number, 1 or more")
    return value


def _sizes(value: object) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of sizes such as [1, 7]")
    return [_size(size) for size in value]


def _number(value: object) -> float:
    # "not >= 0" is also true of NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError("a number, 0 or more")
    return value


def _file(path: Path, key: str, name: str) -> Path:
    file = path.parent / name
    if not file.is_file():
        raise UsageError(f"{path}: {key} is {name!r}, and there is no such file beside it")
    return file


def _weights(model: Path) -> list[Path]:
    """The files that hold a model's weights, as far as the model can be read and they are there."""
    from graphfix.model import io

    try:
        own, *weights = io.inputs_of(io.load(model))
    except ModelError:  # the work itself says what is wrong with the file
        return []
    home = model.parent.resolve()
    return sorted(
        model.parent / x.relative_to(home) if x.is_relative_to(home) else x
        for x in weights
        if x != own.resolve()
    )

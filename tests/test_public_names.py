"""Whatever a public name returns or raises is public too."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import get_overloads

import pytest

import graphfix

_GENERIC = {"Any", "None", "Iterator", "Sequence", "Mapping"}
VERBS = [x for x in graphfix.__all__ if inspect.isfunction(getattr(graphfix, x))]


def _returned_types(function: Callable[..., object]) -> set[str]:
    """Return the names of our own types in the annotation of what a function returns."""
    names: set[str] = set()
    for overload in get_overloads(function) or [function]:
        text = inspect.formatannotation(inspect.signature(overload).return_annotation)
        for name in re.findall(r"[\w.]+", text):
            if name.startswith("graphfix.") or ("." not in name and name[0].isupper()):
                names.add(name.rpartition(".")[2])
    return names - _GENERIC


def _documented_names() -> Iterator[tuple[str, str]]:
    """Yield every public name, and every public method, with its docstring."""
    for name in graphfix.__all__:
        item = getattr(graphfix, name)
        yield name, inspect.getdoc(item) or ""
        for method, member in vars(item).items() if inspect.isclass(item) else ():
            if not method.startswith("_"):
                yield f"{name}.{method}", inspect.getdoc(member) or ""


def _named_errors(docstring: str) -> list[str]:
    section = re.search(r"^Raises:\n((?: +.*\n?)+)", docstring, re.MULTILINE)
    return re.findall(r"^    (\w+):", section[1], re.MULTILINE) if section else []


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_returns_is_public(verb: str) -> None:
    assert _returned_types(getattr(graphfix, verb)) <= {*graphfix.__all__}


def test_what_a_session_streams_with_is_public() -> None:
    assert _returned_types(graphfix.Session.stream) == {"Stream"} < {*graphfix.__all__}


def test_the_types_and_errors_are_found_at_all() -> None:
    """The readers above see a class, a name in quotes, an overload and a section."""
    assert _returned_types(graphfix.bench) == {"Benchmark"}
    assert _returned_types(graphfix.get_pass) == {"Pass"}
    assert _returned_types(graphfix.fix) == {"Report"}
    assert "PassError" in _named_errors(dict(_documented_names())["run"])


def test_every_error_of_a_raises_section_is_public() -> None:
    private = {
        (name, error)
        for name, docstring in _documented_names()
        for error in _named_errors(docstring)
        if error not in graphfix.__all__
    }
    assert not private

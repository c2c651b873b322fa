"""A report as one self-contained page: no other file, no request, light, dark and on paper.

The page is made from the report's JSON, which it carries, so its numbers are those of the JSON.
"""

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from graphfix.files import atomic_file
from graphfix.json_types import plain
from graphfix.show.drawing import drawing
from graphfix.version import __version__
from graphfix.wording import grouped as grouped
from graphfix.wording import number as number

Data = Mapping[str, Any]  # of graphfix.engine.report.Report.to_json


def write(data: Data, path: str | Path) -> None:
    """Write the page of a report, all at once or not at all.

    Args:
        data: What :meth:`graphfix.engine.report.Report.to_json` gives.
        path: Where; an existing file is replaced.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    atomic_file.put_text(Path(path), page(data))


def page(data: Data) -> str:
    """The page of a report as HTML."""
    return page_of(
        "report.html",
        data,
        kernels={when: counts for when, counts in (data.get("kernels") or {}).items() if counts},
        strips=data.get("strips", {}),
        missed=missed(data["passes"]),
    )


def page_of(template: str, data: Data, **values: object) -> str:
    """A page about ``data``, which it carries; the values are what else the template shows."""
    return render(template, data=data, embedded=embedded(data), version=__version__, **values)


def title(path: str) -> str:
    """A file as a page calls it: many a model is called model.onnx; its folder says more."""
    return "/".join(PurePath(path).parts[-2:])


def operators(
    before: Mapping[str, int], after: Mapping[str, int]
) -> list[tuple[str, int, int, int]]:
    """Operators whose number changed: how many before, after, and the larger; what went first."""
    pairs = ((op, before.get(op, 0), after.get(op, 0)) for op in {*before, *after})
    found = ((op, a, b, max(a, b)) for op, a, b in pairs if a != b)
    return sorted(found, key=lambda x: (x[2] - x[1], x[0]))


def render(template: str, **values: object) -> str:
    """A template of graphfix with its values; what is no markup of ours is escaped."""
    import jinja2  # not wanted by those who ask for no page

    folder = resources.files("graphfix.show").joinpath("templates")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(ops=operators, drawing=drawing)
    environment.filters.update(number=number, title=title, anchor=anchor)
    return environment.get_template(template).render(values)


def anchor(name: str) -> str:
    """A name as a link to a part of the page has it; a file's may be in no encoding."""
    return quote(name, errors="backslashreplace")  # as the page is written


def missed(passes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Near misses and findings by pass, each reason once with its places."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in passes:  # one that ran several times says the same again
        told = [(f"{x['severity']}: {x['message']}", x["at"]) for x in one["findings"]]
        found.setdefault(one["name"], []).extend([*((why, at) for at, why in one["skips"]), *told])
    return {name: grouped(dict.fromkeys(pairs)) for name, pairs in found.items() if pairs}


def embedded(data: object) -> Markup:
    """The JSON for a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(plain(data))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)

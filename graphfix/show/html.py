"""A report as one self-contained page: no other file, no request, light, dark and on paper.

The page is made from the report's JSON, which it carries, so its numbers are those of the JSON.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from graphfix.json_types import plain
from graphfix.model import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from markupsafe import Markup

    Data = Mapping[str, Any]  # of graphfix.engine.report.Report.to_json


def write(data: Data, path: str | Path) -> None:
    """Write the page of a report, all at once or not at all.

    Args:
        data: What :meth:`graphfix.engine.report.Report.to_json` gives.
        path: Where; an existing file is replaced.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    text = page(data)
    atomic_file.put_text(Path(path), text)


def page(data: Data) -> str:
    """The page of a report as HTML."""
    before, after = data["ops_before"], data["ops_after"]
    ops = [op for op in {*before, *after} if before.get(op, 0) != after.get(op, 0)]
    kernels = data.get("kernels") or {}
    return render(
        "report.html",
        data=data,
        # Many a model is called model.onnx; its folder says more.
        title="/".join(PurePath(data["source"] or "a model in memory").parts[-2:]),
        ops=sorted(ops, key=lambda op: (after.get(op, 0) - before.get(op, 0), op)),
        longest=max((x.get(op, 0) for op in ops for x in (before, after)), default=1),
        kernels={when: counts for when, counts in kernels.items() if counts},
        strips=data.get("strips", {}),
        missed=missed(data["passes"]),
        embedded=embedded(data),
    )


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
    environment.filters["number"] = number
    environment.filters["anchor"] = anchor
    return environment.get_template(template).render(values)


def anchor(name: str) -> str:
    """A name as a link to a part of the page has it; a file's may be in no encoding."""
    return quote(name, errors="backslashreplace")  # as the page is written


def missed(passes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Near misses and findings by pass, each reason once with its places."""
    found = {}
    for one in passes:
        told = [(f"{x['severity']}: {x['message']}", x["at"]) for x in one["findings"]]
        if told or one["skips"]:
            found[one["name"]] = grouped([*((why, at) for at, why in one["skips"]), *told])
    return found


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """(reason, place) pairs as each reason with its places."""
    found: dict[str, list[str]] = {}
    for reason, place in pairs:
        found.setdefault(reason, []).append(place)
    return found


def number(value: float | str) -> str:
    """A difference in three digits; NaN and infinity are text already."""
    return value if isinstance(value, str) else f"{value:.3g}"


def embedded(data: object) -> Markup:
    """The JSON for a script element: no text in it can end the element or begin a comment."""
    from markupsafe import Markup

    text = json.dumps(plain(data), indent=1)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)

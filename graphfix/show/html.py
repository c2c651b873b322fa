"""A report as one self-contained page: no other file, no request, light, dark and on paper.

The page is made from the report's JSON, which it carries, so its numbers are those of the JSON.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from graphfix.files import atomic_file
from graphfix.json_types import to_plain
from graphfix.providers.table import PROVIDERS
from graphfix.show.drawing import draw_nodes
from graphfix.version import __version__
from graphfix.wording import format_number as format_number
from graphfix.wording import group_pairs as group_pairs
from graphfix.wording import show_controls

Data = Mapping[str, Any]  # of graphfix.engine.report.Report.to_json


def write_page(data: Data, path: str | Path) -> None:
    """Write the page of a report, all at once or not at all.

    Args:
        data: What :meth:`graphfix.engine.report.Report.to_json` gives.
        path: Where; an existing file is replaced.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    atomic_file.write_text(Path(path), render_page(data))


def render_page(data: Data) -> str:
    """Return the page of a report as HTML."""
    return render_data_page(
        "report.html",
        data,
        kernels={when: counts for when, counts in (data.get("kernels") or {}).items() if counts},
        strips=data.get("strips", {}),
        key=PROVIDERS[data["ep"]].key,
        recompiles=PROVIDERS[data["ep"]].recompiles,
        busy=group_by_pass(data["passes"]),
    )


def render_data_page(template: str, data: Data, **values: object) -> str:
    """Return a page that carries ``data``; the values are what else the template shows."""
    return render_template(
        template, data=data, embedded=embed_json(data), version=__version__, **values
    )


def file_title(path: str) -> str:
    """Return a file's name with its folder, since many a model is called model.onnx."""
    return "/".join(PurePath(path).parts[-2:])


def changed_operators(
    before: Mapping[str, int], after: Mapping[str, int]
) -> list[tuple[str, int, int, int]]:
    """Return the operators whose count changed: before, after, the larger; removed first."""
    names = {*before, *after} - {"Constant"}  # a constant runs nowhere, however it is stored
    pairs = ((op, before.get(op, 0), after.get(op, 0)) for op in names)
    changes = ((op, a, b, max(a, b)) for op, a, b in pairs if a != b)
    return sorted(changes, key=lambda x: (x[2] - x[1], x[0]))


def render_template(template: str, **values: object) -> str:
    """Render a template of graphfix; text that is not our markup is escaped."""
    import jinja2  # not wanted by those who ask for no page

    folder = resources.files("graphfix.show").joinpath("templates")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_show_controls,
    )
    environment.globals.update(ops=changed_operators, drawing=draw_nodes, providers=PROVIDERS)
    environment.filters.update(
        number=format_number, title=file_title, anchor=link_anchor, headings=list_headings
    )
    return environment.get_template(template).render(values)


def _show_controls(value: object) -> object:
    """Return what an expression of a template shows: a name may hold marks that turn text round."""
    is_markup = hasattr(value, "__html__")
    return value if is_markup or not isinstance(value, str) else show_controls(value)


def link_anchor(name: str) -> str:
    """Return a name as a link to a part of the page has it; it may be in no encoding."""
    return quote(name, errors="backslashreplace")  # as the page is written


def list_headings(body: str) -> list[tuple[Markup, Markup]]:
    """Return the headings of a page's body, each with what a link to it names."""
    headings = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', body, re.DOTALL)
    return [(Markup(anchor), Markup(title)) for anchor, title in headings]


@dataclass(frozen=True)
class PassSummary:
    """What a pass did in all the times that it ran.

    Attributes:
        name: The pass.
        specs: How it was asked for, each way once.
        safety: What it promises.
        changes: Its repairs.
        reasons: The places that it skipped or only reports, by reason.
        skipped: How many places it skipped.
        findings: How many it only reports.
        seconds: The time that it took.
    """

    name: str
    specs: list[str]
    safety: str
    changes: list[Mapping[str, Any]]
    reasons: Mapping[str, list[str]]
    skipped: int
    findings: int
    seconds: float


def group_by_pass(passes: Iterable[Mapping[str, Any]]) -> list[PassSummary]:
    """Return what each pass did that found something, in the order in which they began."""
    passes = list(passes)
    reasons = group_by_reason(passes)
    runs_by_name: dict[str, list[Mapping[str, Any]]] = {}
    for run in passes:
        runs_by_name.setdefault(run["name"], []).append(run)
    summaries = (
        PassSummary(
            name,
            list(dict.fromkeys(run["spec"] for run in runs)),
            runs[0]["safety"],
            [change for run in runs for change in run["changes"]],
            reasons.get(name, {}),
            sum(len(run["skips"]) for run in runs),
            sum(len(run["findings"]) for run in runs),
            sum(run["seconds"] for run in runs),
        )
        for name, runs in runs_by_name.items()
    )
    return [x for x in summaries if x.changes or x.reasons]


def group_by_reason(passes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return near misses and findings by pass, each reason once with its places."""
    pairs_by_pass: dict[str, list[tuple[str, str]]] = {}
    for pass_data in passes:  # one that ran several times says the same again
        finding_pairs = [
            (f"{x['severity']}: {x['message']}", x["at"]) for x in pass_data["findings"]
        ]
        pairs_by_pass.setdefault(pass_data["name"], []).extend(
            [*((reason, at) for at, reason in pass_data["skips"]), *finding_pairs]
        )
    return {
        name: group_pairs(dict.fromkeys(pairs)) for name, pairs in pairs_by_pass.items() if pairs
    }


def embed_json(data: object) -> Markup:
    """Return JSON for a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(to_plain(data))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)

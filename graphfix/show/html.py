"""A report as one self-contained page: no other file, no request, light, dark and on paper.

The page is made from the report's JSON, which it carries, so its numbers are those of the JSON.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from graphfix.model import drafts
from graphfix.plain import plain
from graphfix.show import drawing, strip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from markupsafe import Markup

    Data = Mapping[str, Any]  # of graphfix.report.Report.to_json


def write(data: Data, path: str | Path) -> None:
    """Write the page of a report, all at once or not at all.

    Args:
        data: What :meth:`graphfix.report.Report.to_json` gives.
        path: Where; an existing file is replaced.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    text = page(data)
    drafts.put_text(Path(path), text)


def page(data: Data) -> str:
    """The page of a report as HTML."""
    verdict = data["verdict"]
    return render(
        "report.html",
        data=data,
        # Many a model is called model.onnx; its folder says more.
        title="/".join(PurePath(data["source"] or "a model in memory").parts[-2:]),
        headline=_headline(data),
        repairs=sum(len(p["changes"]) for p in data["passes"]),
        skips=sum(len(p["skips"]) for p in data["passes"]),
        nodes={
            "before": sum(data["ops_before"].values()),
            "after": sum(data["ops_after"].values()),
        },
        verdict=verdict,
        worst=None if verdict is None else verdict["worst"],
        ops=_ops(data["ops_before"], data["ops_after"]),
        plans=_plans(data),
        missed=missed(data),
        course=_course(data),
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


def _headline(data: Data) -> dict[str, str]:
    verdict = data["verdict"]
    changed = any(p["changes"] for p in data["passes"])
    if verdict is None:
        text = "Not verified" if changed else "Nothing to repair"
        return {"tone": "", "text": text, "line": "The model was not run."}
    if not verdict["ok"]:
        tone, text = "bad", "Failed: the repaired model does not compute the same"
    elif data["left"]:
        tone, text = "good", "Repaired but for bad places, and it computes the same"
    elif changed:
        tone, text = "good", "Repaired, and it computes the same"
    else:
        tone, text = "good", "Nothing to repair"
    line = str(verdict["summary"])
    return {"tone": tone, "text": text, "line": line[:1].upper() + line[1:]}


def _course(data: Data) -> dict[str, Any] | None:
    """The course of the error of what was made float16, drawn; None if it was not followed."""
    found = data.get("course")
    if not found or not found["points"]:
        return None
    worst = max(found["points"], key=drawing.relative)
    return {**drawing.draw(found, 960, 300), "worst": worst, "of": found}


def _ops(before: Mapping[str, int], after: Mapping[str, int]) -> list[dict[str, object]]:
    """Operators whose number changed, what went first, with bars as shares of the longest."""
    names = sorted(
        (op for op in {*before, *after} if before.get(op, 0) != after.get(op, 0)),
        key=lambda op: (after.get(op, 0) - before.get(op, 0), op),
    )
    longest = max((max(before.get(op, 0), after.get(op, 0)) for op in names), default=1)
    return [
        {
            "name": op,
            "before": before.get(op, 0),
            "after": after.get(op, 0),
            "before_share": round(100 * before.get(op, 0) / longest, 2),
            "after_share": round(100 * after.get(op, 0) / longest, 2),
        }
        for op in names
    ]


def _plans(data: Data) -> dict[str, Any] | None:
    """What DirectML does before and after, with the strips drawn; None if neither is known."""
    from markupsafe import Markup

    plan = data.get("plan") or {}
    both = [(when, plan[when]) for when in ("before", "after") if plan.get(when)]
    if not both:
        return None
    rows = [{"name": name, "values": [value(one) for _, one in both]} for name, value in _PLAN_ROWS]
    strips = [
        # The SVG is made of words and numbers of graphfix's own.
        {"when": when, "svg": Markup(strip.svg((x, n) for x, n in one["strip"]))}
        for when, one in both
    ]
    notes = [note for _, one in both for note in one["notes"]]
    key = [{"where": x, "word": strip.WORDS[x]} for x in strip.ORDER]
    return {"strips": strips, "rows": rows, "notes": list(dict.fromkeys(notes)), "key": key}


_PLAN_ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], int]], ...] = (
    ("fused graphs", lambda plan: plan["run"]["graphs"]),
    ("kernels of a run on DirectML", lambda plan: plan["run"]["dispatches"]),
    ("kernels of a run on the CPU", lambda plan: plan["run"]["cpu"]),
    ("copies between them", lambda plan: plan["run"]["copies"]),
    ("kernels made anew at another length", lambda plan: plan["run"]["remade"]),
)


def missed(data: Data) -> list[dict[str, object]]:
    """Near misses and findings by pass, each reason once with its places."""
    found = []
    for one in data["passes"]:
        groups: dict[str, list[str]] = {}
        for at, reason in one["skips"]:
            groups.setdefault(reason, []).append(at)
        for finding in one["findings"]:
            reason = f"{finding['severity']}: {finding['message']}"
            groups.setdefault(reason, []).append(finding["at"])
        if groups:
            rows = [{"reason": reason, "places": places} for reason, places in groups.items()]
            found.append({"name": one["name"], "groups": rows})
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

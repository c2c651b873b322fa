"""The zoo as one self-contained page: a table of all models, then each by itself.

It is made from the rows' JSON, which it carries, so its numbers are those of the JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphfix.model import drafts
from graphfix.show import drawing as course
from graphfix.show import html
from graphfix.version import __version__
from graphfix.zoo import plot
from graphfix.zoo.figures import CANNOT_TELL, FIGURES, is_known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from graphfix.zoo.figures import Figure

Json = dict[str, Any]

# Of these, only what is after the repair says something.
_SINGLE = ("worst", "ratio")
_COLUMNS = (
    *(
        "crashes",
        "worst",
        "ratio",
        "padding",
        "mask-wheres",
        "dynamic-reshapes",
        "findings",
        "nodes",
    ),
    *("fused-graphs", "copies", "cpu-nodes"),
)


def write(rows: Sequence[Json], path: Path) -> None:
    """Write the page, all at once or not at all.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(rows)
    drafts.put_text(path, text)


def page(rows: Sequence[Json]) -> str:
    """The page of all models as HTML.

    Args:
        rows: What :func:`graphfix.zoo.work.work` gives for each.
    """
    return html.render(
        "zoo.html",
        version=__version__,
        headline=_headline(rows),
        tiles=_tiles(rows),
        columns=[(name, FIGURES[name]) for name in _COLUMNS],
        unknown=_unknown(rows),
        models=[_model(row) for row in rows],
        width=plot.WIDTH,
        embedded=html.embedded({"schema": 1, "graphfix": __version__, "rows": list(rows)}),
    )


def cell(name: str, one: Figure) -> str:
    """A figure as the table shows it: ``12 → 0``, or one number, or a dash."""
    before, after = one["before"], one["after"]
    if one["why"].startswith(CANNOT_TELL):
        return CANNOT_TELL
    if not is_known(one) or (name in _SINGLE and after is None):
        return "-"
    if name in _SINGLE:
        return html.number(after) if name == "worst" and after else f"{after:.2f}" if after else "0"
    if name == "padding":
        return " → ".join("-" if x is None else html.number(x) for x in (before, after))
    if name == "crashes":
        words = {None: "-", 0: "runs", 1: "crashes"}
        return f"{words[before]} → {words[after]}"  # type: ignore[index]
    return " → ".join("-" if x is None else f"{x:g}" for x in (before, after))


def _headline(rows: Sequence[Json]) -> dict[str, str]:
    failed = [row for row in rows if not row["ok"]]
    if not rows:
        return {"tone": "", "text": "No models yet", "line": "Run graphfix zoo."}
    if failed:
        text = f"{len(failed)} of {len(rows)} models are not as they should be"
        return {"tone": "bad", "text": text, "line": ", ".join(row["id"] for row in failed)}
    return {"tone": "good", "text": f"All {len(rows)} models are as they should be", "line": ""}


def _tiles(rows: Sequence[Json]) -> list[tuple[str, str]]:
    """The figures of all models together, those that are known."""
    tiles = [("models", str(len(rows)))]
    passes = [p for row in rows for p in row["stages"].get("repair", {}).get("passes", ())]
    tiles.append(("repairs", str(sum(len(p["changes"]) for p in passes))))
    for name in ("crashes", "mask-wheres", "dynamic-reshapes"):
        pairs = [row["figures"][name] for row in rows if row["figures"][name]["after"] is not None]
        if pairs:
            before, after = (sum(x[side] or 0 for x in pairs) for side in ("before", "after"))
            tiles.append((FIGURES[name], f"{before:g} → {after:g}"))
    gaps = [x for row in rows if (x := row["figures"]["worst"]["after"]) is not None]
    if gaps:
        tiles.append((FIGURES["worst"], html.number(max(gaps, key=float))))
    return tiles


def _unknown(rows: Sequence[Json]) -> dict[str, list[str]]:
    """Why figures are not known, of the columns that hold none at all: reason to columns."""
    reasons: dict[str, list[str]] = {}
    for name in _COLUMNS:
        if rows and not any(is_known(row["figures"][name]) for row in rows):
            why = rows[0]["figures"][name]["why"]
            reasons.setdefault(why, []).append(FIGURES[name])
    return reasons


def _model(row: Json) -> Json:
    stages = row["stages"]
    repair = stages.get("repair", {})
    timed = stages.get("bench", {}).get("models")
    placed = stages.get("placement", {})
    return {
        "row": row,
        "cells": [
            {
                "name": name,
                "text": cell(name, row["figures"][name]),
                "why": row["figures"][name]["why"],
                "tone": _tone(name, row["figures"][name]),
                "interval": row["figures"][name].get("interval"),
            }
            for name in _COLUMNS
        ],
        "about": [
            (key, row[key]) for key in ("source", "license", "exporter", "weights") if row[key]
        ],
        "passes": [p for p in repair.get("passes", ()) if p["changes"]],
        "missed": html.missed({"passes": repair.get("passes", ())}),
        "verdict": repair.get("verdict"),
        "left": [
            f
            for f in stages.get("check", {}).get("after", {}).get("findings", ())
            if f["severity"] != "note"
        ],
        "timed": plot.phases(timed) if timed else None,
        "again": timed[0]["copy"].get("steady") if timed else None,
        "where": {"dml": "DirectML", "cpu": "the CPU"}[stages.get("bench", {}).get("ep", "cpu")],
        "strips": [
            {
                "side": side,
                "spans": plot.strip(placed[side]["nodes"]),
                "error": placed[side]["error"],
                "counts": placed[side]["counts"],
            }
            for side in ("before", "after")
            if side in placed
        ],
        "probe": _probe(stages.get("probe", {})),
        "pictures": [picture for stage in stages.values() for picture in stage.get("pictures", ())],
        "skipped": _grouped(stages),
    }


def _probe(found: Json) -> Json | None:
    """The error through the layers, drawn."""
    if "course" not in found:
        return None
    where = {"dml": "DirectML", "cpu": "the CPU"}[found["ep"]]
    worst = max(found["course"]["points"], key=course.relative, default=None)
    drawn = course.draw(found["course"], 640, 230)
    same = worst is not None and not course.relative(worst)
    return {**found, "where": where, "drawn": drawn, "worst": worst, "same": same}


def _grouped(stages: Mapping[str, Json]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, result in stages.items():
        if "skipped" in result:
            reasons.setdefault(result["skipped"], []).append(name)
    return reasons


def _tone(name: str, one: Figure) -> str:
    before, after = one["before"], one["after"]
    if name == "crashes" and after is not None:
        return "bad" if after else "good" if before else ""
    return ""

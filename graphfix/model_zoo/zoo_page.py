"""The zoo as one self-contained page: a table of all models, then each by itself.

It is made from the rows' JSON, which it carries, so its numbers are those of the JSON; what it
shows of a row, and where, is said by the template ``zoo.html``.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graphfix.files import atomic_file
from graphfix.model_zoo.figures import CANNOT_TELL, FIGURES, Figure, Json, is_known
from graphfix.providers.table import PROVIDERS
from graphfix.show import html
from graphfix.version import __version__

_RUNS = {None: "-", 0: "runs", 1: "crashes"}
_COLUMNS = (
    *("crashes", "worst", "ratio", "padding", "mask-wheres", "dynamic-reshapes", "findings"),
    *("nodes", "fused-graphs", "copies", "cpu-nodes"),
)


def write_page(rows: Sequence[Json], path: Path) -> None:
    """Write the page, all at once or not at all.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_text(path, render_page(rows))


def render_page(rows: Sequence[Json]) -> str:
    """Return the page of all models as HTML.

    Args:
        rows: What :func:`graphfix.model_zoo.model_process.run_request` returns for each.
    """
    empty = [name for name in _COLUMNS if not any(is_known(x["figures"][name]) for x in rows)]
    return html.render_data_page(
        "zoo.html",
        {"schema": 1, "graphfix": __version__, "rows": list(rows)},
        rows=rows,
        columns={name: FIGURES[name] for name in _COLUMNS},
        unknown=html.group_pairs(
            (rows[0]["figures"][name]["why"], FIGURES[name]) for name in empty if rows
        ),
        cell=figure_cell,
        missed=html.group_by_reason,
        places={ep: x.label for ep, x in PROVIDERS.items()},
        skipped=_skipped_by_reason,
        skipped_in_all=_count_skipped,
    )


def figure_cell(name: str, values: Figure) -> str:
    """Return a figure as the table shows it: ``12 → 0``, or one number, or a dash."""
    before, after = values["before"], values["after"]
    if values["why"].startswith(CANNOT_TELL):
        return CANNOT_TELL
    if not is_known(values):
        return "-"
    if name in ("worst", "ratio"):  # only the figure after the repair means something
        if not after:
            return "-" if after is None else "0"
        return html.format_number(after) if name == "worst" else f"{after:.2f}"
    if name == "crashes":
        return " → ".join(_RUNS[None if x is None else int(x)] for x in (before, after))
    number = html.format_number if name == "padding" else "{:g}".format
    return " → ".join("-" if x is None else number(x) for x in (before, after))


def _count_skipped(rows: Sequence[Json]) -> dict[str, Counter[str]]:
    """Return of how many models each stage was skipped, by reason."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        for why, stages in _skipped_by_reason(row["stages"]).items():
            counts.setdefault(why, Counter()).update(stages)
    return counts


def _skipped_by_reason(stages: Json) -> dict[str, list[str]]:
    """Return the stages that were skipped, by reason."""
    return html.group_pairs((x["skipped"], name) for name, x in stages.items() if "skipped" in x)

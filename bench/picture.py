"""README's picture, from docs/compare.json: what each tool leaves of a run, and what it breaks.

Run by ``make compare`` after the table; alone as ``python bench/picture.py``. Draws
docs/compare.svg and docs/compare-dark.svg.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from side_by_side_page import label, tallies

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "graphfix"  # the same numbers make the same file
from matplotlib import pyplot as plt  # noqa: E402

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Each theme: the text, the bars of others, the bars of graphfix.
THEMES = {
    "compare.svg": ("#24292f", "#c9ccd1", "#1a7048"),
    "compare-dark.svg": ("#e6edf3", "#4a5058", "#4fb583"),
}

Json = dict[str, Any]


def draw(data: Json, path: Path) -> None:
    """A bar for each tool: the kernels per run over all models, as a share of the exports'."""
    text, theirs, ours = THEMES[path.name]
    tools = tallies(data)
    mpl.rcParams.update({"font.size": 10, "text.color": text})
    figure, axes = plt.subplots(figsize=(8.4, 0.42 * len(tools) + 0.9))
    colours = [ours if x.tool.startswith("graphfix") else theirs for x in tools]
    bars = axes.barh(range(len(tools)), [x.kernels for x in tools], height=0.7, color=colours)
    axes.bar_label(bars, [label(x) for x in tools], padding=4, fontsize=9, color=text)
    axes.set_yticks(range(len(tools)), [x.name for x in tools], color=text)
    axes.invert_yaxis()
    axes.set_xlim(0, max(x.kernels for x in tools) * 1.95)
    title = f"Kernels per run on DirectML, {len(data['rows'])} exports together"
    axes.set_title(title, loc="left", color=text, fontsize=11)
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def main(docs: Path = DOCS) -> None:
    """Draw both themes."""
    data = json.loads((docs / "compare.json").read_text(encoding="utf-8"))
    for name in THEMES:
        draw(data, docs / name)


if __name__ == "__main__":
    main()

"""Draws the picture of docs/fast.md: the kernels per run on DirectML, before and after graphfix.

Run as ``python bench/kernels.py`` or ``make kernels``: it counts with ``graphfix plan``'s own eyes
over models/, writes docs/kernels.json, and draws docs/kernels.svg and docs/kernels-dark.svg.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

import graphfix
from graphfix.engine import pipeline
from graphfix.job import planning

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SPECS = {"as exported": "", "after `run`": "directml", "after `run -p fast`": "fast"}
# Each theme: background of text, and the three bars.
THEMES = {
    "kernels.svg": ("#24292f", ("#c9ccd1", "#6ea8e6", "#1a7048")),
    "kernels-dark.svg": ("#e6edf3", ("#4a5058", "#3f78b5", "#4fb583")),
}


def counted() -> dict[str, dict[str, int]]:
    """The kernels per run of each model, on the device and on the CPU together."""
    found: dict[str, dict[str, int]] = {}
    for path in sorted(ROOT.glob("models/*/model.onnx")):
        found[path.parent.name] = {}
        for name, spec in SPECS.items():
            model = graphfix.load(path)
            if spec:
                pipeline.run(model, spec)
            run = planning.plan(model).to_json()["run"]
            found[path.parent.name][name] = run["dispatches"] + run["cpu"]
    return found


def draw(counts: dict[str, dict[str, int]], file: str) -> None:
    """Draw the bars of all models, the largest first."""
    text, colours = THEMES[file]
    models = sorted(counts, key=lambda x: -max(counts[x].values()))
    mpl.rcParams.update({"font.size": 10, "text.color": text, "svg.hashsalt": "graphfix"})
    figure, axes = plt.subplots(figsize=(8.4, 4.2))
    for i, (name, colour) in enumerate(zip(SPECS, colours, strict=True)):
        places = [y + (i - 1) * 0.27 for y in range(len(models))]
        values = [counts[model][name] for model in models]
        bars = axes.barh(places, values, height=0.25, color=colour, label=name.replace("`", ""))
        axes.bar_label(bars, padding=3, fontsize=8, color=text)
    axes.set_yticks(range(len(models)), models, color=text)
    axes.invert_yaxis()
    axes.set_title("Kernels per run on DirectML, any length", loc="left", color=text, fontsize=11)
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(DOCS / file, transparent=True, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Count, write, draw."""
    counts = counted()
    (DOCS / "kernels.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    for file in THEMES:
        draw(counts, file)


if __name__ == "__main__":
    main()

"""Counts the kernels per run on DirectML before and after graphfix, for docs/fast.md.

Run as ``python bench/kernels.py`` or ``make kernels``: counts over models/ as ``graphfix plan``
does, writes docs/kernels.json and the table of docs/fast.md, and draws docs/kernels.svg and
docs/kernels-dark.svg.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

import graphfix
from graphfix.engine import pipeline

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SPECS = {"as exported": "", "after `run`": "directml", "after `run -p fast`": "fast"}
BEGIN, END = "<!-- table: make kernels -->", "<!-- end of table -->"
# Each theme: background of text, and the three bars.
THEMES = {
    "kernels.svg": ("#24292f", ("#c9ccd1", "#6ea8e6", "#1a7048")),
    "kernels-dark.svg": ("#e6edf3", ("#4a5058", "#3f78b5", "#4fb583")),
}


def count_kernels() -> dict[str, dict[str, list[int]]]:
    """Return the kernels per run of each model: on the device, on the CPU, recompiled."""
    counts: dict[str, dict[str, list[int]]] = {}
    for path in sorted(ROOT.glob("models/*/model.onnx")):
        counts[path.parent.name] = {}
        for name, spec in SPECS.items():
            model = graphfix.load(path)
            if spec:
                pipeline.run(model, spec)
            run = graphfix.plan(model).to_json()["run"]
            counts[path.parent.name][name] = [run["dispatches"], run["cpu"], run["recompiled"]]
    return counts


def write_table(counts: dict[str, dict[str, list[int]]]) -> None:
    """Write the table of docs/fast.md: kernels on the device, plus those on the CPU."""
    lines = [f"| | {' | '.join(SPECS)} |", f"| --- |{' ---: |' * len(SPECS)}"]
    for model, by_spec in counts.items():
        cells = (f"{device} + {cpu}" if cpu else str(device) for device, cpu, _ in by_spec.values())
        lines.append(f"| {model} | {' | '.join(cells)} |")
    page = DOCS / "fast.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN + "\n")
    tail = rest.partition(END)[2]
    text = f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{tail}"
    page.write_text(text, encoding="utf-8")


def draw_bars(counts: dict[str, dict[str, list[int]]], file: str) -> None:
    """Draw the bars of all models, the largest first."""
    text, colours = THEMES[file]
    models = sorted(counts, key=lambda x: -max(y[0] for y in counts[x].values()))
    mpl.rcParams.update({"font.size": 10, "text.color": text, "svg.hashsalt": "graphfix"})
    figure, axes = plt.subplots(figsize=(8.4, 4.2))
    for i, (name, colour) in enumerate(zip(SPECS, colours, strict=True)):
        places = [y + (i - 1) * 0.27 for y in range(len(models))]
        values = [counts[model][name][0] for model in models]
        bars = axes.barh(places, values, height=0.25, color=colour, label=name.replace("`", ""))
        axes.bar_label(bars, padding=3, fontsize=8, color=text)
    axes.set_yticks(range(len(models)), models, color=text)
    axes.invert_yaxis()
    axes.set_title(
        "Kernels on the device in a run on DirectML, any length",
        loc="left",
        color=text,
        fontsize=11,
    )
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(DOCS / file, transparent=True, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Count, write, draw."""
    counts = count_kernels()
    (DOCS / "kernels.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    write_table(counts)
    for file in THEMES:
        draw_bars(counts, file)


if __name__ == "__main__":
    main()

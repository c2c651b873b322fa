"""docs/conformance.md and docs/conformance.json: what all of ONNX's tests came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGE, NUMBERS = DOCS / "conformance.md", DOCS / "conformance.json"

COLUMNS = ("tried", "same", "not compared", "told", "refused", "differs", "fault")

Data = dict[str, Any]


def write(data: Data) -> None:
    """Write the numbers, and the page that is made of them."""
    NUMBERS.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(text(data), encoding="utf-8")


def text(data: Data) -> str:
    """The page."""
    kinds = data["kinds"]
    named = {
        "node": "single operators",
        "pytorch-converted": "layers that PyTorch once exported",
        "pytorch-operator": "operators that PyTorch once exported",
        "simple": "a few nodes",
        "real": "whole networks",
    }
    rows = data["rows"].values()
    changed = sum(x["same"] + x["not compared"] + x["told"] + x["differs"] for x in rows)
    whole = data["tests"] == data["of"]
    return _TEXT.format(
        **data,
        taken=f"all {data['of']:,}" if whole else f"{data['tests']:,} of the {data['of']:,}",
        parts=_listed({words: kinds[x] for x, words in named.items() if x in kinds}),
        left_out=data["tests"] - data["run"],
        reasons=_listed(data["not_run"]),
        others=_listed(data["unlike"]),
        tried=sum(x["tried"] for x in rows),
        changed=changed,
        same=sum(x["same"] for x in rows),
        differs=sum(x["differs"] for x in rows),
        faults=sum(x["fault"] for x in rows),
        refused=sum(x["refused"] for x in rows),
        told=sum(x["told"] for x in rows),
        uncompared=sum(x["not compared"] for x in rows),
        table=table(data),
        remains="\n".join(f"- `{x}`" for x in data["left"]) or "Nothing.",
    )


def table(data: Data) -> str:
    """A line for each pass."""
    head = ("", "tried", "changed", "the same", "not compared", "told", "refused", "differ")
    head += ("tracebacks",)
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for name, row in sorted(data["rows"].items(), key=lambda x: _order(x[0])):
        changed = row["same"] + row["not compared"] + row["told"] + row["differs"]
        numbers = (row["tried"], changed, *(row[x] for x in COLUMNS[1:]))
        lines.append(f"| `{name}` | {' | '.join(f'{x:,}' for x in numbers)} |")
    return "\n".join(lines)


def _order(name: str) -> tuple[bool, bool, str]:
    return not name.startswith(("check", "plan")), name not in ("directml", "fast"), name


def _listed(counts: dict[str, int]) -> str:
    return "\n".join(f"- {count:,}: {reason}" for reason, count in counts.items())


_TEXT = """\
# ONNX's own tests

`make conformance` wrote this page: {taken} backend tests that come with onnx {onnx}
went through every pass and profile, three times: with their dims as numbers, with equal sizes
under one name, and with a name for each dim. What a pass changed was run in ONNX Runtime
{onnxruntime}, without its own optimizations, and compared with what that computes of the untouched
model. Where it does not run that, what ONNX says the outputs are decides, in ONNX Runtime or in
ONNX's reference evaluator.

{parts}

{tried:,} checks and rewrites ran. {changed:,} of them changed a model:
{same:,} compute the same, {told:,} differ as was told, {uncompared:,} could not be compared,
{differs:,} differ. There were {refused:,} refusals and {faults:,} tracebacks.

{table}

`ilens-mask` was asked to pad each dim of each input in turn, and refuses what it cannot analyse;
`plan` says what ONNX Runtime rejects. `float16` is held to its own gate, a hundredth of
the largest element, the rest to 1e-4. What is told differs as the change itself says it may:
`reshape-allowzero` rests on no tensor being empty, and some tests are of empty ones.

## What ONNX Runtime does with them before any pass

It runs {run:,}. The other {left_out:,}:

{reasons}

Of what it runs:

{others}

## What is left

{remains}
"""

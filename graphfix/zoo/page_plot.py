"""The geometry of the page's pictures; the template draws them."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

WIDTH = 640.0
_LEFT, _ROW, _TOP = 110.0, 40.0, 8.0
_NAMES = {"dml": "DirectML", "fused": "fused", "cpu": "CPU", "copy": "copy"}
_OPS_SHOWN = 12


def phases(models: Sequence[Mapping[str, Any]]) -> Json | None:
    """Each phase as a row, each model's processes as dots on a logarithmic axis of milliseconds.

    Args:
        models: As ``graphfix bench --json`` has them, before and after.

    Returns:
        ``rows`` with their dots and medians, ``ticks`` of the axis, and the ``height``; None if
        nothing was timed.
    """
    names = [
        name
        for name in models[0]["phases"]
        if any(model["phases"].get(name, {}).get("runs") for model in models)
    ]
    every = [
        ms
        for model in models
        for phase in model["phases"].values()
        for ms in phase.get("all_ms", ())
        if ms > 0
    ]
    if not every:
        return None
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    high = max(high, low + 1)

    def x(ms: float) -> float:
        share = (math.log10(max(ms, 10.0**low)) - low) / (high - low)
        return round(_LEFT + share * (WIDTH - _LEFT - 70), 1)

    rows = []
    for i, name in enumerate(names):
        y = _TOP + i * _ROW
        rows.append(
            {
                "name": name,
                "y": y,
                "models": [
                    {
                        "side": model["model"],
                        "y": y + 12 + 14 * side,
                        "dots": [x(ms) for ms in phase["all_ms"]],
                        "median": x(phase["median_ms"]),
                        "text": milliseconds(phase["median_ms"]),
                    }
                    for side, model in enumerate(models)
                    if (phase := model["phases"].get(name, {})).get("runs")
                ],
            }
        )
    ticks = [{"x": x(10.0**e), "text": milliseconds(10.0**e)} for e in range(low, high + 1)]
    return {"rows": rows, "ticks": ticks, "height": _TOP + len(names) * _ROW + 22}


def milliseconds(ms: float) -> str:
    """``0.42 ms``, ``12 ms``, ``1.5 s``: three digits at most."""
    return f"{ms / 1e3:.3g} s" if ms >= 1e3 else f"{ms:.3g} ms"


def strip(nodes: Sequence[Mapping[str, str]]) -> list[Json]:
    """Nodes in the order they ran, neighbours at the same place taken together.

    Returns:
        Spans with ``kind`` (dml, fused, cpu or copy), ``start`` and ``width`` as shares of
        :data:`WIDTH`, and what to say of them.
    """
    spans, start = [], 0
    for kind, members in itertools.groupby(nodes, _kind):
        ops = [node["op"] for node in members]
        shown = ", ".join(ops[:_OPS_SHOWN]) + (", …" if len(ops) > _OPS_SHOWN else "")
        spans.append(
            {
                "kind": kind,
                "start": round(start * WIDTH / len(nodes), 2),
                "width": round(len(ops) * WIDTH / len(nodes), 2),
                "count": len(ops),
                "text": f"{_NAMES[kind]}, {len(ops)}: {shown}",
            }
        )
        start += len(ops)
    return spans


def _kind(node: Mapping[str, str]) -> str:
    if node["op"].startswith("Memcpy"):
        return "copy"
    return "fused" if node["op"].startswith("DmlFusedNode") else node["on"]

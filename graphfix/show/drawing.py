"""Draws a few nodes as a small graph, for the template of a page.

Nodes are in layers, each below what it reads; an edge over several layers goes around what is in
them. The nodes come as the lines of ONNX text that a :class:`graphfix.core.Change` holds.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MOST = 16
"""More nodes than this are text only: nobody follows their edges in a drawing of this kind."""
_LETTER, _PAD, _GAP, _ROW, _HEIGHT = 7.3, 10, 16, 66, 40
_LONGEST = 26
_SWEEPS = 4
_LINE = re.compile(r"(?P<made>.*?) = (?P<op>[\w.]+) (?:<(?P<attributes>.*)> )?\((?P<given>.*)\)")
_OPERAND = re.compile(r"(?:\{[^}]*\}|[^,{])+")
_CONSTANT = re.compile(r"\{.*|-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)|nan|True|False")


class Box(NamedTuple):
    """A node, or a tensor at the border of the drawing; in pixels from the top left.

    ``more`` is a second line of text, ``title`` all of it.
    """

    x: float
    y: float
    width: float
    kind: str
    text: str
    more: str
    title: str


class Drawing(NamedTuple):
    """Boxes, and the path of each edge."""

    width: float
    height: float
    boxes: list[Box]
    edges: list[str]


class _Cell(NamedTuple):
    kind: str
    text: str
    more: str = ""
    title: str = ""

    @property
    def width(self) -> float:
        return max(len(self.text), len(self.more)) * _LETTER + 2 * _PAD if self.text else 0


def draw_nodes(lines: Sequence[str]) -> Drawing | None:
    """Return the drawing of some nodes; None if there are none, too many, or a bad line."""
    nodes = [x for x in map(_LINE.fullmatch, lines) if x]
    if not 0 < len(nodes) == len(lines) <= MOST:
        return None
    producers = {y: i for i, x in enumerate(nodes) for y in _operands(x, "made")}
    cells: dict[str, _Cell] = {}
    edges: list[tuple[str, str]] = []
    read: set[str] = set()
    for i, node in enumerate(nodes):
        operands = _operands(node, "given")
        # A constant that a node makes is written as its contents, as one that it reads is.
        fixed = [x for x in operands if producers.get(x, i) == i and _CONSTANT.fullmatch(x)]
        more = ", ".join([*fixed, *filter(None, [node["attributes"]])])
        cells[str(i)] = _Cell("node", node["op"], _shorten_text(more, end=False), lines[i])
        for x in dict.fromkeys(operands):
            if producers.get(x, i) != i:
                edges.append((str(producers[x]), str(i)))
                read.add(x)
            elif x not in fixed:
                cells[f"in {x}"] = _Cell("tensor", _shorten_text(x), title=x)
                edges.append((f"in {x}", str(i)))
    for x, i in producers.items():
        if x not in read:
            cells[f"out {x}"] = _Cell("tensor", _shorten_text(x), title=x)
            edges.append((str(i), f"out {x}"))
    return _lay_out(cells, edges)


def _operands(node: re.Match[str], group: str) -> list[str]:
    return [x.strip() for x in _OPERAND.findall(node[group]) if x.strip()]


def _shorten_text(text: str, *, end: bool = True) -> str:
    """Shorten a text: a name to the end of its last part, other text to its beginning."""
    if end:
        text = text.rstrip("/").rpartition("/")[2] or text
    if len(text) <= _LONGEST:
        return text
    return f"…{text[1 - _LONGEST :]}" if end else f"{text[: _LONGEST - 1]}…"


def _lay_out(cells: dict[str, _Cell], edges: list[tuple[str, str]]) -> Drawing:
    level = dict.fromkeys(cells, 0)
    for _ in cells:  # as many steps as the longest path can have
        for a, b in edges:
            level[b] = max(level[b], min(level[a] + 1, len(cells)))
    for x in cells:  # what comes from outside stands just above its first reader
        if x.startswith("in "):
            level[x] = min(level[b] for a, b in edges if a == x) - 1
    paths = []
    for a, b in edges:  # around what is between: by an empty cell in each layer
        bends = [f"{a} {b} {i}" for i in range(level[a] + 1, level[b])]
        cells.update(dict.fromkeys(bends, _Cell("bend", "")))
        level.update(zip(bends, range(level[a] + 1, level[b]), strict=True))
        paths.append([a, *bends, b])
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for x in cells:
        rows[level[x]].append(x)
    steps = [step for path in paths for step in itertools.pairwise(path)]
    above, below = [(b, a) for a, b in steps], steps
    for i in range(_SWEEPS):
        for row in rows[:: -1 if i % 2 else 1]:
            _sort_row(row, rows, below if i % 2 else above)
    wide = max(_row_width(cells, row) for row in rows)
    left_edges: dict[str, float] = {}
    for row in rows:
        start = (wide - _row_width(cells, row)) / 2
        for x in row:
            left_edges[x] = start
            start += cells[x].width + _GAP
    centres = {x: (left_edges[x] + cells[x].width / 2, _ROW * level[x]) for x in cells}
    shown = ((x, cell) for x, cell in cells.items() if cell.kind != "bend")
    boxes = [Box(left_edges[x], _ROW * level[x], cell.width, *cell) for x, cell in shown]
    height = _ROW * (len(rows) - 1) + _HEIGHT
    return Drawing(wide, height, boxes, [_edge_path(path, centres, cells) for path in paths])


def _sort_row(row: list[str], rows: list[list[str]], steps: Iterable[tuple[str, str]]) -> None:
    """Sort the cells of a row by the mean position of their neighbours."""
    at = {x: i - len(layer) / 2 for layer in rows for i, x in enumerate(layer)}
    near: dict[str, list[float]] = {x: [] for x in row}
    for x, neighbour in steps:
        if x in near:
            near[x].append(at[neighbour])
    row.sort(key=lambda x: sum(near[x]) / len(near[x]) if near[x] else at[x])


def _row_width(cells: Mapping[str, _Cell], row: Sequence[str]) -> float:
    return sum(cells[x].width for x in row) + _GAP * (len(row) - 1)


def _edge_path(
    path: Sequence[str], middle: Mapping[str, tuple[float, float]], cells: Mapping[str, _Cell]
) -> str:
    """Return the path from the lower edge of the first box to the upper edge of the last."""
    x, y = middle[path[0]]
    text = f"M{x:.0f} {y + _HEIGHT}"
    for name in path[1:]:
        bend, (to, top) = cells[name].kind == "bend", middle[name]
        half = (_ROW - _HEIGHT) / 2
        text += f" C{x:.0f} {top - half:.0f} {to:.0f} {top - half:.0f} {to:.0f} {top}"
        if bend:
            text += f" V{top + _HEIGHT}"
        x = to
    return text

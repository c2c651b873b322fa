"""Draws a few nodes as a small graph, for the template of a page.

Nodes are in layers, each below what it reads; an edge over several layers goes around what is in
them. The nodes come as the lines of ONNX text that a :class:`graphfix.core.Change` holds.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

MOST = 16
"""More nodes than this are shown as text only: their edges cannot be followed."""
_LETTER, _PAD, _GAP, _ROW, _HEIGHT = 7.3, 10, 16, 66, 40
_LONGEST = 26
_SWEEPS = 4
_LINE = re.compile(
    r"(?P<outputs>.*?) = (?P<op>[\w.]+) (?:<(?P<attributes>.*)> )?\((?P<inputs>.*)\)"
)
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
    producers = {y: i for i, x in enumerate(nodes) for y in _operands(x, "outputs")}
    cells: dict[str, _Cell] = {}
    edges: list[tuple[str, str]] = []
    read: set[str] = set()
    for i, node in enumerate(nodes):
        operands = _operands(node, "inputs")
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
    layers = _layers_of(cells, edges)
    paths = [_bend_edge(cells, layers, a, b) for a, b in edges]
    rows: list[list[str]] = [[] for _ in range(max(layers.values()) + 1)]
    for x in cells:
        rows[layers[x]].append(x)
    _sort_rows(rows, paths)
    width = max(_row_width(cells, row) for row in rows)
    left_edges = {x: left for row in rows for x, left in _place_row(cells, row, width)}
    centres = {x: (left_edges[x] + cells[x].width / 2, _ROW * layers[x]) for x in cells}
    shown = ((x, cell) for x, cell in cells.items() if cell.kind != "bend")
    boxes = [Box(left_edges[x], _ROW * layers[x], cell.width, *cell) for x, cell in shown]
    height = _ROW * (len(rows) - 1) + _HEIGHT
    return Drawing(width, height, boxes, [_edge_path(path, centres, cells) for path in paths])


def _layers_of(cells: Iterable[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each cell: below all it reads; an outer tensor just above its reader."""
    layers = dict.fromkeys(cells, 0)
    for _ in range(len(layers)):  # as many steps as the longest path can have
        for a, b in edges:
            layers[b] = max(layers[b], min(layers[a] + 1, len(layers)))
    for x in layers:
        if x.startswith("in "):
            layers[x] = min(layers[b] for a, b in edges if a == x) - 1
    return layers


def _bend_edge(cells: dict[str, _Cell], layers: dict[str, int], a: str, b: str) -> list[str]:
    """Return the cells that an edge goes through: an empty new one in each layer between."""
    between = range(layers[a] + 1, layers[b])
    bends = [f"{a} {b} {layer}" for layer in between]
    cells.update(dict.fromkeys(bends, _Cell("bend", "")))
    layers.update(zip(bends, between, strict=True))
    return [a, *bends, b]


def _sort_rows(rows: list[list[str]], paths: Iterable[Sequence[str]]) -> None:
    """Sort each row by what it is joined to above, then by what is below, a few times."""
    below = [step for path in paths for step in itertools.pairwise(path)]
    above = [(b, a) for a, b in below]
    for i in range(_SWEEPS):
        for row in rows[:: -1 if i % 2 else 1]:
            _sort_row(row, rows, below if i % 2 else above)


def _place_row(
    cells: Mapping[str, _Cell], row: Sequence[str], width: float
) -> Iterator[tuple[str, float]]:
    """Yield the left edge of each cell of a row that is centred in the width of the drawing."""
    left = (width - _row_width(cells, row)) / 2
    for x in row:
        yield x, left
        left += cells[x].width + _GAP


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

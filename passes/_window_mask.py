"""Whether what is added to the scores of an attention cuts its sequence into windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphfix.model.shapes import same
from graphfix.model.values import is_op

from ._attention_inputs import Term
from ._masks import HIDES, select_of
from ._window_sums import CannotError, LongerError
from ._window_table import LARGEST, Axis, Leaf, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from graphfix.model.shapes import Dim
    from graphfix.model.view import View

_TRIES = 12
_NEAREST = 24


@dataclass(frozen=True)
class Keys:
    """A boolean that says of each key whether it is seen.

    Attributes:
        leaf: The boolean.
        seen: Its value where the key is seen.
    """

    leaf: Leaf
    seen: bool


@dataclass(frozen=True)
class Cut:
    """Windows that no score reaches beyond.

    Attributes:
        width: How long a window is; the last may be shorter.
        low: What is added to the scores of a key that is not seen.
        keys: Which keys are seen within the windows, if not all.
        rest: What else is added, the same for each query.
    """

    width: int
    low: float
    keys: Keys | None
    rest: tuple[Term, ...]


def cut_of(terms: Sequence[Term], length: Dim, batch: Dim, view: View) -> Cut | str | None:
    """The windows that these addends cut; why they cut none; None if they are nothing like it.

    Args:
        terms: What is added to the scores.
        length: How many queries there are, and keys.
        batch: The batch.
        view: The model around it.
    """
    parts = [part for term in terms for part in _parts(term, view)]
    cutting = [part for part in parts if part.dims[2] != 1]
    rest = tuple(part for part in parts if part.dims[2] == 1)
    if not cutting:
        return None
    if any(part.dims[1] != 1 or not _fits(part.dims[0], batch) for part in parts):
        return None
    try:
        tables, array = _table(cutting, length, view)
    except CannotError as error:
        return str(error) or None
    found = _read(tables, array, rest)
    if isinstance(found, Cut) and found.keys is not None:
        leaf = found.keys.leaf
        dims = view.shapes.dims(leaf.value) or ()
        others = [dim for dim, axis in zip(dims, leaf.axes, strict=True) if axis == "other"]
        key = leaf.axes.index("key") if "key" in leaf.axes else len(leaf.axes)
        turned = "other" in leaf.axes[key:]
        if turned or len(others) > 1 or not all(_fits(dim, batch) for dim in others):
            return "how its mask of keys lies along the batch is not seen"
    return found


def hidden_windows(node: ir.Node, view: View) -> int | None:
    """The width of the windows that a Where before the Softmax behind ``node`` cuts, if any."""
    pending, far = [x for x in node.inputs[:1] if x is not None], _NEAREST
    while pending and far:
        far -= 1
        above = pending.pop().producer()
        if above is None:
            continue
        select = select_of(above) if is_op(above, "Where") else None
        dims = view.shapes.dims(select.cond) if select is not None else None
        if select is not None and select.fill.number <= HIDES and dims and len(dims) <= 4:
            term = Term(select.cond, (*([1] * (4 - len(dims))), *dims), 1.0)
            return _width_of(term, select.when, dims[-1], view)
        pending += [x for x in above.inputs if x is not None]
    return None


def _width_of(term: Term, when: bool, length: Dim, view: View) -> int | None:
    try:
        tables, array = _table([term], length, view)
    except CannotError:
        return None
    hides = (array != 0) == when
    found = _read(tables, np.where(hides, -np.inf, 0.0), ())
    return found.width if isinstance(found, Cut) else None


def _fits(dim: Dim, batch: Dim) -> bool:
    return dim == 1 or same(dim, batch)


def _parts(term: Term, view: View) -> list[Term]:
    """The addends that an addend is a sum of."""
    node = term.value.producer()
    if not is_op(node, "Add") or term.insert is not None:
        return [term]
    found: list[Term] = []
    for value in node.inputs:
        dims = view.shapes.dims(value)
        if value is None or dims is None or len(dims) > 4:
            return [term]
        from_each = type(term)(value, (*([1] * (4 - len(dims))), *dims), term.factor)
        found += _parts(from_each, view)
    return found


def _table(terms: Sequence[Term], length: Dim, view: View) -> tuple[Tables, NDArray[np.float64]]:
    """What these add to the score of each query and key, for sequences of every length."""
    static = length if isinstance(length, int) else None
    if static is not None and static > LARGEST:
        raise CannotError
    period, blocks = 1, 1
    for _ in range(_TRIES):
        tables = Tables(view, period, blocks, static)
        if tables.size > LARGEST:
            break
        try:
            array = np.zeros((1, 1, 1))
            for term in terms:
                found = tables.of(term.value, _axes(term, view)).array.astype(np.float64)
                array = array + found * term.factor
        except LongerError as longer:
            period *= longer.factor
            continue
        if static is None and tables.apart > blocks:
            blocks = tables.apart
            continue
        return tables, array
    raise CannotError


def _axes(term: Term, view: View) -> tuple[Axis, ...]:
    dims = view.shapes.dims(term.value) or ()
    if term.insert is not None or len(dims) < 2:
        raise CannotError
    roles: list[Axis] = ["other" for _ in dims[2:]]
    roles += ["query", "key"]
    return tuple("one" if dim == 1 else role for dim, role in zip(dims, roles, strict=True))


def _read(tables: Tables, array: NDArray[np.float64], rest: tuple[Term, ...]) -> Cut | str | None:
    """The windows in a table, if it shows nothing else."""
    size = tables.size
    array = np.broadcast_to(array, (size, size, array.shape[2]))
    seen = array > HIDES
    states = [i for i in range(array.shape[2]) if seen[..., i].any()]
    if not states or seen[..., states].all():
        return None
    first = seen[..., states[0]]
    width = int(np.argmin(first[0])) if not first[0].all() else size
    index = np.arange(size) // max(width, 1)
    windows = index[:, None] == index[None, :]
    alike = all((seen[..., i] == windows).all() for i in states)
    fits = tables.length is not None or tables.period % max(width, 1) == 0
    if not width or not alike or not fits:
        return _unlike(first, tables)
    if width == size:
        return None
    if any((array[..., i][windows] != 0).any() for i in states):
        return "what is added to the scores within its windows is not 0"
    hidden = array[~seen]
    keys = _keys(tables, states, array.shape[2])
    if isinstance(keys, str):
        return keys
    return Cut(width, float(hidden.max()), keys, rest)


def _keys(tables: Tables, states: Sequence[int], count: int) -> Keys | str | None:
    """Which leaf says whether a key is seen; None if all are."""
    if len(states) == count:
        return None
    for place, leaf in enumerate(tables.leaves):
        for seen in (True, False):
            if list(states) == [i for i in range(count) if bool(i >> place & 1) == seen]:
                return Keys(leaf, seen)
    return "two masks of keys together decide which keys of its windows are seen"


def _unlike(seen: NDArray[np.bool_], tables: Tables) -> str | None:
    """How the keys that are seen differ from windows that keep to themselves."""
    near = 1 if tables.length is not None else tables.period
    before, behind = bool(seen[-near:, :near].any()), bool(seen[:near, -near:].any())
    if tables.length is not None and not tables.cuts:
        return None
    if not before and not behind:
        return (
            "each query sees the keys near it, but not in windows of one size from the first place "
            "on: they overlap, or are shifted"
        )
    if tables.cuts and before != behind:
        where = "before" if before else "behind"
        return f"its windows see those {where} them, and so cannot be computed one by one"
    return None

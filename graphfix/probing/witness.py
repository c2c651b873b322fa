"""What is fed to two models whose ways part: the case that shows it best, and how large it gets."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.case import Case
from graphfix.feeds.clips import told
from graphfix.feeds.input import size_of
from graphfix.feeds.search import search
from graphfix.feeds.signature import Signature
from graphfix.feeds.user import given_case
from graphfix.lengths.given import LengthInput
from graphfix.proof.compare import Tolerance, compare, computes_in_half
from graphfix.proof.outputs import silent_outputs
from graphfix.runtime.errors import RunError
from graphfix.runtime.opening import open_given, open_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfix.model.symbolic import Dim
    from graphfix.proof.compare import Array
    from graphfix.proof.stream import Run

StrPath = str | os.PathLike[str]
_ITEM = 4  # bytes of an element, for sizes that are only estimates


def gate_of(tolerance: Tolerance | None, *models: ir.Model) -> Tolerance:
    """What outputs may differ: a hundred times more if a model computes in float16."""
    gate = tolerance or Tolerance()
    return gate.for_half() if any(map(computes_in_half, models)) else gate


def parting_case(
    before: Run,
    after: Run,
    dims: Mapping[str, int] | None,
    feeds: StrPath | Mapping[str, Array] | None,
    gate: Tolerance,
) -> tuple[Case, Signature]:
    """The smallest case whose outputs part, without ragged rows if one does; else the largest.

    Where none part, one of zeros alone says little: inputs that vary come first.

    Raises:
        FeedError: There is no case that both models run.
    """
    outputs: dict[str, dict[str, Array]] = {}
    with open_given(before.source) as session:

        def run(case: Case) -> None:
            outputs[case.name] = session.run(case.feeds)

        if feeds is None:
            sizes = {name: [size] for name, size in (dims or {}).items()}
            found = search(before.graph, run, dims=sizes, cover=True)
            if silent_outputs(outputs[x.name] for x in found):
                found = search(before.graph, run, dims=sizes, cover=True, positive=True)
            signature = found.signature
            # What is made of padding on the left, or of a row of it, may differ in a good repair.
            cases = [x for x in found if x.side == "right" and not x.empty_rows]
        else:
            signature = Signature(before.graph)
            cases = [given_case(feeds, signature)]
            try:
                run(cases[0])
            except RunError as error:
                raise FeedError(f"the first model does not run on these inputs: {error}") from error
    ran: list[Case] = []
    bad: list[Case] = []
    reason = ""
    with open_session(after.source, after.ep) as session:
        for case in cases:
            try:
                theirs = session.run(fed_whole(after.graph, case))
            except RunError as error:
                reason = str(error)
                continue
            ran.append(case)
            ours = outputs.pop(case.name)
            pairs = ((name, array, theirs[name]) for name, array in ours.items() if name in theirs)
            if not all(compare(name, "", a, b, gate).ok for name, a, b in pairs):
                bad.append(case)
    if not ran:
        raise FeedError(f"the second model does not run on the inputs of the first: {reason}")
    if bad:
        return min(bad, key=lambda c: (c.ragged, c.volume)), signature
    return max(ran, key=lambda c: (c.ragged, _varying(c), c.volume)), signature


def _varying(case: Case) -> int:
    """How many inputs hold more than one number."""
    return sum(bool((x != x.flat[0]).any()) for x in case.feeds.values() if x.size)


def fed_whole(model: ir.Model, case: Case) -> dict[str, Array]:
    """The inputs for a repaired model, which is told that all of them is content."""
    fed = LengthInput.of(model)
    if fed is None or fed.input in case.feeds:
        return case.feeds
    item = next(x for x in Signature(model).inputs if x.name == fed.input)
    name, axis = fed.place
    if name not in case.feeds or axis >= case.feeds[name].ndim:
        raise FeedError(f"there is no axis {fed.axis} to tell the length of")
    rows = case.feeds[name].shape[0] if axis else 1
    return told(case.feeds, fed, item, [case.feeds[name].shape[axis]] * rows)


class Sizes:
    """How many bytes a tensor has in both runs, by its symbolic shape."""

    def __init__(
        self, signature: Signature, one: Mapping[str, int], other: Mapping[str, int]
    ) -> None:
        self._dims = signature.value_dims()
        self._sizes = [
            {signature.symbol_of(name) or name: size for name, size in sizes.items()}
            for sizes in (one, other)
        ]

    def __call__(self, name: str) -> int | None:
        """The bytes of one tensor; None where its shape is not known."""
        dims = self._dims.get(name)
        if dims is None:
            return None
        try:
            return sum(_ITEM * self._elements(dims, sizes) for sizes in self._sizes)
        except (FeedError, ValueError):
            return None

    @staticmethod
    def _elements(dims: Sequence[Dim], sizes: Mapping[str, int]) -> int:
        return math.prod(size_of(dim, sizes) for dim in dims)

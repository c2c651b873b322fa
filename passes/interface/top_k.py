"""top-k: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Readings, Skip
from graphfix.editing.builder import Builder
from graphfix.errors import UsageError
from graphfix.facts.view import View
from graphfix.graph.text import node_label
from graphfix.graph.walks import opset_of
from graphfix.proof.rankings import restore_scores

from ._scores import (
    INDEX_TYPES,
    ScoresSite,
    find_scores,
    fits_type,
    name_output,
    replace_output,
    size_along,
)

_K_IS_INPUT = 10  # the opset since which it is


@dataclass(frozen=True)
class TopK(Pass):
    """Replaces an output of scores with its k largest values and their indices.

    `NAME` becomes `NAME_values` and `NAME_indices`, the largest first, in the place of `NAME`.

    Why:
        What a run gives back is copied from the device: the scores of a vocabulary of 25,055 for 93
        frames are 9.3 MB, of which a beam search reads 10 or 100 a frame. DirectML and WebGPU have
        a TopK for float32 and float16. Behind a Softmax or LogSoftmax the order is that of the
        logits, and the values are as the output was.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        ctc (float[B, T, 3] x, float[3, 5] w) => (float[B, T, 5] logits)
        {
            logits = MatMul (x, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        ctc (float[B, T, 3] x, float[3, 5] w)
            => (float[B, T, 2] logits_values, int64[B, T, 2] logits_indices)
        <int64[1] k = {2}>
        {
            logits = MatMul (x, w)
            logits_values, logits_indices = TopK <axis = 2, largest = 1, sorted = 1> (logits, k)
        }

    Safety:
        Exact: it is verified that each value is the score at its index, that all other scores are
        at most as large, and that the largest come first. Equal scores may be ranked either way. Of
        a vector with NaN the order is not defined, and DirectML's is not the CPU's. k may not be
        larger than the axis, which needs a fixed size. float16 comes before it: it measures what it
        may round on all scores.

    Options:
        output: The output.
        k: How many of the largest are given.
        axis: The axis of the vocabulary; the last by default.
        indices: int64, as ONNX has it, or int32, which is 4 bytes less to copy for each, and one
            more kernel.

    Spec:
        top-k:output=logits:k=2
    """

    may_change = frozenset({"outputs"})
    sentence = "its scores would be ranked on the device"

    output: str = ""
    k: int = 0
    axis: int = -1
    indices: Literal["int64", "int32"] = "int64"

    def __post_init__(self) -> None:
        if self.output and self.k < 1:
            raise ValueError(f"k={self.k}: give how many of the largest are read, such as k=10")

    @property
    def _names(self) -> tuple[str, str]:
        return f"{self.output}_values", f"{self.output}_indices"

    def sites(self, model: ir.Model) -> Iterator[ScoresSite | Skip]:
        """Yield the output."""
        site = find_scores(self.name, model, self.output, self.axis, self._names)
        if isinstance(site, ScoresSite):
            size = size_along(site, model)
            if size is None:
                raise UsageError(
                    f"{self.name}: axis {site.axis} of {self.output!r} has no fixed size, and k may"
                    " not be larger; give another axis, or fix its dim with fix-dims first"
                )
            if self.k > size:
                raise UsageError(
                    f"{self.name}: k={self.k}, and axis {site.axis} of {self.output!r} has {size} "
                    f"elements; give k={size} at most"
                )
        if site is not None:
            yield site

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Put a TopK behind the output."""
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            builder, dtype = Builder(self.name, View(model)), View(model).shapes.dtype(site.value)
            at = node_label(site.node)
            builder.start_site(site.node)
            values, indices = self._build(site, builder, opset_of(model))
            dims = [self.k if i == site.axis else x for i, x in enumerate(site.dims)]
            name_output(values, self._names[0], dtype, dims)
            name_output(indices, self._names[1], INDEX_TYPES[self.indices], dims)
            replace_output(model, site.value, values, indices)
            yield Change(self.name, at, self.output, (), builder.finish_site())

    def _build(self, site: ScoresSite, op: Builder, opset: int) -> tuple[ir.Value, ir.Value]:
        order = {"largest": 1, "sorted": 1} if opset > _K_IS_INPUT else {}
        made: list[ir.Value] = []

        def build() -> ir.Value:
            if opset < _K_IS_INPUT:
                made.extend(
                    op.make_outputs("TopK", (True, True), site.value, axis=site.axis, k=self.k)
                )
            else:
                k = np.array([self.k], np.int64)
                made.extend(
                    op.make_outputs("TopK", (True, True), site.value, k, axis=site.axis, **order)
                )
            narrow = self.indices != "int64"
            return op.Cast(made[1], to=INDEX_TYPES[self.indices]) if narrow else made[1]

        indices = op.build_at_end(build)
        return made[0], indices

    def message(self, site: Match) -> str:
        """Describe the output and what becomes of it."""
        assert isinstance(site, ScoresSite)
        return f"output {self.output!r} would be its {self.k} largest and their indices"

    def outputs(self, old: Readings) -> Readings:
        """Return the largest scores and their indices in place of the scores."""
        scores = old.get(self.output)
        rest = {name: x for name, x in old.items() if name != self.output}
        if scores is None:
            return old
        order = np.argsort(scores, axis=self.axis, kind="stable")
        places = np.take(np.flip(order, self.axis), range(self.k), axis=self.axis)
        values = np.take_along_axis(scores, places, self.axis)
        places = places.astype(INDEX_TYPES[self.indices].numpy())
        return {**rest, self._names[0]: values, self._names[1]: places}

    def read_outputs(self, new: Readings, old: Readings) -> Readings:
        """Return the scores as the values and indices tell them."""
        values, places = (new.get(name) for name in self._names)
        scores = old.get(self.output)
        if values is None or places is None or scores is None:
            return new
        rest = {name: x for name, x in new.items() if name not in self._names}
        fits = fits_type(places, self.indices) and places.shape[self.axis] == self.k
        told = restore_scores(scores, places, values, self.axis) if fits else places
        return {**rest, self.output: told}

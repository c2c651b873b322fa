"""arg-max: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Readings, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.text import node_label
from graphfix.proof.rankings import restore_scores

from ._scores import INDEX_TYPES, ScoresSite, find_scores, fits_type, name_output, replace_output


@dataclass(frozen=True)
class ArgMax(Pass):
    """Replaces an output of scores with the index of the largest.

    `NAME` becomes `NAME_indices`, without the axis of the vocabulary, in the place of `NAME`.

    Why:
        What a run gives back is copied from the device. A greedy search reads one index of a vector
        of scores: of a decoder's 51,865 scores for each step, 8 bytes in place of 207 kB. DirectML
        and WebGPU have an ArgMax for float32 and float16; on DirectML it was right with ties and
        with NaN (onnxruntime-directml 1.24.4).

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
        ctc (float[B, T, 3] x, float[3, 5] w) => (int64[B, T] logits_indices)
        {
            logits = MatMul (x, w)
            logits_indices = ArgMax <axis = 2, keepdims = 0> (logits)
        }

    Safety:
        Exact: it is verified that no score is larger than the one at the index. Of equal scores it
        is the first; of a vector with NaN it is any. Give it after float16, which measures what it
        may round on the scores: `-p fast,float16,arg-max:output=logits`.

    Options:
        output: The output.
        axis: The axis of the vocabulary; the last by default.
        indices: int64, as ONNX has it, or int32, which is 4 bytes less to copy for each, and one
            more kernel.

    Spec:
        arg-max:output=logits
    """

    may_change = frozenset({"outputs"})
    sentence = "the index of the largest would be found on the device"

    output: str = ""
    axis: int = -1
    indices: Literal["int64", "int32"] = "int64"

    @property
    def _new_name(self) -> str:
        return f"{self.output}_indices"

    def sites(self, model: ir.Model) -> Iterator[ScoresSite | Skip]:
        """Yield the output."""
        site = find_scores(self.name, model, self.output, self.axis, [self._new_name])
        if site is not None:
            yield site

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Put an ArgMax behind the output."""
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            builder = Builder(self.name, View(model))
            at, axis, narrow = node_label(site.node), site.axis, self.indices != "int64"
            dtype = INDEX_TYPES[self.indices]

            def build(
                op: Builder = builder,
                scores: ir.Value = site.value,
                axis: int = axis,
                narrow: bool = narrow,
                dtype: ir.DataType = dtype,
            ) -> ir.Value:
                indices = op.ArgMax(scores, axis=axis, keepdims=0)
                return op.Cast(indices, to=dtype) if narrow else indices

            builder.start_site(site.node)
            indices = builder.build_at_end(build)
            dims = [x for i, x in enumerate(site.dims) if i != axis]
            name_output(indices, self._new_name, dtype, dims)
            replace_output(model, site.value, indices)
            yield Change(self.name, at, self.output, (), builder.finish_site())

    def message(self, site: Match) -> str:
        """Describe the output and what becomes of it."""
        return f"output {self.output!r} would be the index of its largest"

    def outputs(self, old: Readings) -> Readings:
        """Return the index of the largest in place of the scores."""
        scores = old.get(self.output)
        if scores is None:
            return old
        rest = {name: x for name, x in old.items() if name != self.output}
        places = np.argmax(scores, axis=self.axis).astype(INDEX_TYPES[self.indices].numpy())
        return {**rest, self._new_name: places}

    def read_outputs(self, new: Readings, old: Readings) -> Readings:
        """Return the scores as the indices tell them: none is larger than that one."""
        places, scores = new.get(self._new_name), old.get(self.output)
        if places is None or scores is None:
            return new
        rest = {name: x for name, x in new.items() if name != self._new_name}
        fits = fits_type(places, self.indices) and places.ndim == scores.ndim - 1
        if not fits:
            return {**rest, self.output: places}
        told = restore_scores(scores, np.expand_dims(places, self.axis), None, self.axis)
        return {**rest, self.output: told}

"""Masks of an output's content, as opposed to what was computed from padding.

The dims of an output say it, by the symbol of the axis that a mask or length input governs; where
inference does not know the dims, they are inferred from observed shapes.
"""

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.array_fill import index_along, reshape_along
from graphfix.feeds.case import Case, PerRow
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.proof.compare import Array, Mask, Tolerance

Outputs = Mapping[str, Array]
Dims = tuple[Dim, ...] | None


class ContentMasks:
    """Masks of the content in the outputs of a model.

    Args:
        signature: The inputs of the model.

    Attributes:
        dims: The dims of each output, as far as they are known; none before :meth:`learn_dims`.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self.dims: dict[str, Dims] = {}

    def learn_dims(self, runs: Sequence[tuple[Case, Outputs]]) -> None:
        """Learn the dims of outputs, by inference and from the shapes in these runs."""
        self.dims = self._signature.output_dims()
        input_symbols = set(self._signature.symbols())
        for name, dims in self.dims.items():
            if dims is not None and {s for d in dims for s in symbols(d)} <= input_symbols:
                continue
            having = [(case, outputs[name]) for case, outputs in runs if name in outputs]
            observed = [
                (array.shape, self._signature.key_by_symbol(case.dims)) for case, array in having
            ]
            governed = {s for case, _ in having for s in self._valid_lengths(case)}
            self.dims[name] = infer_dims_from_shapes(observed, governed) or dims

    def mask_of_output(self, name: str, shape: tuple[int, ...], case: Case) -> Mask | None:
        """Return where an output is content, or None if its dims do not say it."""
        return self.mask_for_dims(self.dims.get(name), shape, case)

    def mask_for_dims(self, dims: Dims, shape: tuple[int, ...], case: Case) -> Mask | None:
        """Return where a tensor with these dims is content, or None if they do not say it.

        The valid length of an axis is its dim, an expression such as ``floor((T - 400)/160) + 1``,
        with the length of the row in place of ``T``.
        """
        sizes, lengths = self._signature.key_by_symbol(case.dims), self._valid_lengths(case)
        if dims is None or not _is_shape_at(dims, shape, sizes):
            return None  # not known, or inferred wrongly
        rows = max(map(len, lengths.values()), default=1)
        batch_axes = self._batch_axes(dims)
        if rows > 1 and {shape[a] for a in batch_axes} - {rows}:
            return None  # batch and heads are flattened into one axis
        row_axis = _row_axis(dims, batch_axes, rows)
        holes = self._signature.key_by_symbol(case.holes)
        mask = np.ones(shape, np.bool_)
        for axis, dim in enumerate(dims):
            governing = symbols(dim) & lengths.keys()
            if isinstance(dim, int) or not governing:
                continue
            if axis == row_axis or (row_axis is None and rows > 1):
                return None  # batch and time are flattened into one axis
            ends = _valid_row_ends(dim, sizes, lengths, rows)
            if ends is None:
                return None
            for symbol in governing & holes.keys():
                mask &= _mask_without_holes(holes[symbol], dim, axis, row_axis, shape)
            if case.side == "right":
                mask &= _mask_before(ends, axis, row_axis, shape)
            else:
                is_whole = shape[axis] in map(sizes.get, governing)
                mask &= _mask_behind_padding(ends, axis, row_axis, shape, is_whole=is_whole)
        return mask & _rows_with_content(lengths, row_axis, shape)

    def _batch_axes(self, dims: Sequence[Dim]) -> list[int]:
        batch = self._signature.batch_symbols
        return [axis for axis, dim in enumerate(dims) if symbols(dim) & batch]

    def clean_mask(
        self, name: str, case: Case, clean: Array, poisoned: Array, tolerance: Tolerance
    ) -> Mask:
        """Return where an output stays clean with garbage in the padding of ``case``.

        Decided for whole rows: an element that is the same by chance, in a row that leaks, does not
        count. Without known dims, the whole array is one row. What garbage makes longer or shorter,
        the frames that a predictor fires, is not kept at all.

        Args:
            name: The output.
            case: The case with garbage.
            clean: What the output is without it.
            poisoned: What the output is with it.
            tolerance: What may differ.
        """
        if clean.shape != poisoned.shape or clean.dtype != poisoned.dtype:
            return np.zeros(poisoned.shape, np.bool_)
        if clean.dtype.kind in "fV":
            a, b = clean.astype(np.float64), poisoned.astype(np.float64)
            scale = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
            with np.errstate(invalid="ignore"):
                same = np.abs(a - b) <= tolerance.max_abs * max(1.0, scale)
        else:
            same = np.asarray(clean == poisoned)
        where = self.mask_of_output(name, poisoned.shape, case)
        if where is not None:
            same = same | ~where
        governed = self._signature.batch_symbols | self._valid_lengths(case).keys()
        keep = {a for a, d in enumerate(self.dims.get(name) or ()) if symbols(d) & governed}
        over = tuple(a for a in range(clean.ndim) if a not in keep)
        clean_rows = np.broadcast_to(same.all(axis=over, keepdims=True), clean.shape)
        return clean_rows if where is None else clean_rows & where

    def _valid_lengths(self, case: Case) -> dict[str, tuple[int, ...]]:
        return self._signature.key_by_symbol(case.valid)


def _is_shape_at(dims: Sequence[Dim], shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    """Return whether dims are this shape, for these sizes of symbols."""
    evaluated = (d if isinstance(d, int) else d.evaluate(sizes) for d in dims)
    return len(dims) == len(shape) and all(map(operator.eq, evaluated, shape))


def _row_axis(dims: Sequence[Dim], batch_axes: Sequence[int], rows: int) -> int | None:
    """Return the axis of the batch; by its size if no dim is a batch and there are several rows."""
    if batch_axes or rows == 1:
        return next(iter(batch_axes), None)
    return next((a for a, d in enumerate(dims) if d == rows), None)


def _valid_row_ends(
    dim: ir.SymbolicDim, sizes: Mapping[str, int], lengths: PerRow, rows: int
) -> list[int] | None:
    """Return what a dim is for the valid lengths of each row; None if it is not known."""
    ends = []
    for row in range(rows):
        row_lengths = {s: v[row] if len(v) > row else v[0] for s, v in lengths.items()}
        end = dim.evaluate({**sizes, **row_lengths})
        if not isinstance(end, int):
            return None
        ends.append(end)
    return ends


def infer_dims_from_shapes(
    observed: Sequence[tuple[tuple[int, ...], Mapping[str, int]]], governed: Collection[str]
) -> Dims:
    """Infer the dims of a tensor from its shapes in several runs.

    Args:
        observed: In each run, the shape and the size of every symbol.
        governed: The symbols that have a valid length; preferred where two fit.

    Returns:
        A number for an axis that never changed, else a symbol that it always agreed with; None if
        some axis agreed with none, or if there are too few runs to tell.
    """
    shapes = [shape for shape, _ in observed]
    if len({len(shape) for shape in shapes}) != 1 or len(set(shapes)) < 3:
        return None
    dims: list[Dim] = []
    for axis in range(len(shapes[0])):
        axis_sizes = [shape[axis] for shape in shapes]
        dim = _infer_dim(axis_sizes, [sizes for _, sizes in observed], governed)
        if dim is None:
            return None
        dims.append(dim)
    return tuple(dims)


def _infer_dim(
    axis_sizes: Sequence[int], sizes: Sequence[Mapping[str, int]], governed: Collection[str]
) -> Dim | None:
    """Return a dim that has these sizes in several runs, given those of all symbols in each."""
    if len({*axis_sizes}) == 1:
        return axis_sizes[0]
    names = sorted(sizes[0], key=lambda name: (name not in governed, name))
    for name in names:
        if axis_sizes == [x.get(name) for x in sizes]:
            return ir.SymbolicDim(name)
    # A cache and what is new.
    for new, past in itertools.product((x for x in names if x in governed), names):
        if axis_sizes == [x.get(past, 0) + x.get(new, 0) for x in sizes]:
            return ir.SymbolicDim(f"{past} + {new}")
    return None


def _rows_with_content(lengths: PerRow, row_axis: int | None, shape: tuple[int, ...]) -> Mask:
    """Return a mask of rows with content; without a row axis, an empty row clears all."""
    full = np.ones([1] * len(shape), np.bool_)
    for ends in lengths.values():
        has = np.asarray(ends) > 0
        if row_axis is None or shape[row_axis] != len(ends):
            full = full & bool(has.all())
            continue
        full = full & reshape_along(has, row_axis, len(shape))
    return full


def _mask_before(ends: list[int], axis: int, row_axis: int | None, shape: tuple[int, ...]) -> Mask:
    rows = ends[0] if row_axis is None else reshape_along(np.asarray(ends), row_axis, len(shape))
    return np.asarray(index_along(shape, axis) < rows)


def _mask_without_holes(
    holes: Mask, dim: ir.SymbolicDim, axis: int, row_axis: int | None, shape: tuple[int, ...]
) -> Mask:
    """Return a mask that is false in holes; of a shortened axis nothing is content for sure."""
    if str(dim) not in symbols(dim) or holes.shape[1] != shape[axis]:
        return np.zeros(shape, np.bool_)
    if row_axis is None or len(holes) != shape[row_axis]:
        return ~np.broadcast_to(reshape_along(holes.max(axis=0), axis, len(shape)), shape)
    placed = holes if row_axis < axis else holes.T
    around = [size if a in (row_axis, axis) else 1 for a, size in enumerate(shape)]
    return ~np.broadcast_to(placed.reshape(around), shape)


def _mask_behind_padding(
    ends: list[int], axis: int, row_axis: int | None, shape: tuple[int, ...], *, is_whole: bool
) -> Mask:
    """Return a mask of content that is padded on the left.

    Args:
        ends: How much of each row is content.
        axis: The axis of time.
        row_axis: The axis of the rows.
        shape: Of the tensor.
        is_whole: Whether the axis is time itself. Behind a prompt, or shortened, nobody knows where
            the padding went: nothing is content for sure.
    """
    if not is_whole:
        return np.zeros(shape, np.bool_)
    return ~_mask_before([shape[axis] - n for n in ends], axis, row_axis, shape)

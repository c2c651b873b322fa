"""Clips in poisoned containers against the clips alone, on ONNX Runtime."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto

import graphfix
from graphfix.errors import PaddingError, UsageError
from graphfix.facts.shapes import infer
from graphfix.facts.symbolic.expressions import expr_of
from tests.lengths.graphs import FEATURES

if TYPE_CHECKING:
    Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options)


def clip_of(rng: np.random.Generator, length: int) -> Array:
    """Frames at one of the levels that models see: normalised, decibels, raw, with zeros."""
    base, spread_ = [(0, 1), (-120, 5), (-2e4, 50), (1e4, 30), (0, 30), (-90, 1), (3, 0.1)][
        int(rng.integers(7))
    ]
    x = base + spread_ * rng.standard_normal((1, length, FEATURES))
    if rng.random() < 0.4:
        x *= rng.random(x.shape) < 0.6
    result: Array = x.astype(np.float32)
    return result


@dataclass(frozen=True)
class Outcome:
    """What came of a model: ``refused``, ``not run``, ``safe``, ``repaired``, or what leaks."""

    kind: str
    what: str = ""


TIMES = ("T", "S")
"""What the time of x is called, and that of a mask."""
TOGETHER = "ilens-mask:axis=x.1+mask.1"
SPECS = (
    "ilens-mask:axis=x.1",
    "ilens-mask:axis=x.1:from=mask",
    "ilens-mask:from=mask",
    TOGETHER,
)
"""How a model with a mask is asked for; one without is asked for as in the first."""


def masked(model: onnx.ModelProto) -> bool:
    """Whether a model takes a mask beside x."""
    return any(x.name == "mask" for x in model.graph.input)


def fed(model: onnx.ModelProto, x: Array, lengths: list[int], behind: int) -> dict[str, Array]:
    """x, how much of each row is valid, and its mask, with a number behind what is valid."""
    feeds: dict[str, Array] = {"x": x, "ilens": np.array(lengths, np.int64)}
    if masked(model):
        at = np.arange(x.shape[1])
        feeds["mask"] = np.where(at < feeds["ilens"][:, None], 1, behind).astype(np.int64)
    return feeds


def takes(alone: ort.InferenceSession, model: onnx.ModelProto, size: int) -> bool:
    """Whether a clip of that size runs."""
    x = np.zeros((1, size, FEATURES), np.float32)
    feeds = fed(model, x, [size], 0)
    try:
        alone.run(None, {y.name: feeds[y.name] for y in alone.get_inputs()})
    except Exception:
        return False
    return True


def hold(model: onnx.ModelProto, seed: int, batch: object) -> Outcome:
    """Repair it, and hold clips in containers against the clips alone."""
    rng = np.random.default_rng(seed)
    try:
        alone = session(model)
    except Exception as error:
        return Outcome("not run", str(error)[:200])
    lengths = [int(n) for n in rng.choice(np.arange(4, 15), 3 if batch == "B" else 1, False)]
    clips = [clip_of(rng, n) for n in lengths]
    native: list[Array | None] = []
    noisy: list[list[Array]] = []
    for x in clips:
        try:
            # ONNX Runtime 1.31 dies of an InstanceNormalization of nothing.
            if emptied(model, x.shape[1]):
                raise ValueError("a size is 0")
            feeds = fed(model, x, [x.shape[1]], 0)
            own = {y.name: feeds[y.name] for y in alone.get_inputs()}
            y = alone.run(None, own)[0]
            noisy.append([alone.run(None, own | {"x": nudged(rng, x)})[0] for _ in range(3)])
            native.append(y)
        except Exception:  # a clip that is too short
            native.append(None)
            noisy.append([])
    if all(x is None for x in native):
        return Outcome("not run", "no clip runs")
    repaired = ir.from_proto(model)
    try:
        spec = SPECS[seed % len(SPECS)] if masked(model) else SPECS[0]
        report = graphfix.run(repaired, spec)
    except (PaddingError, UsageError) as error:
        return Outcome("refused", str(error))
    changes = [change.note for one in report.passes for change in one.changes]
    proto = ir.to_proto(repaired)
    try:
        together = session(proto)
    except Exception as error:
        return Outcome("leaks", f"does not load: {error}")
    names = {x.name for x in together.get_inputs()}
    half = any(x.i == TensorProto.FLOAT16 for node in model.graph.node for x in node.attribute)
    # What the clip alone gives in the repaired model differs by rounding, if little.
    for x, wanted, shaken in zip(clips, native, noisy, strict=True):
        if wanted is None or wanted.dtype.kind != "f":
            continue
        feeds = fed(model, x, [x.shape[1]], 0)
        own = together.run(None, {k: v for k, v in feeds.items() if k in names})[0]
        if own.shape != wanted.shape:
            return Outcome("leaks", f"{own.shape} instead of {wanted.shape} without padding")
        with np.errstate(invalid="ignore"):  # of infinities
            apart = own - wanted
        # Where all frames are nearly the same, statistics of them are mostly rounding.
        share = 0.5 if abs(x.mean()) > 50 * x.std() else 0.02
        if np.abs(apart).max(initial=0) <= share * np.abs(wanted).max(initial=0) + 1e-3:
            shaken.append(wanted + apart / 64)
    ran = False
    for fill in (np.nan, 1e4, -2e4, None):
        size = max(lengths) + int(rng.integers(0, 18))
        if emptied(model, size):
            continue
        x = np.full((len(clips), size, FEATURES), 0 if fill is None else fill, np.float32)
        if fill is None:
            x = rng.standard_normal(x.shape).astype(np.float32) * 30
        for row, frames in enumerate(clips):
            x[row, : lengths[row]] = frames[0]
        # What is in the padding of the mask does not matter where ilens says what is valid.
        behind = 1 if "ilens" in names and spec == TOGETHER else 0
        feeds = fed(model, x, lengths, behind)
        try:
            y = together.run(None, {k: v for k, v in feeds.items() if k in names})[0]
        except Exception as error:
            if not takes(alone, model, size):
                continue  # the size behind ilens must be one that the model takes
            return Outcome("leaks", f"does not run at {size}: {error}")
        ran = True
        for row, (wanted, shaken) in enumerate(zip(native, noisy, strict=True)):
            told = "" if wanted is None else differs(y, row, wanted, shaken, half=half)
            if told:
                where = f"clip {lengths[row]} in {size}, padding {fill}: {told}; {changes}"
                return Outcome("leaks", where)
    return Outcome(("repaired" if changes else "safe") if ran else "not run")


def nudged(rng: np.random.Generator, x: Array) -> Array:
    """The clip with each number rounded again: what comes of it says how well it is conditioned."""
    result: Array = x * (1 + 3e-7 * rng.choice([-1, 1], x.shape)).astype(np.float32)
    return result


def emptied(model: onnx.ModelProto, length: int) -> bool:
    """Whether a size is 0 somewhere, which is no usual run: a window longer than its clip."""
    text = model.SerializeToString()
    for dim in _dims(text):
        size = expr_of(int(dim) if dim.isdigit() else ir.SymbolicDim(dim))
        number = size.subs({x: length if x.name in TIMES else 1 for x in size.free_symbols})
        # The statistics of one frame are all rounding.
        grows = any(x.name in TIMES for x in size.free_symbols)
        alone = b"Normalization" in text and grows and number < 2
        if number < 1 or alone:
            return True
    return False


@functools.lru_cache(maxsize=1)
def _dims(text: bytes) -> frozenset[str]:
    model = ir.from_proto(onnx.ModelProto.FromString(text))
    shapes = infer(model, usual=True)
    values = [x for node in model.graph for x in node.outputs]
    return frozenset(str(dim) for x in values for dim in shapes.dims(x) or ())


def differs(y: Array, row: int, wanted: Array, shaken: list[Array], *, half: bool) -> str:
    """How the valid part of a row differs from the clip's; "" if it does not."""
    found = y
    if wanted.ndim and y.ndim == wanted.ndim:
        own_row = len(wanted) == 1 and len(y) > 1
        first = slice(row, row + 1) if own_row else slice(0, len(wanted))
        found = y[(first, *(slice(0, n) for n in wanted.shape[1:]))]
    if found.shape != wanted.shape:
        return f"shape {found.shape} instead of {wanted.shape}"
    known = np.isfinite(wanted) & np.all([np.isfinite(x) for x in shaken], axis=0)
    # What is no number, or about to be none, says nothing.
    known &= np.abs(wanted.astype(np.float64)) < 1e30
    if not known.any():
        return ""
    if not np.isfinite(found[known]).all():
        return "not finite"
    error = np.abs(found[known].astype(np.float64) - wanted[known])
    if wanted.dtype.kind in "iub":
        same = np.all([wanted[known] == x[known] for x in shaken], axis=0)
        return "" if (error[same] == 0).all() else "another integer"
    shake = max(np.abs(x[known].astype(np.float64) - wanted[known]).max() for x in shaken)
    size = np.abs(wanted[known]).max()
    if half:
        return "" if error.max() <= 0.1 * size + 200 * shake else f"{error.max():g} of {size:g}"
    return "" if error.max() <= 200 * shake + 1e-4 * size + 1e-5 else f"{error.max():g} of {size:g}"

"""pool-pads: the manual is the docstring of the class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Severity, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.ops.windows import Window, window_of

from ..common.guards import first_reason

# Since this opset the standard does not count a window that starts in the padding at the end;
# ONNX Runtime's CPU kernels never did.
_REVISED_OPSET = 22
# Since this opset all CPU kernels divide an average by the elements that its window holds.
_DIVISOR_OPSET = 19

# Problems on DirectML, by the message for each.
_COUNTED = "count_include_pad=1: DirectML counts what lies behind the padding at the end, too"
_LOST = "ceil_mode=1: DirectML counts a window that starts behind the data, and CPUs do not"
_SHORT = "ceil_mode=1: DirectML ends in 80070057 where the input is shorter than the window"
_NONE = "ceil_mode=1 keeps the model at an opset that DirectML has no pools of"
_SEVERITY: dict[str, Severity] = {_COUNTED: "error", _LOST: "error", _SHORT: "warning"}


@dataclass(frozen=True)
class PoolSite(Match):
    """A pool with ceil_mode=1.

    Attributes:
        pads: The pads that make as many windows without ceil_mode.
        problem: What goes wrong.
        counted_pads: The pads that an average counts, starts and then ends; None if it counts none.
    """

    pads: tuple[int, ...]
    problem: str
    counted_pads: tuple[int, ...] | None = None

    @property
    def severity(self) -> Severity:
        """Return how bad the problem is where DirectML has a kernel."""
        return _SEVERITY.get(self.problem, "note")


@dataclass(frozen=True)
class PoolPads(NodePass[PoolSite]):
    """Replaces ceil_mode=1 of a pool with pads at the end, where DirectML pools otherwise.

    Why:
        A window that starts behind the data, in the padding at the end, is none: so torch, ONNX
        since opset 22 and ONNX Runtime's CPU kernels. Run on onnxruntime-directml 1.24.4: there it
        is one, so that the result is longer, with 0 or -3.4e38 at its end, without an error. There
        are such windows only where stride and end pad together are larger than the kernel;
        auto_pad=VALID is a pad of 0 there, on CPUs too. An average that counts its padding
        (count_include_pad=1, PyTorch's default) is divided there by the whole window where that
        reaches past the end, and by what lies over input and padding in PyTorch, in ONNX and on
        CPUs; below opset 19 ONNX Runtime 1.24 does on the CPU as DirectML does, and 1.32 does not.
        An input that is shorter than the window, its pads included, makes one window on CPUs, and
        ends in 80070057 there: CAM++ averages 100 frames at a time.
        From opset 22 on DirectML has no pools, and opset-ceiling cannot take one with ceil_mode=1
        down.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        half (float[B, 4, T] x) => (float[B, 4, U] y)
        {
            y = MaxPool <kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1> (x)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        half (float[B, 4, T] x) => (float[B, 4, U] y)
        {
            y = MaxPool <kernel_shape = [2], strides = [2], pads = [1, 1]> (x)
        }

    Left alone:
        An input that may be shorter than a window, "of fewer than 2 elements it has no window":
        <
            ir_version: 8,
            opset_import: ["" : 22]
        >
        pool (float[B, 4, T] x) => (float[B, 4, U] y)
        {
            y = MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)
        }

    Safety:
        Exact: the same windows over the same elements. A stride that leaves a remainder becomes an
        end pad of up to the kernel less 1, which is never more than a window holds. Padding that is
        counted becomes zeros in front of the pool. Refused: dilations, inputs that may be
        shorter than makes a window, and averages that count the
        padding where a window may start in it, or below opset 19.
    """

    anchors = ("AveragePool", "LpPool", "MaxPool")

    def match(self, node: ir.Node, view: View) -> PoolSite | Skip | None:
        """Return the site if DirectML counts the windows otherwise, or has no kernel."""
        if not attr_int(node, "ceil_mode", 0) or "kernel_shape" not in node.attributes:
            return None
        if any(x.is_ref() for x in node.attributes.values()):
            return Skip(node, "its attributes are parameters of the local function it is in")
        pool = _CeilPool.read(node, view)
        if pool is None or pool.is_right_on_directml:
            return None
        if (reason := first_reason(_GUARDS, pool)) is not None:
            if pool.is_wrong_as_it_is:
                return Skip(node, f"{pool.problem}; {reason}", severity="error")
            return Skip(node, reason)
        pads = (*pool.start_pads, *pool.end_pads)
        return PoolSite(node, pads, pool.problem, pool.pads if pool.counts_pads else None)

    def message(self, site: Match) -> str:
        """Describe what DirectML gets wrong."""
        return site.problem if isinstance(site, PoolSite) else super().message(site)

    def rewrite(self, match: PoolSite, op: Builder) -> ir.Value:
        """Build the same pool, with pads."""
        node, source = match.node, match.node.inputs
        dropped = {"auto_pad", "ceil_mode"}  # VALID takes no pads
        if match.counted_pads is not None:
            dropped.add("count_include_pad")
            if any(match.counted_pads):
                source = (op.Pad(source[0], _pads_input(match.counted_pads)),)
        attributes = {name: x.value for name, x in node.attributes.items() if name not in dropped}
        output_flags = [bool(x.name) for x in node.outputs]
        outputs = op.make_outputs(
            node.op_type, output_flags, *source, **attributes | {"pads": list(match.pads)}
        )
        for old, new in zip(node.outputs[1:], outputs[1:], strict=True):
            if old.name:  # where it found what it gives
                op.replace_value(old, new)
        return outputs[0]


@dataclass(frozen=True)
class _CeilPool:
    """A pool with ceil_mode=1 and without auto_pad=SAME.

    Attributes:
        window: How it slides.
        dims: The dims of its input.
        opset: The opset of the node.
        counts_pads: Whether it is an average that counts its padding, and rounds a length up.
    """

    window: Window
    dims: Sequence[Dim] | None
    opset: int
    counts_pads: bool

    @classmethod
    def read(cls, node: ir.Node, view: View) -> _CeilPool | None:
        """Read a pool; None if its pads follow from the length (auto_pad=SAME)."""
        window = window_of(node)
        if window is None or window.auto_pad not in ("NOTSET", "VALID"):
            return None
        counts_pads = bool(attr_int(node, "count_include_pad", 0)) and max(window.strides) > 1
        dims, opset = view.shapes.dims(node.inputs[0]), view.opset_of_node(node)
        return cls(window, dims, opset, counts_pads)

    @property
    def pads(self) -> tuple[int, ...]:
        """Return the pads as they are written, starts and then ends."""
        return (*self.window.before, *self.window.after)

    @property
    def start_pads(self) -> tuple[int, ...]:
        """Return the start pads that the pool keeps; those that count go into a Pad before it."""
        return (0,) * len(self.window.before) if self.counts_pads else self.window.before

    @property
    def end_pads(self) -> tuple[int, ...]:
        """Return the end pads that make as many windows without ceil_mode."""
        ends = (0,) * len(self.window.after) if self.counts_pads else self.window.after
        axes = zip(ends, self.window.strides, self.window.kernel, strict=True)
        return tuple(min(end + stride, size) - 1 for end, stride, size in axes)

    @property
    def loses_windows(self) -> bool:
        """Return whether a window may start in the padding at the end."""
        axes = zip(self.window.after, self.window.strides, self.window.kernel, strict=True)
        return any(end + stride > size for end, stride, size in axes)

    @property
    def is_long_enough(self) -> bool:
        """Return whether the input always makes a window on DirectML, too."""
        pads = zip(self.window.before, self.window.after, strict=True)
        return _has_min_sizes(self.dims, self._min_sizes([a + b for a, b in pads]))

    @property
    def is_right_on_directml(self) -> bool:
        """Return whether DirectML pools it as ONNX says."""
        is_right = self.is_long_enough and not self.loses_windows and not self.counts_pads
        return is_right and self.opset < _REVISED_OPSET

    @property
    def is_wrong_as_it_is(self) -> bool:
        """Return whether DirectML differs from all CPUs; below opset 19 they count differently."""
        if self.opset >= _REVISED_OPSET:
            return False  # the CPU pools
        return self.opset >= _DIVISOR_OPSET if self.counts_pads else self.loses_windows

    @property
    def padded_min_sizes(self) -> list[int]:
        """Return the shortest axes that make a window with pads in the place of ceil_mode.

        ONNX Runtime rounds a length below 0 towards it: of less by a stride there is no window.
        """
        starts = self.window.before
        if self.counts_pads:
            starts = tuple(a + b for a, b in zip(starts, self.window.after, strict=True))
        return self._min_sizes([a + b for a, b in zip(starts, self.end_pads, strict=True)])

    @property
    def problem(self) -> str:
        """Return the problem on DirectML, as a message."""
        if self.counts_pads:
            return _COUNTED
        if self.loses_windows:
            return _LOST
        return _NONE if self.is_long_enough else _SHORT

    def _min_sizes(self, pads: Sequence[int]) -> list[int]:
        """Return the length that makes a window beside pads; with a stride of 1 any does."""
        axes = zip(self.window.kernel, pads, self.window.strides, strict=True)
        return [size - pad if stride > 1 else 1 for size, pad, stride in axes]


def _dilation_reason(pool: _CeilPool) -> str | None:
    if set(pool.window.dilations) == {1}:
        return None
    return "it has dilations, and pads as long as its windows are not allowed"


def _divisor_reason(pool: _CeilPool) -> str | None:
    if not pool.counts_pads or pool.opset >= _DIVISOR_OPSET:
        return None
    crash = "" if pool.is_long_enough else f" ({_SHORT})"
    return f"CPUs differ in how it counts padding; export it at opset 19 or up{crash}"


def _counted_start_reason(pool: _CeilPool) -> str | None:
    if pool.counts_pads and any(pool.pads) and pool.loses_windows:
        return "it counts the padding, and windows start in it"
    return None


def _no_window_reason(pool: _CeilPool) -> str | None:
    least = pool.padded_min_sizes
    if _has_min_sizes(pool.dims, least):
        return None
    few = f"of fewer than {max(least)} elements it has no window, and with pads one"
    return f"{few}; fix-dims helps where that does not occur"


_GUARDS: tuple[Callable[[_CeilPool], str | None], ...] = (
    _dilation_reason,
    _divisor_reason,
    _counted_start_reason,
    _no_window_reason,
)


def _has_min_sizes(dims: Sequence[Dim] | None, least: Sequence[int]) -> bool:
    """Return whether each axis of the input is 0 or at least this long."""
    if max(least) < 2:
        return True
    axes = list(dims or ())[-len(least) :]
    return len(axes) == len(least) and all(
        size >= number if isinstance(size, int) else never_negative(expr_of(size) - number)
        for size, number in zip(axes, least, strict=True)
    )


def _pads_input(pads: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the pads as a Pad takes them, with 0 for batch and channels."""
    half = len(pads) // 2
    return np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)

"""pool-pads: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Severity, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, attr_ints

# From here on the standard does not count a window that starts in the padding at the end, as
# ONNX Runtime's CPU kernels never did.
_REVISED_OPSET = 22
# From here on all CPU kernels divide an average by what a window holds.
_DIVISOR_OPSET = 19

# What goes wrong.
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
        kernel, auto = attr_ints(node, "kernel_shape"), node.attributes.get("auto_pad")
        if not attr_int(node, "ceil_mode", 0) or not kernel:
            return None
        if any(x.is_ref() for x in node.attributes.values()):
            return Skip(node, "its attributes are parameters of the local function it is in")
        if auto is not None and auto.as_string() not in ("NOTSET", "VALID"):
            return None
        strides = attr_ints(node, "strides") or (1,) * len(kernel)
        pads = attr_ints(node, "pads") or (0,) * 2 * len(kernel)
        axes = list(zip(pads[len(kernel) :], strides, kernel, strict=True))
        lost = any(end + stride > size for end, stride, size in axes)
        counts = attr_int(node, "count_include_pad", 0) and max(strides) > 1
        dims = view.shapes.dims(node.inputs[0])
        # What makes a window on DirectML, too; with a stride of 1 nothing is rounded.
        min_sizes = [k - a - b if s > 1 else 1 for a, (b, s, k) in zip(pads, axes, strict=False)]
        if (
            _has_min_sizes(dims, min_sizes)
            and not lost
            and not counts
            and view.opset_of_node(node) < _REVISED_OPSET
        ):
            return None
        if set(attr_ints(node, "dilations") or ()) - {1}:
            return Skip(node, "it has dilations, and pads as long as its windows are not allowed")
        if counts and view.opset_of_node(node) < _DIVISOR_OPSET:
            crash = "" if _has_min_sizes(dims, min_sizes) else f" ({_SHORT})"
            problem = "CPUs differ in how it counts padding; export it at opset 19 or up"
            return Skip(node, problem + crash)
        if counts and any(pads) and lost:
            return Skip(node, "it counts the padding, and windows start in it")
        counted_pads = pads if counts else None
        if counted_pads:
            pads, axes = (0,) * len(pads), [(0, stride, size) for _, stride, size in axes]
        end_pads = tuple(min(end + stride, size) - 1 for end, stride, size in axes)
        half = len(kernel)
        front = (
            pads[:half] if not counted_pads else [sum(counted_pads[i::half]) for i in range(half)]
        )
        # ONNX Runtime rounds a length below 0 towards it: of less by a stride there is no window.
        rounded = [s - a - b for s, a, b in zip(kernel, front, end_pads, strict=True)]
        padded_min_sizes = [
            x if stride > 1 else 1 for x, stride in zip(rounded, strides, strict=True)
        ]
        if not _has_min_sizes(dims, padded_min_sizes):
            few = (
                f"of fewer than {max(padded_min_sizes)} elements it has no window, and with "
                "pads one"
            )
            return Skip(node, f"{few}; fix-dims helps where that does not occur")
        problem = (
            _COUNTED
            if counts
            else _LOST
            if lost
            else _NONE
            if _has_min_sizes(dims, min_sizes)
            else _SHORT
        )
        return PoolSite(node, (*pads[:half], *end_pads), problem, counted_pads)

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

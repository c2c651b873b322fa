"""Severity of the sites that a pass finds, on DirectML and on the other providers.

A pass finds what it can repair, and does not know where the model will run. This module says what
each finding means there: an error is what the real EP (onnxruntime-directml 1.24.4) was seen to
crash on or to compute wrongly; see the Why of the pass.
"""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, Severity
from graphfix.facts.large_integers import WIDE_TYPES
from graphfix.facts.pads import directml_misreads_pads, has_negative_pad, may_be_negative, pads_of
from graphfix.facts.view import View
from graphfix.facts.zero_one import zero_one_sources
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reachable_from
from graphfix.providers.directml import kernel_table
from graphfix.providers.table import EVERYWHERE, Ep
from graphfix.rules.rule import is_folded

Judge = Callable[[Match, View], Severity]

_ONLY_ON_DIRECTML = frozenset(
    {"reshape-allowzero", "convtranspose-2d", "bool-cast", "cumsum-index", "gather-int64"}
    | {"slice-start", "pad-slice", "clip-minmax", "matmul-4d", "matmul-vector", "quantize-axis"}
    | {"reverse-2d", "keep-output", "host-output", "gemm-bias", "pad-amounts", "pool-pads"}
    | {"slice-gather", "slice-gate", "opset-ceiling", "nbits-inputs"}
    | {"resize-4d", "convtranspose-pads", "lp-norm", "pad-empty", "roi-size"}
)

# Computed wrongly by onnxruntime-webgpu 1.27.0 as well: survey.csv of its facts.
_WRONG_ON_WEBGPU = frozenset({"logsumexp-shift"})

# An element of the result is one of the data inputs, here of a shape tensor.
_PASSES_ELEMENTS_ON = ops.MOVES_ELEMENTS | ops.CASTS | ops.named("Where")


def providers_of_pass(name: str) -> tuple[Ep, ...]:
    """Return the providers on which a site of the pass ``name`` matters at all."""
    if name in _ONLY_ON_DIRECTML:
        return ("dml",)
    return ("dml", "webgpu") if name in _WRONG_ON_WEBGPU else EVERYWHERE


def site_severity(name: str, site: Match, view: View, provider: Ep) -> Severity:
    """Return how bad a site of the pass ``name`` is on a provider."""
    if name == "loadable":
        return "error"  # no provider loads the model
    if provider == "webgpu" and name in _WRONG_ON_WEBGPU:
        return _wrong_if_it_runs(site, view)
    if provider != "dml":
        return "warning" if name in ("thaw", "fresh-shapes") else "note"
    judge = _JUDGES.get(name)
    return "warning" if judge is None else judge(site, view)


def _if_it_runs(judge: Judge) -> Judge:
    """Return ``judge`` restricted to nodes that are not folded before anything runs."""
    return lambda site, view: "note" if is_folded(site.node, view) else judge(site, view)


def _always_wrong(_: Match, __: View) -> Severity:
    return "error"


def _bool_cast_severity(site: Match, view: View) -> Severity:
    """Judge a Cast to bool: wrong for numbers but 0 and 1 and above; a mask of 0 and 1 survives."""
    if view.shapes.dtype(site.node.inputs[0]) in WIDE_TYPES:
        return "error"  # a site only where a constant makes it wider than 32 bits
    data = site.node.inputs[0]
    # A caller could feed a mask of other numbers than 0 and 1, but no known one does.
    return "error" if data is None or zero_one_sources(data, view) is None else "warning"


def _negative_pads_severity(site: Match, view: View) -> Severity:
    """Judge negative pads: before opset 11 DirectML refuses them, and the CPU runs them rightly."""
    if view.opset_of_node(site.node) < 11:
        return "warning"
    pads = pads_of(site.node, view) or ()
    # A Pad that cuts nothing is flagged for the Slice before it, which may leave nothing.
    cuts = has_negative_pad(pads) or any(map(may_be_negative, pads))
    return "error" if not cuts or directml_misreads_pads(site.node, pads) else "note"


def _has_kernel(site: Match, view: View) -> bool:
    """Return whether DirectML has one of that opset, whatever the types."""
    return kernel_table.kernel_at(site.node.op_type, "", view.opset_of_node(site.node)) is not None


def _pool_severity(site: Match, view: View) -> Severity:
    """Judge pooling: from opset 22 on the CPU pools, and counts correctly."""
    severity: Severity = getattr(site, "severity", "note")
    return severity if _has_kernel(site, view) else "note"


def _slice_gate_severity(site: Match, view: View) -> Severity:
    """Judge by sizes: known ones compile nodes together now, others once a session fixes them."""
    dims = view.shapes.dims(site.node.inputs[0])
    return "error" if dims and all(isinstance(x, int) for x in dims) else "warning"


def _scale_severity(site: Match, view: View) -> Severity:
    """Judge scales, of weights too, which no one folds; from opset 23 on the CPU does it."""
    return "error" if _has_kernel(site, view) else "note"


def _allowzero_severity(site: Match, view: View) -> Severity:
    """Judge allowzero: only a -1 is wrong, and only in DirectML's kernel, to opset 22."""
    wrong = _has_kernel(site, view) and _may_hold_minus_one(site.node.inputs[1])
    return "error" if wrong else "note"


def _stale_shape_severity(site: Match, _: View) -> Severity:
    """Judge a stale shape: a number for a size that follows the inputs ends in 80070057."""
    value, inferred = getattr(site, "value", None), getattr(site, "inferred", ())
    declared = value.shape if isinstance(value, ir.Value) else None
    if declared is None:
        return "warning"
    if inferred is None:  # of another rank in each run
        return "error" if declared.is_static() else "warning"
    if len(declared) != len(inferred):
        return "warning"
    pairs = zip(declared, inferred, strict=True)
    fails = any(isinstance(a, int) and not isinstance(b, int) for a, b in pairs)
    return "error" if fails else "warning"


def _may_hold_minus_one(value: ir.Value | None) -> bool:
    """Return whether an element of a shape tensor may be -1, as far as the graph tells."""
    for source in reachable_from([value], lambda x: _element_inputs(x.producer())):
        array = const_of(source)
        # Without either the caller gives it.
        if source.producer() is None if array is None else bool((array == -1).any()):
            return True
    return False


def _element_inputs(node: ir.Node | None) -> Sequence[ir.Value | None]:
    """Return the inputs whose elements a node passes on: not its axes, indices or ends."""
    if not _PASSES_ELEMENTS_ON.has(node):
        return ()
    if is_op(node, "Concat"):
        return node.inputs
    return node.inputs[1:] if is_op(node, "Where") else node.inputs[:1]


_wrong_if_it_runs = _if_it_runs(_always_wrong)
_JUDGES: dict[str, Judge] = {
    "reshape-allowzero": _if_it_runs(_allowzero_severity),
    **dict.fromkeys(("convtranspose-2d", "matmul-4d", "matmul-vector"), _wrong_if_it_runs),
    **dict.fromkeys(("reverse-2d", "slice-start", "resize-4d"), _wrong_if_it_runs),
    **dict.fromkeys(("logsumexp-shift", "nbits-inputs"), _wrong_if_it_runs),
    "convtranspose-pads": _wrong_if_it_runs,
    **dict.fromkeys(("slice-gather", "keep-output", "gemm-bias", "clip-minmax"), _always_wrong),
    "quantize-axis": _scale_severity,
    "slice-gate": _slice_gate_severity,
    "bool-cast": _if_it_runs(_bool_cast_severity),
    "fresh-shapes": _stale_shape_severity,
    "pad-slice": _if_it_runs(_negative_pads_severity),
    "pool-pads": _if_it_runs(_pool_severity),
}

"""One of ONNX's tests through passes: does the model still compute what it did?"""

from __future__ import annotations

import copy
import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnx.reference import ReferenceEvaluator

from graphfix.core import Pass, interface_changes_of, weakest_promise
from graphfix.engine import pipeline, registry
from graphfix.errors import GraphfixError
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.files import io
from graphfix.float16_search.keep_search import search_kept_nodes
from graphfix.graph.nodes import is_op
from graphfix.job import checking, planning
from graphfix.job.rounding_search import MARGINS
from graphfix.job.rounding_search import rounding_tolerance as half_gate
from graphfix.proof.compare import HALF_GATE, Tolerance, compare
from graphfix.proof.half_outputs import computes_in_half
from graphfix.proof.interface import list_interface_changes
from graphfix.runtime._results import flatten_output
from graphfix.runtime.random_nodes import first_random_node, seed_model
from graphfix.runtime.run_errors import RunError, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from graphfix.core import Check
    from graphfix.engine.report import PassReport
    from graphfix.providers.table import Ep
    from tests.conformance.cases import Case, Example, Sizes, Value

Outputs = dict[str, np.ndarray[Any, Any]]
How = Literal["unchanged", "same", "not compared", "refused", "told", "differs", "fault"]

# Why ONNX Runtime does not run a test, from what it says.
_REASONS = (
    ("there is no kernel for the CPU", r"Could not find an implementation|Failed to find kernel"),
    (
        "its version of ONNX is newer than ONNX Runtime's",
        r"is under development|current official support|Unsupported model IR version",
    ),
    ("the operator is not known", r"is not a registered function|No Op registered|Unrecognized"),
    ("Python cannot hand over its inputs", r"bfloat16|float8|int4|int2|float4|ml_dtypes"),
    ("it is rejected", r"Type Error|Type .* of input parameter|nference|This is an invalid model"),
)
_EPS: dict[Sizes, Ep] = {"plain": "dml", "named": "dml", "apart": "cpu"}


@dataclass(frozen=True)
class Base:
    """What ONNX Runtime makes of a test before any pass.

    Attributes:
        outputs: What it returns for each example; None if it does not run.
        reason: Why it does not; or in what it is not what ONNX says.
        detail: Its own words.
    """

    outputs: tuple[Outputs, ...] | None
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Trial:
    """What came of a pass.

    Attributes:
        case: The name of the test.
        sizes: How dims were given.
        what: The passes, or the question that was asked.
        how: ``not compared`` if nothing that runs here runs the model as it was; ``told`` if it
            differs where the change itself says on what it rests, such as that nothing is empty.
        detail: The difference, the reason or the traceback.
        worst: The largest difference, as a share of what is allowed.
    """

    case: str
    sizes: Sizes
    what: str
    how: How
    detail: str = ""
    worst: float = 0.0


def base(case: Case) -> Base:
    """Run a test as it is."""
    model = ir.from_proto(case.model)
    try:
        found = tuple(_run(model, example.feeds) for example in case.examples)
    except Exception as error:  # what a door lets through is a reason like any other
        detail = " ".join(str(error).split())[:300]
        reason = next((why for why, words in _REASONS if re.search(words, detail)), "it fails")
        return Base(None, reason, detail)
    if first_random_node(model) is not None:
        return Base(found, "it draws random numbers")
    for outputs, example in zip(found, case.examples, strict=True):
        if reason := _unlike(outputs, example, case):
            return Base(found, "ONNX Runtime computes something else than ONNX says", reason)
    return Base(found)


def specs(model: ir.Model, sizes: Sizes) -> Iterator[str]:
    """Both profiles, and every pass, with the options that it needs to do something here.

    What is dear is not asked for in every way: float16 searches, ilens-mask takes axis after axis.
    """
    yield from registry.PROFILES
    for name in registry.pass_names():
        if name == "ilens-mask":
            yield from _axes(model) if sizes == "named" else [name]
        elif name == "float16":
            yield from [name] if sizes != "apart" else []
        elif name != "fix-dims":
            yield name


def _axes(model: ir.Model) -> Iterator[str]:
    """``ilens-mask`` for the first axis of each size."""
    seen: set[str] = set()
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and str(dim) not in seen:
                seen.add(str(dim))
                if re.fullmatch(r"\w+", value.name or ""):
                    yield f"ilens-mask:axis={value.name}.{axis}"


class Bench:
    """A model on which pass after pass is tried.

    Args:
        case: The test.
        sizes: How its dims are given.
        before: What ONNX Runtime makes of it as it is.
        folder: A folder for it.

    Raises:
        GraphfixError: It is refused.
    """

    def __init__(self, case: Case, sizes: Sizes, before: Base, folder: Path) -> None:
        path = folder / "model.onnx"
        path.write_bytes(case.sized(sizes).SerializeToString())
        self.model = io.load(path)
        self._case, self._sizes, self._before = case, sizes, before
        self._copy = self.model.clone()
        self._bytes = _bytes(self._copy)

    def ask(self) -> Iterator[Trial]:
        """What only reads: ``check``, for another provider each time, and ``plan``."""
        ep = _EPS[self._sizes]
        yield self._asked(f"check --ep {ep}", lambda: checking.check(self.model, ep=ep))
        if self._sizes == "plain":
            yield self._asked("plan", lambda: planning.plan(self.model))

    def fixed(self) -> str:
        """The spec that fixes all dims at the sizes of the first example."""
        given: dict[str, int] = {}
        for value in self.model.graph.inputs:
            array = self._case.examples[0].feeds.get(value.name or "")
            for axis, dim in enumerate(value.shape or ()):
                if not isinstance(dim, int) and isinstance(array, np.ndarray):
                    given[str(dim)] = array.shape[axis]
        named = {name: size for name, size in given.items() if name.isidentifier() and size > 0}
        pairs = ":".join(f"{name}={size}" for name, size in named.items())
        return f"fix-dims:{pairs}" if pairs else "fix-dims"

    def trial(self, spec: str) -> Trial:
        """Run passes on a copy of the model, and that in ONNX Runtime."""
        how, detail, worst = self._tried(spec)
        if how != "unchanged":
            self._copy = self.model.clone()
        return Trial(self._case.name, self._sizes, spec, how, detail, worst)

    def _asked(self, what: str, question: Callable[[], object]) -> Trial:
        try:
            question()
        except GraphfixError as error:
            return Trial(self._case.name, self._sizes, what, "refused", str(error))
        except Exception:
            detail = traceback.format_exc(limit=-3)
            return Trial(self._case.name, self._sizes, what, "fault", detail)
        return Trial(self._case.name, self._sizes, what, "unchanged")

    def _tried(self, spec: str) -> tuple[How, str, float]:
        repaired, before = self._copy, self._before
        try:
            chosen = pipeline.resolve_passes(spec)
            report = pipeline.run(repaired, chosen, settle=self._settle)
        except GraphfixError as error:
            return "refused", str(error), 0.0
        except Exception:
            return "fault", traceback.format_exc(limit=-3), 0.0
        if not report.changed:
            if _bytes(repaired) != self._bytes:
                return "differs", "it says that it changed nothing, and other bytes are written", 0
            return "unchanged", "", 0.0
        if changes := list_interface_changes(self.model, repaired, interface_changes_of(chosen)):
            return "differs", "; ".join(changes), 0.0
        if before.outputs is None:
            return self._otherwise(repaired, chosen)
        how, detail, worst = self._held(repaired, chosen, before.outputs)
        notes = [x.note for x in report.passes for x in x.changes if x.note]
        if how == "differs" and notes and report.safety == "conditional":
            return "told", f"{detail}; {notes[0]}", worst
        masked = any(x.changes and x.name == "additive-mask" for x in report.passes)
        if how == "differs" and masked:
            held, _, share = self._held(repaired, chosen, before.outputs, hidden=True)
            if held == "same":  # what the manual of additive-mask says
                return "told", f"{detail}, in rows that are hidden whole", share
        return how, detail, worst

    def _held(
        self,
        repaired: ir.Model,
        chosen: list[Check],
        outputs: tuple[Outputs, ...],
        *,
        hidden: bool = False,
    ) -> tuple[How, str, float]:
        """Run the repaired model and hold it against what the model did before.

        Args:
            repaired: The model.
            chosen: What repaired it.
            outputs: What the model before returned.
            hidden: Whether rows that were 0 are left out: behind a NaN guard they see no key.
        """
        worst = 0.0
        for example, wanted in zip(self._case.examples, outputs, strict=True):
            try:
                found = _run(repaired, _mapped(repaired, chosen, example))
            except Exception as error:
                return *self._failed(example, error), 0.0
            if hidden and all(
                x.ndim and found[name].shape == x.shape for name, x in wanted.items()
            ):
                seen = {name: x.any(axis=-1) for name, x in wanted.items()}
                found = {name: found[name][rows] for name, rows in seen.items()}
                wanted = {name: wanted[name][rows] for name, rows in seen.items()}
            reason, share = self._compared(wanted, found, chosen)
            if reason:
                return "differs", reason, share
            worst = max(worst, share)
        return "same", "", worst

    def _failed(self, example: Example, error: Exception) -> tuple[How, str]:
        """ONNX Runtime may refuse the names of dims, whatever was repaired."""
        try:
            _run(self.model, example.feeds)
        except Exception:
            return "not compared", "ONNX Runtime does not run it with such dims"
        return "differs", f"does not run: {error}"

    def _compared(self, wanted: Outputs, found: Outputs, chosen: list[Check]) -> tuple[str, float]:
        """In what two runs differ, and how far they are apart."""
        gate = half_gate(chosen) or Tolerance()
        if gate is not HALF_GATE and computes_in_half(self.model):
            gate = gate.for_half()
        worst = 0.0
        for name, array in wanted.items():
            if name not in found:
                return f"{name} is missing", 0.0
            after = found[name]
            if "outputs" in interface_changes_of(chosen) and after.dtype == np.float16:
                after = after.astype(array.dtype)
            diff = compare(name, self._case.name, array, after, gate)
            if not diff.ok:
                return f"{name} {diff.reason}", diff.excess_ratio
            if np.isfinite(diff.excess_ratio):
                worst = max(worst, diff.excess_ratio)
        return "", worst

    def _otherwise(self, repaired: ir.Model, chosen: list[Check]) -> tuple[How, str, float]:
        """Hold what ONNX Runtime did not run as it was against what ONNX says of it.

        A repaired model may run in ONNX Runtime; else ONNX's own evaluator is asked.
        """
        # Of what rounds, what must stay was not looked for.
        free = half_gate(chosen) is not None or first_random_node(self.model) is not None
        for run in () if free else (_run, _evaluated):
            try:
                if run is _evaluated and not self._evaluates():
                    break
                found = [run(repaired, _mapped(repaired, chosen, x)) for x in self._case.examples]
            except Exception:
                continue
            for outputs, example in zip(found, self._case.examples, strict=True):
                if reason := _unlike(outputs, example, self._case):
                    return "differs", f"{reason} from what ONNX says ({run.__name__})", 0.0
            return "same", "", 0.0
        return "not compared", self._before.reason, 0.0

    def _evaluates(self) -> bool:
        """Whether ONNX's evaluator makes of the model as it is what ONNX says."""
        return not any(
            _unlike(_evaluated(self.model, x.feeds), x, self._case) for x in self._case.examples
        )

    def _settle(self, check: Check, model: ir.Model, ran: tuple[PassReport, ...]) -> Check:
        """What must stay in float32 is found on the test's own inputs, if it runs."""
        if (
            not isinstance(check, Pass)
            or not check.needs_calibration
            or self._before.outputs is None
        ):
            return check
        feeds: Any = dict(self._case.examples[0].feeds)
        if any(isinstance(x, list) for x in feeds.values()):
            return check  # a sequence: the search feeds arrays only
        safety = weakest_promise([check.safety, *(x.safety for x in ran if x.changes)])
        margin = MARGINS[0]
        return search_kept_nodes(
            model, check, tolerance=HALF_GATE, margin=margin, feeds=feeds, safety=safety
        )[0]


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


def _mapped(repaired: ir.Model, chosen: list[Check], example: Example) -> dict[str, Any]:
    given: Any = dict(example.feeds)
    for one in chosen:
        if isinstance(one, Pass):
            given = one.feeds(given)
    return dict(add_full_lengths(repaired, given))


def _run(model: ir.Model, feeds: dict[str, Value]) -> Outputs:
    if first_random_node(model) is not None:
        model = seed_model(model)
    try:
        return _run_here(_session(model), feeds)
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise RunError(reason_of(error)) from error


def _run_here(session: onnxruntime.InferenceSession, feeds: dict[str, Value]) -> Outputs:
    ports = [*session.get_inputs(), *session.get_overridable_initializers()]
    # Copies: BatchNormalization in training mode writes into what it is fed.
    given: Any = {x.name: copy.deepcopy(feeds[x.name]) for x in ports if x.name in feeds}
    names = [x.name for x in session.get_outputs()]
    found: Outputs = {}
    for name, result in zip(names, session.run(names, given), strict=True):
        found |= flatten_output(name, result)
    return found


def _session(model: ir.Model) -> onnxruntime.InferenceSession:
    """In this process: inputs may be sequences, which :mod:`graphfix.runtime` does not send."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _evaluated(model: ir.Model, feeds: dict[str, Value]) -> Outputs:
    evaluator = ReferenceEvaluator(ir.to_proto(model))
    given = {name: feeds[name] for name in evaluator.input_names if name in feeds}
    found: Outputs = {}
    outputs = zip(evaluator.output_names, model.graph.outputs, strict=True)
    for (name, value), result in zip(outputs, evaluator.run(None, given), strict=True):
        # ONNX's evaluator hands the Optional on, which is a list of one.
        held = is_op(value.producer(), "OptionalGetElement") and isinstance(result, list)
        found |= flatten_output(name, result[0] if held else result)
    return found


def _unlike(outputs: Outputs, example: Example, case: Case) -> str:
    """In what outputs are not what ONNX says, as its own runner compares them."""
    wanted: Outputs = {}
    for name, value in example.outputs.items():
        wanted |= flatten_output(name, value)
    for name, array in wanted.items():
        if name not in outputs:
            return f"{name} is missing"
        found = outputs[name]
        if array.dtype.kind == "O":
            found = found.astype(object)
        if found.shape != array.shape or found.dtype != array.dtype:
            return f"{name} is {found.dtype}{[*found.shape]}, not {array.dtype}{[*array.shape]}"
        if array.dtype.kind in "OUSb":
            if not (found == array).all():
                return f"{name} differs"
        else:
            # bfloat16: two units in the last place, as onnx.backend.test.runner has it.
            rtol = max(case.rtol, 2**-6) if array.dtype.name == "bfloat16" else case.rtol
            one, two = found.astype(np.float64), array.astype(np.float64)
            if not np.allclose(one, two, rtol, case.atol, equal_nan=True):
                return f"{name} differs"
    return ""

"""What a pass is: a question about each node, and an edit where the answer is yes.

A pass is a frozen dataclass whose fields are its options. Matching only reads, and is the same for
check, dry run and repair; only :class:`graphfix.editing.builder.Builder` edits.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.editing import exclusions
from graphfix.editing.builder import Builder, Edit
from graphfix.facts import shapes
from graphfix.facts.view import View, drop_node_index, restore_node_index
from graphfix.graph import names
from graphfix.graph.text import NodeText, module_path, node_label
from graphfix.graph.walks import opset_of
from graphfix.spec import options
from graphfix.wording import Displayable, Row, group_pairs, kebab_case, plural

Feeds = Mapping[str, npt.NDArray[np.generic]]
Readings = Mapping[str, npt.NDArray[np.generic] | None]
"""Outputs by name; None for one that a pass drops on purpose, of which nothing can be said."""

Safety = Literal["exact", "valid-rows", "conditional"]
"""What a repair keeps: every number, up to rounding of the same sum; the numbers within the valid
length; or the numbers under a condition that the pass's manual states."""

Interface = Literal["dims", "inputs", "outputs"]
"""What a repair may change of how a model is fed and read, if that is its job: the sizes of input
dims; inputs; outputs."""

Severity = Literal["error", "warning", "note"]


def interface_changes_of(passes: Iterable[Check]) -> frozenset[Interface]:
    """Return what these passes are meant to change of how a model is fed and read."""
    chosen = [check for check in passes if isinstance(check, Pass)]
    new_feeds = any(type(check).feeds is not Pass.feeds for check in chosen)
    own = frozenset[Interface]().union(*(check.may_change for check in chosen))
    return own | {"inputs"} if new_feeds else own


def calibrated_passes(passes: Iterable[Check]) -> list[Pass]:
    """Return the passes that need calibration: they round, and the job finds what to keep."""
    return [check for check in passes if isinstance(check, Pass) and check.needs_calibration]


def weakest_promise(promises: Iterable[Safety]) -> Safety:
    """Return the weakest safety promise among the passes, as verification takes it.

    Rows beyond the valid length are compared only if no pass gives them up.
    """
    promised = set(promises)
    order: tuple[Safety, ...] = ("valid-rows", "conditional")
    return next((promise for promise in order if promise in promised), "exact")


def feeds_after(passes: Iterable[Check], old: Feeds) -> Feeds:
    """Return inputs for what ``passes`` make of a model, given those for the model before."""
    for check in passes:
        if isinstance(check, Pass):
            old = check.feeds(old)
    return old


def read_outputs(passes: Iterable[Check], new: Readings, old: Readings) -> Readings:
    """Return the outputs of the model before ``passes``, as the outputs after them tell them.

    Args:
        passes: The passes, in the order in which they ran.
        new: The outputs of the repaired model.
        old: The outputs of the model before, for the same inputs.
    """
    chosen = [x for x in passes if isinstance(x, Pass)]
    between = [old]
    for check in chosen:
        between.append(check.outputs(between[-1]))
    for check, before in zip(reversed(chosen), reversed(between[:-1]), strict=True):
        new = check.read_outputs(new, before)
    return new


def changes_outputs(check: Check) -> bool:
    """Return whether a pass changes which outputs there are, or what they are called."""
    return isinstance(check, Pass) and type(check).read_outputs is not Pass.read_outputs


@dataclass(frozen=True)
class Match:
    """A site that can be repaired. Subclass it with what ``rewrite`` needs to know.

    Attributes:
        node: The node whose first output is replaced: the anchor, or one after it in its graph.
        note: What the repair rests on, where that is more than the graph proves.
    """

    node: ir.Node
    note: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class ValueMatch(Match):
    """A site that is one tensor of a model.

    Attributes:
        value: The tensor.
    """

    value: ir.Value


@dataclass(frozen=True)
class Skip:
    """A near miss: it looks like a site and is skipped, for a reason that a user can act on.

    Attributes:
        node: The node.
        reason: Why it is skipped.
        severity: How bad it is on DirectML that it stays as it is.
    """

    node: ir.Node
    reason: str
    severity: Severity = field(default="note", kw_only=True)


@dataclass(frozen=True)
class Change:
    """One repair that was made, as text only, so that it outlives the graph and goes into JSON.

    In changes of :meth:`later` the text is rendered lazily: repairing a graph of 100,000 nodes
    takes 60,000 lines.

    Attributes:
        by: The name of the pass.
        at: The path of the repaired node, as :func:`graphfix.graph.text.node_label` prints it.
        tensor: The name of the repaired tensor, which is the same before and after.
        removed: The removed nodes, as ONNX text.
        added: The added nodes, as ONNX text.
        note: What the repair rests on, where that is more than the graph proves.
    """

    by: str
    at: str
    tensor: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    note: str = ""

    @classmethod
    def later(cls, by: str, at: str, tensor: str, lines: Edit, note: str = "") -> Change:
        """Return a repair whose ``removed`` and ``added`` are rendered when they are first read."""
        change = cls(by, at, tensor, (), (), note)
        del change.__dict__["removed"], change.__dict__["added"]
        change.__dict__.update(zip(_LINES, lines, strict=True))
        return change

    def __getattr__(self, name: str) -> tuple[str, ...]:
        """Render a text that is not rendered yet."""
        lines: tuple[NodeText, ...] | None = self.__dict__.get(f"_{name}")
        if lines is None:
            raise AttributeError(name)
        texts = self.__dict__[name] = tuple([line.render() for line in lines])
        del self.__dict__[f"_{name}"]
        return texts

    def __getstate__(self) -> dict[str, object]:
        """Return all fields as text, for another process."""
        return {x.name: getattr(self, x.name) for x in fields(self)}


_LINES = ("_removed", "_added")


@dataclass(frozen=True)
class Finding:
    """A line of ``check``: something in the model that a user should know of.

    Attributes:
        rule: The name of the pass or check that found it.
        severity: How bad it is.
        at: The path of the node.
        message: One sentence.
        fix: The pass spec that would repair it, or None.
        module: The PyTorch module that the node comes from, if the exporter wrote it down.
        versions: The versions of the provider that it holds for, if not for all that were asked of.
    """

    rule: str
    severity: Severity
    at: str
    message: str
    fix: str | None
    module: str = ""
    versions: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the finding as plain data."""
        return asdict(self)


SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Findings(Displayable, list[Finding]):
    """The list of all that ``check`` finds in a model."""

    @property
    def counted(self) -> dict[str, int]:
        """Return how many findings there are, by severity."""
        return {severity: sum(x.severity == severity for x in self) for severity in SEVERITIES}

    @property
    def line(self) -> str:
        """Return how many findings there are: ``8 errors, 3 warnings``."""
        return ", ".join(plural(n, x) for x, n in self.counted.items() if n) or "no hazard"

    @property
    def groups(self) -> Mapping[tuple[Severity, str, str | None], Sequence[Finding]]:
        """Return findings grouped by severity, rule and repair; the worst first."""
        worst_first = sorted(self, key=lambda x: SEVERITIES.index(x.severity))
        return group_pairs(
            ((finding.severity, finding.rule, finding.fix), finding) for finding in worst_first
        )

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return a row for each group, with the first message of each."""
        colours, rows = {"error": "red", "warning": "yellow"}, []
        for (severity, rule, fix), findings in self.groups.items():
            repair = f"; repair with -p {fix}" if fix is not None else ""
            text = f"{rule}: {len(findings)}{repair}; {findings[0].message} (at {findings[0].at})"
            rows.append(Row(severity, text, colours.get(severity, "")))
        return rows

    def to_json(self) -> dict[str, object]:
        """Return the findings as plain data: how many there are, and each."""
        return {"count": self.counted, "findings": [x.to_json() for x in self]}


@dataclass
class Result(ir.passes.PassResult):
    """A PassResult of onnx-ir that also lists what was changed and what was skipped."""

    changes: tuple[Change, ...] = ()
    skips: tuple[tuple[str, str], ...] = ()
    """(path of the node, reason) of every near miss."""


class Check(abc.ABC):
    """A question asked of a model. Reading never edits."""

    name: ClassVar[str]
    """The name for ``-p``; by default that of the class: ``FuseNorm`` is ``fuse-norm``."""
    sentence: ClassVar[str] = ""
    """The message of ``check`` for each site, if it is the same for all."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name") or kebab_case(cls.__name__)

    @abc.abstractmethod
    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield every site, and every near miss with its reason, in the order of the graph."""

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """Return the sites and near misses as lines for ``check``."""
        yield from map(self.finding, self.sites(model))

    def finding(self, site: Match | Skip) -> Finding:
        """Return one site or near miss as a line for ``check``."""
        at, module = node_label(site.node), ".".join(module_path(site.node))
        if isinstance(site, Skip):
            return Finding(self.name, site.severity, at, site.reason, None, module)
        return Finding(self.name, "warning", at, self.message(site), self.fix(), module)

    def message(self, site: Match) -> str:
        """Return the sentence that ``check`` prints for a site."""
        return self.sentence or f"{site.node.op_type} can be repaired by {self.name}"

    def fix(self) -> str | None:
        """Return the pass spec that repairs what this check finds, or None."""
        return None


class Pass(Check, ir.passes.InPlacePass):
    """A check that can also repair. It composes with ``ir.passes.Sequential``."""

    safety: ClassVar[Safety] = "exact"
    safe_to_pad: ClassVar[bool] = False
    """Whether it promises that padding reaches nothing valid, also where it found no leak."""
    may_change: ClassVar[frozenset[Interface]] = frozenset()
    """What it is the pass's job to change of how a model is fed and read."""
    advice: ClassVar[str] = ""
    """What a user may try if the repaired model computes something else."""
    needs_calibration: ClassVar[bool] = False
    """Whether the pass rounds numbers to float16, and the job runs the model to find which nodes it
    must not round: the pass has an option ``keep`` for their names, joined by ``+``."""
    keeps_shapes: ClassVar[bool] = False
    """Whether ``repair`` itself keeps :mod:`graphfix.facts.shapes` up to date."""

    edits_by_builder: ClassVar[bool] = False
    """Whether ``repair`` adds and removes nodes only through a Builder, which tracks them."""

    @abc.abstractmethod
    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Repair ``model`` in place, yielding each repair made and each near miss."""

    def call(self, model: ir.Model) -> Result:
        """Run the pass, as onnx-ir calls it."""
        changes: list[Change] = []
        skips: list[tuple[str, str]] = []
        finished = False
        index = None if self.edits_by_builder else drop_node_index(model)
        try:
            for event in self.repair(model):
                if isinstance(event, Change):
                    changes.append(event)
                elif event.reason:
                    skips.append((node_label(event.node), event.reason))
            finished = True
        finally:
            # Also after an error: a half-made edit must not leave stale shapes behind.
            if not self.keeps_shapes and (changes or not finished):
                shapes.drop_shapes(model)
            if not self.edits_by_builder and (changes or not finished):
                names.name_maker_of(model).forget_taken()
            if index is not None and finished and not changes:
                restore_node_index(model, index)
        return Result(model, bool(changes), tuple(changes), tuple(skips))

    def feeds(self, old: Feeds) -> Feeds:
        """Return inputs for the repaired model, given inputs for the model before.

        A pass that changes the signature overrides this, so that it too can be verified.
        """
        return old

    def outputs(self, old: Readings) -> Readings:
        """Return the outputs of the repaired model, given those of the model before.

        A pass that changes the outputs overrides this and :meth:`read_outputs`, so that it too can
        be verified.
        """
        return old

    def read_outputs(self, new: Readings, old: Readings) -> Readings:
        """Return the outputs of the model before, as those of the repaired model tell them.

        What is compared are these and ``old``: where the repaired model tells less, as that some
        scores are at most so large, the rest is as in ``old``.

        Args:
            new: The outputs of the repaired model.
            old: The outputs of the model before, for the same inputs.
        """
        return new

    def add_references(self, model: ir.Model) -> None:
        """Add outputs to the original with which new outputs of the repaired model are compared."""

    def pads(self, model: ir.Model) -> str:
        """Return the axis that a :attr:`safe_to_pad` pass looked along, as ``audio.2``."""
        return ""

    def fallbacks(self) -> Iterator[Pass]:
        """Yield the passes to try in place of this one after a failed proof, the best first.

        That is the same pass with other options, or another one.
        """
        yield from ()

    @property
    def is_removable(self) -> bool:
        """Return whether the result is still what was asked for without this pass.

        False for a pass that changes the interface, makes padding safe or changes types: its result
        is what the user asked for.
        """
        return not (self.safe_to_pad or self.needs_calibration or interface_changes_of([self]))

    @property
    def optional(self) -> bool:
        """Return whether a model without this calibrated pass is still worth writing.

        If the result misses the gate, the model is written without the pass, and users are told.
        """
        return False

    def supports_site_exclusion(self) -> bool:
        """Return whether single sites can be excluded; else it is all or nothing."""
        return False

    def exclusion_of(self, model: ir.Model, node: ir.Node) -> Skip | None:
        """Return why the user excluded this site, or None."""
        reason = exclusions.exclusion_reason(model, self.spec, node)
        return None if reason is None else Skip(node, reason)

    def runs_at(self, model: ir.Model) -> Mapping[str, Sequence[int]]:
        """Return the only sizes, by symbolic dim, at which both models run; {} for all.

        Verification then compares the models at these sizes only.
        """
        return {}

    def fix(self) -> str | None:
        """Return this pass, with its options, as ``-p`` takes it."""
        return self.spec()

    def spec(self) -> str:
        """Return the pass as ``-p`` takes it, ``additive-mask:floor=-1000``; without defaults."""
        option_texts = options.options_to_text(self)
        return f"{self.name}:{option_texts}" if option_texts else self.name


M = TypeVar("M", bound=Match)


class NodePass(Pass, Generic[M]):
    """A pass whose sites are single nodes: declare ``anchors``, write ``match`` and ``rewrite``.

    The driver walks the graph, its subgraphs and the local functions, matches each anchor just
    before rewriting it (so a match never sees a stale graph), and lets the Builder commit.
    """

    anchors: ClassVar[tuple[str, ...]]
    keeps_shapes: ClassVar[bool] = True
    edits_by_builder: ClassVar[bool] = True

    @abc.abstractmethod
    def match(self, node: ir.Node, view: View) -> M | Skip | None:
        """Return a Match if ``node`` is a site, a Skip if it nearly is, None if it is not."""

    @abc.abstractmethod
    def rewrite(self, match: M, op: Builder) -> ir.Value | tuple[ir.Value, ...]:
        """Build what replaces the first output of ``match.node``, or all of them, and return it."""

    def sites(self, model: ir.Model) -> Iterator[M | Skip]:
        """Yield every match and near miss of the model."""
        view = View(model)
        for node in view.nodes(*self.anchors):
            candidate = self._match_at_model_opset(node, view)
            if isinstance(candidate, Match):
                yield self.exclusion_of(model, candidate.node) or candidate
            elif candidate is not None:
                yield candidate

    def _match_at_model_opset(self, node: ir.Node, view: View) -> M | Skip | None:
        """Return the match of a node, or a Skip in a local function of another opset.

        ONNX Runtime checks nodes there by the opset of the function, and runs them by the model's.
        """
        candidate = self.match(node, view)
        opset, own = opset_of(view.model), view.opset_of_node(node)
        if not isinstance(candidate, Match) or own == opset:
            return candidate
        return Skip(
            node,
            f"its local function is of opset {own} and the model of {opset}: ONNX Runtime reads "
            "new nodes there by both",
        )

    def supports_site_exclusion(self) -> bool:
        """Return True: single sites can be excluded."""
        return True

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Rewrite every match."""
        view = View(model)
        builder = Builder(self.name, view)
        for node in list(view.nodes(*self.anchors)):
            if node.graph is None:  # went with an earlier repair
                continue
            candidate = self._match_at_model_opset(node, view)
            if isinstance(candidate, Skip):
                yield candidate
            elif (
                candidate is not None
                and (skip := self.exclusion_of(model, candidate.node)) is not None
            ):
                exclusions.record_exclusion(model, skip.node, self.spec())
                yield skip
            elif candidate is not None:
                site = candidate.node
                at, tensor = node_label(site), site.outputs[0].name or ""
                builder.start_site(site)
                built = self.rewrite(candidate, builder)
                values = built if isinstance(built, tuple) else (built,)
                lines = builder.replace_site(*values)
                yield Change.later(self.name, at, tensor, lines, candidate.note)

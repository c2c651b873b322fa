"""What a pass is: a question asked of every node, and an edit made where the answer is yes.

A pass is a frozen dataclass whose fields are its options. Looking is pure and is the same for
lint, dry run and repair; only :class:`graphfix.editing.builder.Builder` edits.
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
from graphfix.facts.view import View, forget_index, keep_index
from graphfix.graph import names
from graphfix.graph.text import Line, module_path, path_of
from graphfix.spec import options
from graphfix.wording import Row, Shown, grouped, kebab_case, plural

Feeds = Mapping[str, npt.NDArray[np.generic]]

Safety = Literal["exact", "valid-rows", "conditional"]
"""What a repair keeps: every number, to how a kernel that is given the same sum may round it; the
numbers within the valid length; or the numbers under a condition that the pass's manual states."""

Interface = Literal["dims", "inputs", "outputs"]
"""What a repair may change of how a model is fed and read, if that is its job: the sizes of input
dims; inputs; outputs."""

Severity = Literal["error", "warning", "note"]


def changed_by(passes: Iterable[Check]) -> frozenset[Interface]:
    """What it is the job of these passes to change of how a model is fed and read."""
    made = [one for one in passes if isinstance(one, Pass)]
    new_feeds = any(type(one).feeds is not Pass.feeds for one in made)
    own = frozenset[Interface]().union(*(one.may_change for one in made))
    return own | {"inputs"} if new_feeds else own


def rounding(passes: Iterable[Check]) -> list[Pass]:
    """Those of some passes that round: what they must leave alone is found by running the model."""
    return [one for one in passes if isinstance(one, Pass) and one.measured]


def together(promises: Iterable[Safety]) -> Safety:
    """What passes keep together, as verification takes it.

    Rows beyond the valid length are compared only if no pass gives them up.
    """
    made = set(promises)
    order: tuple[Safety, ...] = ("valid-rows", "conditional")
    return next((promise for promise in order if promise in made), "exact")


def new_feeds(passes: Iterable[Check], old: Feeds) -> Feeds:
    """Inputs for what ``passes`` make of a model, given those for the model before."""
    for one in passes:
        if isinstance(one, Pass):
            old = one.feeds(old)
    return old


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
    """A near miss: it looks like a site and is skipped, for a reason a user can act on."""

    node: ir.Node
    reason: str


@dataclass(frozen=True)
class Change:
    """One repair that was made: text only, so that it outlives the graph and goes into JSON.

    Texts that nobody reads are not written, of :meth:`later` at least: there are 60,000 lines where
    a graph of 100,000 nodes is repaired.

    Attributes:
        by: The name of the pass.
        at: The path of the repaired node, as :func:`graphfix.graph.text.path_of` prints it.
        tensor: The name of the repaired tensor, which is the same before and after.
        removed: The nodes that went, as ONNX text.
        added: The nodes that came, as ONNX text.
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
        """A repair whose ``removed`` and ``added`` are written once they are asked for."""
        change = cls(by, at, tensor, (), (), note)
        del change.__dict__["removed"], change.__dict__["added"]
        change.__dict__.update(zip(_LINES, lines, strict=True))
        return change

    def __getattr__(self, name: str) -> tuple[str, ...]:
        """The texts that are not written yet."""
        lines: tuple[Line, ...] | None = self.__dict__.get(f"_{name}")
        if lines is None:
            raise AttributeError(name)
        texts = self.__dict__[name] = tuple([line.text() for line in lines])
        del self.__dict__[f"_{name}"]
        return texts

    def __getstate__(self) -> dict[str, object]:
        """All of it as text, for whoever takes it to another process."""
        return {x.name: getattr(self, x.name) for x in fields(self)}


_LINES = ("_removed", "_added")


@dataclass(frozen=True)
class Finding:
    """What ``check`` prints: something in the model that a user should know of.

    Attributes:
        rule: The name of the pass or check that found it.
        severity: How bad it is.
        at: The path of the node.
        message: One sentence.
        fix: The pass spec that would repair it, or None.
        module: The PyTorch module that the node comes from, if the exporter wrote it down.
    """

    rule: str
    severity: Severity
    at: str
    message: str
    fix: str | None
    module: str = ""

    def to_json(self) -> dict[str, str | None]:
        """As plain data."""
        return asdict(self)


SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Findings(Shown, list[Finding]):
    """All that ``check`` finds in a model: a list."""

    @property
    def counted(self) -> dict[str, int]:
        """How many there are, by severity."""
        return {severity: sum(x.severity == severity for x in self) for severity in SEVERITIES}

    @property
    def line(self) -> str:
        """How many there are: ``8 errors, 3 warnings``."""
        return ", ".join(plural(n, x) for x, n in self.counted.items() if n) or "no hazard"

    @property
    def groups(self) -> Mapping[tuple[Severity, str, str | None], Sequence[Finding]]:
        """Those of one severity and rule with one repair together; the worst first."""
        worst_first = sorted(self, key=lambda x: SEVERITIES.index(x.severity))
        return grouped(((one.severity, one.rule, one.fix), one) for one in worst_first)

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """The groups, with the first message of each."""
        colours, told = {"error": "red", "warning": "yellow"}, []
        for (severity, rule, fix), found in self.groups.items():
            how = f"; repair with -p {fix}" if fix is not None else ""
            text = f"{rule}: {len(found)}{how}; {found[0].message} (at {found[0].at})"
            told.append(Row(severity, text, colours.get(severity, "")))
        return told

    def to_json(self) -> dict[str, object]:
        """As plain data: how many there are, and each."""
        return {"count": self.counted, "findings": [x.to_json() for x in self]}


@dataclass
class Result(ir.passes.PassResult):
    """A PassResult of onnx-ir that also says what was changed and what was skipped."""

    changes: tuple[Change, ...] = ()
    skips: tuple[tuple[str, str], ...] = ()
    """(path of the node, reason) of every near miss."""


class Check(abc.ABC):
    """A question asked of a model. Reading never edits."""

    name: ClassVar[str]
    """That of the class, where it says no other: ``FuseNorm`` is ``fuse-norm``."""
    sentence: ClassVar[str] = ""
    """What ``check`` prints for a site, where that is the same for all of them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name") or kebab_case(cls.__name__)

    @abc.abstractmethod
    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield every site, and every near miss with its reason, in the order of the graph."""

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """The sites and near misses as lines for ``check``."""
        yield from map(self.finding, self.sites(model))

    def finding(self, site: Match | Skip) -> Finding:
        """One site or near miss as a line for ``check``."""
        at, module = path_of(site.node), ".".join(module_path(site.node))
        if isinstance(site, Skip):
            return Finding(self.name, "note", at, site.reason, None, module)
        return Finding(self.name, "warning", at, self.message(site), self.fix(), module)

    def message(self, site: Match) -> str:
        """The sentence that ``check`` prints for a site."""
        return self.sentence or f"{site.node.op_type} can be repaired by {self.name}"

    def fix(self) -> str | None:
        """The pass spec that repairs what this check finds, if there is one."""
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
    measured: ClassVar[bool] = False
    """Whether the job looks for what the pass must leave alone by running the model: the pass then
    has an option ``keep`` for the names, joined by ``+``, and rounds numbers to float16."""
    keeps_shapes: ClassVar[bool] = False
    """Whether ``repair`` itself keeps :mod:`graphfix.facts.shapes` up to date."""

    edits_by_builder: ClassVar[bool] = False
    """Whether ``repair`` adds and removes nodes only by a Builder, which says so."""

    @abc.abstractmethod
    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Repair ``model`` in place, yielding each repair made and each near miss."""

    def call(self, model: ir.Model) -> Result:
        """Run the pass: the onnx-ir side of it."""
        changes: list[Change] = []
        skips: list[tuple[str, str]] = []
        finished = False
        index = None if self.edits_by_builder else forget_index(model)
        try:
            for event in self.repair(model):
                if isinstance(event, Change):
                    changes.append(event)
                elif event.reason:
                    skips.append((path_of(event.node), event.reason))
            finished = True
        finally:
            # Also after an error: a half-made edit must not leave stale shapes behind.
            if not self.keeps_shapes and (changes or not finished):
                shapes.forget(model)
            if not self.edits_by_builder and (changes or not finished):
                names.names_of(model).forget()
            if index is not None and finished and not changes:
                keep_index(model, index)
        return Result(model, bool(changes), tuple(changes), tuple(skips))

    def feeds(self, old: Feeds) -> Feeds:
        """Inputs for the repaired model, given inputs for the model before.

        A pass that changes the signature overrides this, so that it too can be verified.
        """
        return old

    def pads(self, model: ir.Model) -> str:
        """Of a pass that is :attr:`safe_to_pad`: the axis that it looked along, as ``audio.2``."""
        return ""

    def instead(self) -> Iterator[Pass]:
        """What may be tried in this pass's place where the repaired model computes something else.

        The same pass with other options, or another one; the best first.
        """
        yield from ()

    @property
    def dispensable(self) -> bool:
        """Whether a model without it is still what was asked for, if it turns out to be wrong.

        It is not where the pass was called for what it makes of the interface, of padding or of
        the type of numbers.
        """
        return not (self.safe_to_pad or self.measured or changed_by([self]))

    @property
    def may_gain_nothing(self) -> bool:
        """Of a pass that is measured: whether the model without it is what its users would rather
        have than nothing, if what it makes misses the gate. They are told.
        """
        return False

    def chooses(self) -> bool:
        """Whether :meth:`repair` asks :meth:`leaves` of each site; else it is all or nothing."""
        return False

    def leaves(self, model: ir.Model, node: ir.Node) -> Skip | None:
        """Why a site is skipped although it matches; None if it is not."""
        why = exclusions.why(model, self.spec, node)
        return None if why is None else Skip(node, why)

    def runs_at(self, model: ir.Model) -> Mapping[str, Sequence[int]]:
        """The only sizes at which ``model`` and what this pass makes of it both run.

        By symbolic dim, {} for all; verification then compares the two at no others.
        """
        return {}

    def fix(self) -> str | None:
        """This pass, with its options, as ``-p`` takes it."""
        return self.spec()

    def spec(self) -> str:
        """The pass as ``-p`` takes it, ``additive-mask:floor=-1000``; without defaults."""
        given = options.to_text(self)
        return f"{self.name}:{given}" if given else self.name


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
        """A Match if ``node`` is a site, a Skip if it nearly is, None if it is not mine."""

    @abc.abstractmethod
    def rewrite(self, match: M, op: Builder) -> ir.Value:
        """Build what replaces the first output of ``match.node`` and return it."""

    def sites(self, model: ir.Model) -> Iterator[M | Skip]:
        """Every match and near miss of the model as it stands."""
        view = View(model)
        for node in view.nodes(*self.anchors):
            found = self.match(node, view)
            if isinstance(found, Match):
                yield self.leaves(model, found.node) or found
            elif found is not None:
                yield found

    def chooses(self) -> bool:
        """It does."""
        return True

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Rewrite every match."""
        view = View(model)
        builder = Builder(self.name, view)
        for node in list(view.nodes(*self.anchors)):
            if node.graph is None:  # went with an earlier repair
                continue
            found = self.match(node, view)
            if isinstance(found, Skip):
                yield found
            elif found is not None and (left := self.leaves(model, found.node)) is not None:
                exclusions.write(model, left.node, self.spec())
                yield left
            elif found is not None:
                site = found.node
                at, tensor = path_of(site), site.outputs[0].name or ""
                builder.start(site)
                lines = builder.swap(self.rewrite(found, builder))
                yield Change.later(self.name, at, tensor, lines, found.note)

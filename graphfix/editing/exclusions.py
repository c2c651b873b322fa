"""Sites that a pass skips although it matches: excluded by verification, or by a user.

A place is (spec of the pass, name of the repaired tensor). While passes run, an :class:`Exclusions`
lies with the model; what it skips is written into the node, so that a second run, and ``check``,
skip it too and say why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import onnx_ir as ir

from graphfix.graph.text import node_label

Place = tuple[str, str]

WHOLE_PASS = ""
"""In the place of a tensor: the pass as a whole."""
MADE_BY_PASS = "*"
"""In the place of a tensor: what a pass before has made, whose name is another in each run."""

EXCLUDED = "excluded, as asked"

_KEY = "graphfix.left"
"""The key in metadata, with the pass: what was left there, and why."""
_META = "graphfix.leaving"


@dataclass(frozen=True)
class Exclusions:
    """The sites and passes that are to be skipped.

    Attributes:
        reasons: Why each place is skipped; it is written into the model.
        only_repaired: Of these passes, the tensors that are repaired, or :data:`WHOLE_PASS`; the
            rest is skipped, and nobody is told.
        original_tensors: The tensors that the model has before any pass; any other is
            :data:`MADE_BY_PASS`.
        node_patterns: Nodes that a user excludes, as a report names them; patterns are allowed.
    """

    reasons: Mapping[Place, str] = field(default_factory=dict)
    only_repaired: Mapping[str, frozenset[str]] = field(default_factory=dict)
    original_tensors: frozenset[str] = frozenset()
    node_patterns: Sequence[str] = ()

    def place_of(self, spec: str, tensor: str) -> Place:
        """Return the place of a tensor, which may be one that has no name of its own."""
        return spec, tensor if not tensor or tensor in self.original_tensors else MADE_BY_PASS

    def reason_for(self, spec: str, tensor: str) -> str | None:
        """Return why a place is skipped; None if it is not, "" if nobody has to know."""
        place = self.place_of(spec, tensor)
        if (reason := self.reasons.get(place)) is not None:
            return reason
        repaired = self.only_repaired.get(spec)
        return None if repaired is None or place[1] in repaired or WHOLE_PASS in repaired else ""

    def reason_for_pass(self, spec: str) -> str | None:
        """Return why a pass is skipped as a whole; None if it is not."""
        if (reason := self.reasons.get((spec, WHOLE_PASS))) is not None:
            return reason
        repaired = self.only_repaired.get(spec)
        return None if repaired is None or repaired else ""


NO_EXCLUSIONS = Exclusions()


def attach_exclusions(model: ir.Model, exclusions: Exclusions) -> None:
    """Attach exclusions to ``model`` for the passes that run over it from now on."""
    model.meta[_META] = exclusions


def pass_exclusion_reason(model: ir.Model, spec: str) -> str | None:
    """Return why the pass ``spec`` skips the whole model; None if it does not."""
    reason = _exclusions_of(model).reason_for_pass(spec)
    return model.metadata_props.get(_metadata_key(spec)) if reason is None else reason


def record_pass_exclusions(model: ir.Model, exclusions: Exclusions) -> None:
    """Record in ``model`` why passes skip all of it."""
    for (spec, tensor), reason in exclusions.reasons.items():
        if tensor == WHOLE_PASS:
            model.metadata_props[_metadata_key(spec)] = reason


def exclusion_reason(model: ir.Model, spec: Callable[[], str], node: ir.Node) -> str | None:
    """Return why a pass skips ``node``; None if it does not. ``spec`` gives its text, if needed."""
    exclusions = _exclusions_of(model)
    if exclusions is NO_EXCLUSIONS and not any(key.startswith(_KEY) for key in node.metadata_props):
        return None
    if exclusions.node_patterns and any(
        fnmatchcase(node_label(node), x) for x in exclusions.node_patterns
    ):
        return EXCLUDED
    recorded_reason = node.metadata_props.get(_metadata_key(spec()))
    return (
        exclusions.reason_for(spec(), _first_output_name(node))
        if recorded_reason is None
        else recorded_reason
    )


def record_exclusion(model: ir.Model, node: ir.Node, spec: str) -> None:
    """Record in ``node`` why the pass ``spec`` skips it, if a later run is to know."""
    exclusions = _exclusions_of(model)
    if (
        reason := exclusions.reasons.get(exclusions.place_of(spec, _first_output_name(node)))
    ) is not None:
        node.metadata_props[_metadata_key(spec)] = reason


def _exclusions_of(model: ir.Model) -> Exclusions:
    exclusions = model.meta.get(_META)
    return exclusions if isinstance(exclusions, Exclusions) else NO_EXCLUSIONS


def _first_output_name(node: ir.Node) -> str:
    return node.outputs[0].name or ""


def _metadata_key(spec: str) -> str:
    return f"{_KEY}.{spec}"

"""What a pass leaves alone although it matches: because verification said so, or a user.

A place is (spec of the pass, name of the repaired tensor). While passes run, a :class:`Leaving`
lies with the model; what it leaves is written into the node, so that a second run, and ``check``,
leave it too and say why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import onnx_ir as ir

from graphfix.graph.text import path_of

Place = tuple[str, str]

WHOLE = ""
"""In the place of a tensor: the pass as a whole."""
MADE = "*"
"""In the place of a tensor: what a pass before has made, whose name is another in each run."""

EXCLUDED = "excluded, as asked"

_KEY = "graphfix.left"
"""The key in metadata, with the pass: what was left there, and why."""
_META = "graphfix.leaving"


@dataclass(frozen=True)
class Leaving:
    """What is to be skipped.

    Attributes:
        left: Why each place is left; it is written into the model.
        only: Of these passes, the tensors that are repaired, or :data:`WHOLE`; the rest is left,
            and nobody is told.
        tensors: The tensors that the model has before any pass; any other is :data:`MADE`.
        nodes: Nodes that a user excludes, as a report names them; patterns stand for several.
    """

    left: Mapping[Place, str] = field(default_factory=dict)
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()
    nodes: Sequence[str] = ()

    def place(self, spec: str, tensor: str) -> Place:
        """The place of a tensor, which may be one that has no name of its own."""
        return spec, tensor if not tensor or tensor in self.tensors else MADE

    def reason(self, spec: str, tensor: str) -> str | None:
        """Why a place is left; None if it is not, and "" if nobody has to know."""
        place = self.place(spec, tensor)
        if (why := self.left.get(place)) is not None:
            return why
        here = self.only.get(spec)
        return None if here is None or place[1] in here or WHOLE in here else ""

    def of_pass(self, spec: str) -> str | None:
        """Why a pass is left as a whole; None if it is not."""
        if (why := self.left.get((spec, WHOLE))) is not None:
            return why
        here = self.only.get(spec)
        return None if here is None or here else ""


NOTHING = Leaving()


def put(model: ir.Model, leaving: Leaving) -> None:
    """Let ``leaving`` hold for the passes that run over ``model`` from now on."""
    model.meta[_META] = leaving


def why_pass(model: ir.Model, spec: str) -> str | None:
    """Why the pass ``spec`` leaves the whole model alone; None if it does not."""
    why = _of(model).of_pass(spec)
    return model.metadata_props.get(_key(spec)) if why is None else why


def write_passes(model: ir.Model, leaving: Leaving) -> None:
    """Write into ``model`` why passes leave all of it."""
    for (spec, tensor), why in leaving.left.items():
        if tensor == WHOLE:
            model.metadata_props[_key(spec)] = why


def why(model: ir.Model, spec: Callable[[], str], node: ir.Node) -> str | None:
    """Why a pass leaves ``node`` alone; None if it does not. ``spec`` gives its text, if needed."""
    leaving = _of(model)
    if leaving is NOTHING and not any(key.startswith(_KEY) for key in node.metadata_props):
        return None
    if leaving.nodes and any(fnmatchcase(path_of(node), x) for x in leaving.nodes):
        return EXCLUDED
    written = node.metadata_props.get(_key(spec()))
    return leaving.reason(spec(), _tensor(node)) if written is None else written


def write(model: ir.Model, node: ir.Node, spec: str) -> None:
    """Write into ``node`` why the pass ``spec`` leaves it, if it is to be known later."""
    leaving = _of(model)
    if (why := leaving.left.get(leaving.place(spec, _tensor(node)))) is not None:
        node.metadata_props[_key(spec)] = why


def _of(model: ir.Model) -> Leaving:
    found = model.meta.get(_META)
    return found if isinstance(found, Leaving) else NOTHING


def _tensor(node: ir.Node) -> str:
    return node.outputs[0].name or ""


def _key(spec: str) -> str:
    return f"{_KEY}.{spec}"

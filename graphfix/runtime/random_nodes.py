"""Models that draw random numbers, such as the noise of a text-to-speech flow, made repeatable.

ONNX Runtime's random operators start again with each session and draw on from run to run. With the
same seed, a new session for each run draws the same numbers, in the original as in the repaired
model: a node's seed comes from the name of what it makes, which a repair keeps.

A Dropout left in training mode, in a model that was exported without ``eval()``, is run as in
inference. So it is in the sessions that people make: ONNX Runtime's optimizer removes it (seen in
1.24.4 and 1.31.1). Without the optimizer it draws, and on Windows other numbers than on Linux.
"""

import zlib

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import all_nodes
from graphfix.providers.table import Ep
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Array, Feeds, Port
from graphfix.runtime.scratch import Closable


def first_random_node(model: ir.Model) -> ir.Node | None:
    """Return the first node that draws random numbers, or None; training Dropouts count."""
    return next((node for node in all_nodes(model) if is_random(node)), None)


def seed_model(model: ir.Model) -> ir.Model:
    """Return a copy in which every random node has a seed; one that has a seed keeps it.

    A Dropout draws no more.
    """
    copy = model.clone()
    for node in all_nodes(copy):
        if is_random(node) and is_op(node, "Dropout"):
            node.replace_input_with(2, None)
        elif is_random(node) and "seed" not in node.attributes:
            number = zlib.crc32((node.outputs[0].name or "").encode()) % 2**16
            node.attributes["seed"] = ir.AttrFloat32("seed", float(number))
    return copy


class RepeatableSession(Closable):
    """A seeded model that gives the same outputs for the same inputs: loaded again for each run."""

    def __init__(self, model: ir.Model, ep: Ep = "cpu") -> None:
        self._model, self._ep = model, ep
        self.notes: tuple[str, ...] = ()
        with self._open_session() as session:
            self.inputs: tuple[Port, ...] = session.inputs
            self.outputs: tuple[Port, ...] = session.outputs

    def _open_session(self) -> Session:
        return Session(self._model, ep=self._ep, optimize=self._ep != "cpu")

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run the model once, as :meth:`Session.run` does."""
        with self._open_session() as session:
            return session.run(feeds)


def is_random(node: ir.Node) -> bool:
    """Return whether a node draws random numbers."""
    if is_op(node, "Dropout"):
        return len(node.inputs) > 2 and scalar_of(node.inputs[2]) is True
    return node in ops.RANDOM

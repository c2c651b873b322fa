"""What graphfix keeps of a model beside its graph, in one object."""

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

NodeIndex = dict[tuple[str, str], list[tuple[int, ir.Node]]]
"""The nodes of each domain and operator, each with its place in the order of the model."""

_KEY = "graphfix.state"


@dataclass(eq=False)
class ModelState:
    """What graphfix keeps of one model beside its graph; none of it is saved with the model.

    Each field belongs to one module, which alone reads and writes it. Where that lies in a room
    above this one, its class cannot be named here: the field is an object, of which the module
    asks the class.

    Attributes:
        model: The model. A clone has a state of its own, empty at first: it has other values and
            nodes, and is not what a file holds.
        source_path: The file that it was loaded from (``files.io``).
        external_files: The files that the model file refers to, an ``ExternalFiles``
            (``files.io``).
        original_file: That file as it was parsed, an ``OriginalFile`` (``files.io``).
        node_index: Its nodes by type while nothing edits them (``facts.view``).
        shapes: The symbolic shapes of its values, a ``Shapes`` (``facts.shapes``).
        name_maker: The source of new names that passes share, a ``NameMaker`` (``graph.names``).
        exclusions: The sites that passes skip, an ``Exclusions`` (``editing.exclusions``).
    """

    model: ir.Model
    source_path: Path | None = None
    external_files: object = None
    original_file: object = None
    node_index: NodeIndex | None = None
    shapes: object = None
    name_maker: object = None
    exclusions: object = None


def state_of(model: ir.Model) -> ModelState:
    """Return what graphfix keeps of ``model``; an empty state at first."""
    state = model.meta.get(_KEY)
    # onnx-ir may copy what hangs on a model to a clone of it.
    if not isinstance(state, ModelState) or state.model is not model:
        state = model.meta[_KEY] = ModelState(model)
    return state

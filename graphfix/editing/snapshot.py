"""A copy of a model taken before an edit, rolled back if the edit fails halfway.

Weights are shared, not copied.
"""

import onnx_ir as ir

from graphfix.facts import shapes


class Snapshot:
    """A copy of a model; :meth:`roll_back` makes the model so again, with a graph of its own."""

    def __init__(self, model: ir.Model) -> None:
        self._model, self._copy = model, model.clone()

    def roll_back(self) -> None:
        """Restore the model to the copy, whatever was done to it since."""
        model, before = self._model, self._copy.clone()
        model.graph, model.ir_version = before.graph, before.ir_version
        model.functions.clear()
        model.functions.update(before.functions)
        model.metadata_props.clear()
        model.metadata_props.update(before.metadata_props)
        shapes.drop_shapes(model)

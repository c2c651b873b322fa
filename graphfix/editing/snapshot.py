"""A model as it was: taken before an edit, rolled back if the edit fails halfway.

Weights are shared, not copied.
"""

import onnx_ir as ir

from graphfix.facts import shapes


class Snapshot:
    """What a model is now; :meth:`put_back` makes it so again, with a graph of its own."""

    def __init__(self, model: ir.Model) -> None:
        self._model, self._copy = model, model.clone()

    def put_back(self) -> None:
        """Make the model what it was, whatever was done to it since."""
        model, before = self._model, self._copy.clone()
        model.graph, model.ir_version = before.graph, before.ir_version
        model.functions.clear()
        model.functions.update(before.functions)
        model.metadata_props.clear()
        model.metadata_props.update(before.metadata_props)
        shapes.forget(model)

"""Chunks that a trace has counted: there were so many then, and no other number runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.values import attr_int, const_of, ints_of, is_op

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.model.view import View

_HOW = "export it with torch.jit.script, or pad the sequence and reshape it to windows in the model"


def frozen_at(node: ir.Node, view: View) -> str | None:
    """What a trace has made of ``x.split(100, 1)``, if that is what a node is.

    dynamo takes each chunk by its number, TorchScript writes how long each was.
    """
    if is_op(node, "SplitToSequence"):
        readers = [use.node for use in node.outputs[0].uses()]
        numbers = [const_of(x.inputs[1]) if is_op(x, "SequenceAt") else None for x in readers]
        if not numbers or any(x is None for x in numbers):
            return None
        return f"the trace has counted {len(numbers)} chunks, and no other number runs: {_HOW}"
    sizes = ints_of(node.inputs[1]) if len(node.inputs) > 1 else None
    dims = view.shapes.dims(node.inputs[0])
    if sizes is None or dims is None or len(sizes) < 2 or sizes[-1] > sizes[0]:
        return None
    length = dims[attr_int(node, "axis", 0)]
    if isinstance(length, int) or length.value is None or len({*sizes[:-1]}) > 1:
        return None
    return (
        f"the trace has cut {length} into chunks of {sizes[0]}, {len(sizes)} of them, and only "
        f"{length} = {sum(sizes)} runs: {_HOW}"
    )

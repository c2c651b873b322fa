"""How many bytes a run gives back, which are copied from the device."""

from collections.abc import Mapping

import onnx_ir as ir

from graphfix.facts.shapes import shapes_of
from graphfix.graph.dim_spelling import DimSpelling


def bytes_read_back(model: ir.Model, sizes: Mapping[str, int]) -> int | None:
    """Return how many bytes the outputs of a model have; None if their sizes are not known.

    Args:
        model: The model.
        sizes: Sizes of symbolic dims of the inputs, by name.
    """
    shapes, spelling = shapes_of(model), DimSpelling(model)
    by_symbol = {spelling.symbol_of(name): size for name, size in sizes.items()}
    total = 0
    for value in model.graph.outputs:
        dims, dtype = shapes.dims(value), shapes.dtype(value)
        if dims is None or dtype is None or dtype == ir.DataType.STRING:
            return None
        count = 1
        for dim in dims:
            size = dim if isinstance(dim, int) else dim.evaluate(by_symbol)
            if not isinstance(size, int):
                return None
            count *= size
        total += -(-count * dtype.bitwidth // 8)
    return total


def read_back_text(size: int) -> str:
    """Return a number of bytes as text: ``5.2 kB``."""
    for unit, factor in (("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"

"""A model whose sizes a repair has fixed: it is one container, and clips have to fit into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.feeds.signature import Signature

# Clips that a container of one size is tried with: full, nearly full, and down to a twelfth.
_SHARES = (1.0, 0.93, 0.6, 0.25, 1 / 12)


def fixed_sizes(signature: Signature, repaired: ir.Model) -> dict[str, int]:
    """The groups of dims that were symbolic and are numbers now.

    Args:
        signature: The inputs of the model as it was.
        repaired: The model as it is.
    """
    now = {value.name: value.shape for value in repaired.graph.inputs}
    known = set(signature.symbols())
    found: dict[str, int] = {}
    for item in signature.inputs:
        shape = now.get(item.name)
        if shape is None or len(shape) != len(item.dims):
            continue
        for dim, size in zip(item.dims, shape, strict=True):
            if isinstance(size, int) and not isinstance(dim, int) and dim.value in known:
                found[signature.group(dim.value)] = size
    return found


def clips_for(size: int) -> list[int]:
    """Lengths of clips for a container of one size, of both parities where it has room."""
    found = [max(1, round(size * share)) for share in _SHARES]
    odd = [n - 1 for n in (size, found[2]) if n > 2]
    return sorted({*found, *odd}, reverse=True)

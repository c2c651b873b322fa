"""The shapes that a model declares of its outputs, compared with those of runs."""

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from graphfix.facts.symbolic.expressions import symbols_of
from graphfix.feeds.case import Array
from graphfix.graph.dim_spelling import Dim, DimSpelling
from graphfix.graph.dims import is_nameless

Place = tuple[str, int]
"""An output and an axis."""


class DeclaredShapes:
    """What a model declares of its inputs and outputs.

    Args:
        model: The model.
    """

    def __init__(self, model: ir.Model) -> None:
        spelling = DimSpelling(model)
        self._inputs = _dims_by_name(model.graph.inputs, spelling)
        self._outputs = _dims_by_name(model.graph.outputs, spelling)
        self._name_of = spelling.name_of

    def false_dims(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> dict[Place, str]:
        """Return the declared dims of outputs that a run contradicts, as sentences.

        A dim is compared if it is a number, or computed from dims of the inputs. Of an output with
        another number of dims all are false.
        """
        sizes = self._sizes_in(feeds)
        sentences: dict[Place, str] = {}
        for name, dims in self._outputs.items():
            shape = getattr(outputs.get(name), "shape", None)
            if shape is None:
                continue
            if len(shape) != len(dims):
                sentence = (
                    f"declares output {name!r} with {len(dims)} dims, and it has {len(shape)}"
                )
                sentences |= {(name, axis): sentence for axis in range(len(shape))}
                continue
            for axis, (dim, actual) in enumerate(zip(dims, shape, strict=True)):
                size = _size_at(dim, sizes)
                if size is not None and size != actual:
                    text = dim if isinstance(dim, int) else self._name_of(str(dim))
                    sentences[name, axis] = (
                        f"declares axis {axis} of output {name!r} as {text}, and it is {actual}"
                    )
        return sentences

    def _sizes_in(self, feeds: Mapping[str, Array]) -> dict[str, int]:
        """Return the size of each symbol in a run; of one with two sizes, none."""
        sizes: dict[str, set[int]] = {}
        for name, dims in self._inputs.items():
            for dim, size in zip(dims, getattr(feeds.get(name), "shape", ()), strict=False):
                if not isinstance(dim, int) and not is_nameless(dim):
                    sizes.setdefault(str(dim), set()).add(size)
        return {symbol: size for symbol, (size, *others) in sizes.items() if not others}


def _dims_by_name(values: Iterable[ir.Value], spelling: DimSpelling) -> dict[str, list[Dim]]:
    return {
        x.name or "": [spelling.to_symbolic(dim) for dim in x.shape]
        for x in values
        if x.shape is not None
    }


def _size_at(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return what a declared dim is at these sizes, or None if they do not say it."""
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    symbols = symbols_of(dim)
    if not symbols or not symbols <= sizes.keys():
        return None
    size = dim.evaluate({x: sizes[x] for x in symbols})
    return size if isinstance(size, int) else None

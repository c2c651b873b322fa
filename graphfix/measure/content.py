"""Which elements of an output are content, and which were made from padding.

The dims of an output say it, by the symbol of the axis that a mask or length input governs; where
inference does not know the dims, the shapes that were seen tell them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from graphfix.measure.compare import content_of, keeps_clean, observed_dims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfix.measure.case import Case
    from graphfix.measure.compare import Array, Mask, Tolerance
    from graphfix.measure.signature import Signature
    from graphfix.model.symbolic import Dim

    Outputs = Mapping[str, Array]

T = TypeVar("T")


class Content:
    """What is content in the outputs of a model.

    Args:
        signature: The inputs of the model.

    Attributes:
        dims: The dims of each output, as far as they are known; none before :meth:`learn`.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self.dims: dict[str, tuple[Dim, ...] | None] = {}

    def learn(self, runs: Sequence[tuple[Case, Outputs]]) -> None:
        """Know the dims of outputs: by inference, and by what came of these cases."""
        self.dims = self._signature.output_dims()
        known = set(self._signature.symbols())
        for name, dims in self.dims.items():
            symbols = {s for d in dims or () if not isinstance(d, int) for s in d.free_symbols()}
            if dims is not None and symbols <= known:
                continue
            having = [(case, outputs[name]) for case, outputs in runs if name in outputs]
            seen = [(array.shape, self._by_symbol(case.dims)) for case, array in having]
            governed = {s for case, _ in having for s in self._lengths(case)}
            self.dims[name] = observed_dims(seen, governed) or dims

    def where(self, name: str, shape: tuple[int, ...], case: Case) -> Mask | None:
        """Where an output is content; None if its dims do not say it."""
        return self.within(self.dims.get(name), shape, case)

    def within(
        self, dims: tuple[Dim, ...] | None, shape: tuple[int, ...], case: Case
    ) -> Mask | None:
        """As :meth:`where`, for any tensor with these dims."""
        sizes = self._by_symbol(case.dims)
        return content_of(dims, shape, sizes, self._lengths(case), self._batch())

    def kept(
        self, name: str, case: Case, clean: Array, poisoned: Array, tolerance: Tolerance
    ) -> Mask:
        """Where an output stays clean although there is garbage in the padding of ``case``.

        Args:
            name: The output.
            case: The case with garbage.
            clean: What the output is without it.
            poisoned: What the output is with it.
            tolerance: What may differ.
        """
        governed = self._batch() | self._lengths(case).keys()
        where = self.where(name, poisoned.shape, case)
        return keeps_clean(clean, poisoned, self.dims.get(name), governed, where, tolerance)

    def _lengths(self, case: Case) -> dict[str, tuple[int, ...]]:
        return self._by_symbol(case.valid)

    def _by_symbol(self, by_name: Mapping[str, T]) -> dict[str, T]:
        return {self._signature.symbol_of(n) or n: v for n, v in by_name.items()}

    def _batch(self) -> frozenset[str]:
        batch = self._signature.batch
        return frozenset(self._signature.members(batch)) if batch else frozenset()

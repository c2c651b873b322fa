"""A set of operators that answers for names and for nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeGuard, cast

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    import onnx_ir as ir

ANY_OPSET = range(1, 1 << 16)
# Sets are asked of every node, many times over: not by super(), which costs as much as the look-up.
_contains = frozenset.__contains__


def qualified_name(node: ir.Node) -> str:
    """Return the operator of a node as the table writes it: ``Add``, ``com.microsoft.Gelu``."""
    domain = node.domain
    return f"{domain}.{node.op_type}" if domain and domain != "ai.onnx" else node.op_type


class OpSet(frozenset[Any]):  # of str; a type checker would refuse to look for a node in that
    """An immutable set of operator names; ``node in SET`` asks for the operator of a node.

    An operator of another domain than ONNX's is written with it: ``com.microsoft.Gelu``.

    Some traits hold from an opset on only: ``Add`` broadcasts since opset 7. The set has such an
    operator, and :meth:`at` leaves those that have the trait at one opset.
    """

    _opsets: Mapping[str, tuple[range, ...]]
    _sets_at: dict[int, OpSet]

    def __new__(
        cls, names: Iterable[str] = (), opsets: Mapping[str, tuple[range, ...]] | None = None
    ) -> Self:
        """Make a set of qualified names.

        Args:
            names: The operators.
            opsets: For operators that do not have the trait at every opset, where they have it.
        """
        self = super().__new__(cls, names)
        self._opsets = {name: opsets[name] for name in self if name in opsets} if opsets else {}
        self._sets_at = {}
        return self

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return _contains(self, item)
        # By its fields, not its class: importing onnx-ir for that would cost a second.
        if not hasattr(item, "op_type"):
            return False
        return _contains(self, qualified_name(cast("ir.Node", item)))

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[str]: ...

    def has(self, node: ir.Node | None) -> TypeGuard[ir.Node]:
        """Return whether there is a node and its operator is in the set."""
        return node is not None and _contains(self, qualified_name(node))

    def at(self, opset: int) -> OpSet:
        """Return the operators that have the trait at this version of the standard opset."""
        if not self._opsets:
            return self
        if opset not in self._sets_at:  # passes ask it of every node
            self._sets_at[opset] = OpSet(
                x for x in self if any(opset in y for y in self._opsets.get(x, (ANY_OPSET,)))
            )
        return self._sets_at[opset]

    def __or__(self, other: AbstractSet[object]) -> OpSet:
        names = frozenset.__or__(self, other)
        sides = [self, other if isinstance(other, OpSet) else OpSet(cast("Iterable[str]", other))]
        # An operator that has the trait at every opset on one side has it in the union.
        always = {name for side in sides for name in side if name not in side._opsets}
        opsets: dict[str, tuple[range, ...]] = {}
        for side in sides:
            for name in side._opsets.keys() - always:
                opsets[name] = (*opsets.get(name, ()), *side._opsets[name])
        return OpSet(cast("Iterable[str]", names), opsets)

    __ror__ = __or__

    def __sub__(self, other: AbstractSet[object]) -> OpSet:
        return OpSet(frozenset.__sub__(self, other), self._opsets)

    def __and__(self, other: AbstractSet[object]) -> OpSet:
        return OpSet(frozenset.__and__(self, other), self._opsets)

    def __repr__(self) -> str:
        return f"OpSet({' '.join(sorted(self))})"

"""Spelling of declared dims as symbols in symbolic shapes, and back.

Inference reads the text of a dim as an expression: ``batch-size`` would be a difference, and
``seq len`` no dim at all. A text is an expression only if the model's own names make it one:
``past + 1`` where another dim is ``past``. Any other is a name, and stands in symbolic shapes as a
symbol that can be computed with. Of a sum or a product one part is enough: no one calls a dim
``past + T`` that has nothing to do with ``T``, but ``batch-size`` may stand beside ``batch``.
Whoever writes a dim into a file or tells of one says its name.
"""

import re
from collections.abc import Collection, Mapping

import onnx_ir as ir

from graphfix.graph.dims import as_identifier, is_expression, is_nameless, is_symbol

Dim = int | ir.SymbolicDim

# Signs of a sum or a product, and those that names have, too.
_SUM_OR_PRODUCT, _HYPHEN_LIKE = re.compile(r"[+*]"), re.compile(r"[-/%]")


class DimSpelling:
    """The names of a model's dims, and the symbols that stand for them.

    Args:
        model: The model; the names of its inputs' dims count.
    """

    def __init__(self, model: ir.Model) -> None:
        dims = [d for x in model.graph.inputs for d in x.shape or () if not is_nameless(d)]
        texts = dict.fromkeys(x.value or "" for x in dims if isinstance(x, ir.SymbolicDim))
        plain = {x for x in texts if is_symbol(x)}
        self._symbols: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for text in texts:
            if text in plain or _is_computed(ir.SymbolicDim(text), plain):
                continue
            symbol = as_identifier(text)
            while symbol in plain or symbol in self._names:  # "a-b" beside "a_b"
                symbol += "_"
            self._symbols[text], self._names[symbol] = symbol, text

    @property
    def symbols(self) -> Mapping[str, str]:
        """The symbol of each name that is not a symbol itself."""
        return self._symbols

    def symbol_of(self, name: str) -> str:
        """Return the symbol that stands for a name."""
        return self._symbols.get(name, name)

    def name_of(self, symbol: str) -> str:
        """Return the name that the file has for a symbol."""
        return self._names.get(symbol, symbol)

    def to_symbolic(self, dim: Dim) -> Dim:
        """Return the dim that stands in symbolic shapes for a declared dim."""
        if isinstance(dim, int) or dim.value not in self._symbols:
            return dim
        return ir.SymbolicDim(self._symbols[dim.value])

    def to_declared(self, dim: Dim) -> Dim:
        """Return the dim to write into a file; without a name if the file lacks its symbols."""
        if isinstance(dim, int) or dim.value is None:
            return dim
        if dim.value in self._names:
            return ir.SymbolicDim(self._names[dim.value])
        lost = bool(self._names) and any(x in self._names for x in dim.free_symbols())
        return ir.SymbolicDim(None) if lost else dim


def _is_computed(dim: ir.SymbolicDim, plain: Collection[str]) -> bool:
    if is_expression(dim, plain):
        return True
    if not dim.value or not _SUM_OR_PRODUCT.search(dim.value) or _HYPHEN_LIKE.search(dim.value):
        return False
    try:
        return not dim.free_symbols().isdisjoint(plain)
    except ValueError:
        return False

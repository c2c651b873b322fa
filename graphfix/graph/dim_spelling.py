"""How the dims that a file declares are spelled in symbolic shapes, and back.

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

from graphfix.graph.dims import identifier, is_expression, is_nameless, is_symbol

Dim = int | ir.SymbolicDim

# Signs of a sum or a product, and those that names have, too.
_JOINED, _PARTED = re.compile(r"[+*]"), re.compile(r"[-/%]")


class Spelling:
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
            symbol = identifier(text)
            while symbol in plain or symbol in self._names:  # "a-b" beside "a_b"
                symbol += "_"
            self._symbols[text], self._names[symbol] = symbol, text

    @property
    def symbols(self) -> Mapping[str, str]:
        """The symbols of names that are none themselves."""
        return self._symbols

    def symbol(self, name: str) -> str:
        """The symbol that stands for a name."""
        return self._symbols.get(name, name)

    def name(self, symbol: str) -> str:
        """What the file calls a symbol."""
        return self._names.get(symbol, symbol)

    def read(self, dim: Dim) -> Dim:
        """What stands in symbolic shapes for a dim of the file."""
        if isinstance(dim, int) or dim.value not in self._symbols:
            return dim
        return ir.SymbolicDim(self._symbols[dim.value])

    def write(self, dim: Dim) -> Dim:
        """What to write into a file; nothing of an expression in symbols that the file lacks."""
        if isinstance(dim, int) or dim.value is None:
            return dim
        if dim.value in self._names:
            return ir.SymbolicDim(self._names[dim.value])
        lost = bool(self._names) and any(x in self._names for x in dim.free_symbols())
        return ir.SymbolicDim(None) if lost else dim


def _is_computed(dim: ir.SymbolicDim, plain: Collection[str]) -> bool:
    if is_expression(dim, plain):
        return True
    if not dim.value or not _JOINED.search(dim.value) or _PARTED.search(dim.value):
        return False
    try:
        return not dim.free_symbols().isdisjoint(plain)
    except ValueError:
        return False

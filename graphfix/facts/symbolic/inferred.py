"""What is learned of one model while its shapes are inferred."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import (
    Array,
    Dim,
    array_of,
    dim_of,
    equal,
    expr_of,
    is_at_most,
    is_part,
    is_rest_of_table,
    items_of,
    positive_parts,
    settled,
    symbols_of,
)
from graphfix.facts.symbolic.signs import bounded, never_negative

# Shape tensors are small: what holds more is data.
SMALL = 64
# Letters of a size that is reckoned with; the longest in the 79 exports of the zoo has 119.
LONGEST = 120
# How often a size may be multiplied with itself. Of a power of a sum sympy looks for the roots: the
# square of a square of a square took minutes. No tensor has as many axes of one size.
STEEPEST = 6
# How often a size may be compared with what is known to be positive, which takes sympy milliseconds
# each time; the most in the 79 exports of the zoo is 358.
TRIES = 1000
INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)

_current: contextvars.ContextVar[Facts | None] = contextvars.ContextVar("facts", default=None)


class Facts:
    """What is learned of one model while its shapes are inferred.

    Attributes:
        contents: What small integer tensors hold, as arrays of expressions. True is 1.
        ints: What constants that were looked at hold, if it is one integer or a list of them.
        never_empty: Symbols, and sums of them, that are at least 1 in every run that succeeds.
        usual: Whether only usual runs count: no size is 0 or over a million, no table is read past
            its end.
        undecided: Whether the sign of a size was asked for and was not known. What is learned
            further down may tell: another inference, given these facts, knows it from the start.
        doubts: How often something of a size was asked for that was not known.
        elsewhere: Graphs inside, of which more could be learned for themselves: they might not run.
    """

    def __init__(
        self, *graphs: ir.Graph, known: Sequence[sympy.Expr] = (), usual: bool = False
    ) -> None:
        self.contents: dict[ir.Value, Array] = {}
        self.ints: dict[ir.Value, tuple[int, ...] | None] = {}
        self.undecided = False
        self.doubts = 0
        self.usual = usual
        self.elsewhere: dict[ir.Graph, None] = {}
        self._graphs = graphs
        self._real: set[str] = set()
        self._positive = list(known)
        self.never_empty = {name for expr in self._positive for name in positive_parts(expr)}
        self._equal: list[tuple[sympy.Expr, sympy.Expr]] = []
        self._joins: dict[frozenset[str], ir.SymbolicDim] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._minted: set[str] = set()
        self._names: dict[str, ir.SymbolicDim] = {}
        self._solved: dict[sympy.Symbol, sympy.Expr] | None = None
        self._resolved: dict[str, Dim] = {}
        self._tries = 0

    def fresh(self, ctx: Context) -> sympy.Expr:
        """A number of which nothing is known."""
        dim = ctx.new_symbolic_dim()
        self._minted.add(str(dim))
        return expr_of(dim)

    def shortened(self, ctx: Context, dim: Dim) -> Dim:
        """``dim``, or a name for it if it is long or steep: the same for all written alike.

        Sizes of sizes, a Min of floors of Mins, grow with each layer, and what sympy takes to
        compare two grows much faster. What is behind a name is known to nobody.
        """
        if isinstance(dim, int) or dim.value is None:
            return dim
        if len(dim.value) <= LONGEST and ("**" not in dim.value or _degree(dim) <= STEEPEST):
            return dim
        if dim.value not in self._names:
            self._names[dim.value] = ctx.new_symbolic_dim()
        return self._names[dim.value]

    def join(self, ctx: Context, a: Dim, b: Dim) -> Dim:
        """The dim that ``a`` and ``b`` broadcast to.

        That of two different symbols is a third: each may be 1 where the other is not.
        """
        if a == 1 or equal(a, b):
            return b
        if b == 1 or isinstance(a, int):
            return a
        if isinstance(b, int):
            return b
        for one, other in ((a, b), (b, a)):
            if is_at_most(other, one) or is_part(other, one) or is_rest_of_table(other, one):
                return one
        parts = frozenset.union(*(self._parts.get(str(x), frozenset([str(x)])) for x in (a, b)))
        found = self._joins.get(parts)
        if found is None:
            found = self._joins[parts] = ctx.new_symbolic_dim()
            self._parts[str(found)] = parts
            self._minted.add(str(found))
        return found

    def must_reach(self, node: ir.Node, a: Dim, b: Dim) -> None:
        """Note that ``Min(N, b)``, where ``node`` broadcasts it with ``b``, is all of that."""
        for one, other in ((a, b), (b, a)):
            if isinstance(one, int) or isinstance(other, int) or not is_at_most(other, one):
                continue
            most = max((x for x in expr_of(other).atoms(sympy.Integer)), default=0)
            size = expr_of(one)
            terms = sympy.Add.make_args(size)
            parts = terms if all(x.is_nonnegative for x in terms) else ()
            for part in dict.fromkeys((size, *parts)):
                self.must_be_positive(node, most - part + 1)

    def must_equal(self, node: ir.Node, a: sympy.Expr, b: sympy.Expr) -> None:
        """Note that ``node`` fails unless ``a`` is ``b``; a branch might not be run at all."""
        if a != b and self._is_run(node):
            self._equal.append((a, b))

    def must_be_positive(self, node: ir.Node, expr: sympy.Expr) -> None:
        """Note that ``node`` fails unless ``expr`` is at least 1."""
        if not expr.is_Integer and expr not in self._positive and self._is_run(node):
            self._positive.append(expr)
            self.never_empty |= positive_parts(expr)

    def _is_run(self, node: ir.Node) -> bool:
        if node.graph not in self._graphs and isinstance(node.graph, ir.Graph):
            self.elsewhere[node.graph] = None
        return node.graph in self._graphs

    def is_dim(self, ctx: Context, expr: sympy.Expr) -> bool:
        """Whether its symbols are sizes of tensors, not unknown numbers, perhaps negative."""
        names = (x.name for x in expr.free_symbols)
        known = all(x in self._real or not ctx.is_generated_symbol(x) for x in names)
        self.doubts += not known
        return known

    @property
    def known(self) -> tuple[int, int]:
        """How much is known of sizes: what was in doubt stays so until this is another."""
        return len(self._positive), len(self._real)

    @property
    def lasting(self) -> list[sympy.Expr]:
        """What is positive in another inference too, where a name may stand for another size.

        Those of the inputs are the same; what is minted on the way is numbered as it comes.
        """
        shapes = (x.shape or () for x in self._graphs[0].inputs)
        names = {name for shape in shapes for dim in shape for name in symbols_of(dim)}
        return [x for x in self._positive if names.issuperset(map(str, x.free_symbols))]

    def at_least(self, ctx: Context, expr: sympy.Expr, least: int) -> bool:
        """Whether ``expr`` is at least ``least`` in every run that succeeds."""
        if expr.is_Integer:
            return bool(expr >= least)
        if not self.is_dim(ctx, expr):
            return False
        spare = settled(expr - least)
        known = never_negative(spare) or self._follows(spare)
        self.undecided |= not known
        self.doubts += not known
        return known

    def _follows(self, spare: sympy.Expr) -> bool:
        """Whether ``spare`` is at least 0 since something else is at least 1.

        Once that was tried very often it is said not to be known, which is always safe.
        """
        symbols = spare.free_symbols
        for x in self._positive:
            # What is taken away may only go where all of its symbols are.
            if self._tries >= TRIES or not x.free_symbols <= symbols:
                continue
            self._tries += 1
            if any(never_negative(settled(spare - times * (x - 1))) for times in _times(spare, x)):
                return True
            if _is_rounded(spare, x):
                return True
        return False

    def read(self, ctx: Context, value: ir.Value | None) -> Array | None:
        """What ``value`` holds, if it is small and known; fractions of sizes, if of floats."""
        if value is None or value.dtype not in (*INTEGERS, *FLOATS):
            return None
        if value in self.contents:
            return self.contents[value]
        node = value.producer()
        if (value.is_initializer() or (node and node.op_type == "Constant")) and (
            not value.is_graph_input()
        ):
            tensor = value.const_value
            if tensor is None:  # a Constant by another attribute than "value"
                tensor = ir.convenience.get_const_tensor(value)
            if tensor is None or tensor.size > SMALL:
                return None
            if value.dtype in FLOATS:
                given = tensor.numpy()
                if not np.isfinite(given).all():
                    return None
                numbers = [sympy.Rational(Fraction(float(x))) for x in given.flat]
            else:
                numbers = [sympy.Integer(int(x)) for x in tensor.numpy().flat]
            array = self.contents[value] = array_of(numbers, list(tensor.shape))
            return array
        known = ctx.get_symbolic_value(value) if value.dtype in INTEGERS else None
        if known is None or value.shape is None or len(value.shape) > 1:
            return None
        return array_of([expr_of(x) for x in known], [len(known)] * len(value.shape))

    def elements(self, ctx: Context, value: ir.Value | None) -> Array | None:
        """What a shape tensor holds; where that is not known, as many unknown numbers as it has."""
        known = self.read(ctx, value)
        if known is not None:
            return known
        if value is None or value.shape is None or len(value.shape) != 1:
            return None
        length = value.shape[0]
        if not isinstance(length, int) or length > SMALL:
            return None
        return array_of([self.fresh(ctx) for _ in range(length)], [length])

    def write(self, ctx: Context, value: ir.Value, array: Array | None) -> None:
        """Say what ``value`` holds; if None, also take back what the library thought."""
        value.const_value = None
        self.contents.pop(value, None)
        if array is None or array.size > SMALL:
            guess = ctx.get_symbolic_value(value)
            if guess is not None:
                ctx.set_symbolic_value(value, [dim_of(self.fresh(ctx)) for _ in guess])
            return
        bits = 31 if value.dtype == ir.DataType.INT32 else 63
        # Beyond their type integers start again from the other end.
        held = items_of(array)
        wraps = [bool(x.is_Integer and not -(1 << bits) <= x < 1 << bits) for x in held]
        items = [self.fresh(ctx) if w else x for w, x in zip(wraps, held, strict=True)]
        dims = [dim_of(x) for x in items]
        short = [self.shortened(ctx, x) for x in dims]
        if short != dims or any(wraps):
            array = array_of([expr_of(x) for x in short], array.shape)
        self.contents[value] = array
        if value.shape is None:
            value.shape = ir.Shape(array.shape)
        ctx.set_symbolic_value(value, short)

    def note(self, value: ir.Value, array: Array | None) -> None:
        """Keep what a float tensor holds; the library is not told, it knows only integers."""
        if array is not None and array.size <= SMALL:
            self.contents[value] = array

    def take_dims(self, shape: ir.Shape) -> list[sympy.Expr]:
        """The dims of a tensor, as expressions that are known to be sizes."""
        dims = [expr_of(x) for x in shape]
        self._real.update(x.name for expr in dims for x in expr.free_symbols)
        return dims

    def resolve(self, dim: Dim) -> Dim:
        """``dim`` with every symbol replaced that the equalities determine."""
        if self._solved is None:
            self._solved = self._solve()
        if isinstance(dim, int) or dim.value is None or not self._solved:
            return dim
        found = self._resolved.get(dim.value)
        if found is None:
            expr = expr_of(dim)
            determined = not expr.free_symbols.isdisjoint(self._solved)
            found = dim_of(expr.subs(self._solved)) if determined else dim
            self._resolved[dim.value] = found
        return found

    def _solve(self) -> dict[sympy.Symbol, sympy.Expr]:
        solved: dict[sympy.Symbol, sympy.Expr] = {}
        pending = self._equal
        while True:
            left = []
            for a, b in pending:
                a, b = a.subs(solved), b.subs(solved)
                found = self._isolate(a, b) or self._isolate(b, a)
                if found is None:
                    left.append((a, b))
                    continue
                symbol, expr = found
                solved = {k: v.subs(symbol, expr) for k, v in solved.items()}
                solved[symbol] = expr
            if len(left) == len(pending):
                return solved
            pending = left

    def _isolate(self, a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Symbol, sympy.Expr] | None:
        """A symbol of ours and what it is, if ``a == b`` says so: ``a`` is n * symbol + m.

        Sizes that no run has as 0 are divided out of both.
        """
        minted = [x for x in a.free_symbols if x.name in self._minted]
        if len(minted) != 1 or a == b:
            return None
        symbol, (above, below) = minted[0], sympy.fraction(sympy.cancel(a / b)) if b else (a, b)
        if not self._is_never_zero(sympy.cancel(a / above)):
            above, below = a, b
        number = sympy.expand(above).coeff(symbol)
        rest = sympy.expand(above - number * symbol)
        if number == 0 or rest.has(symbol) or not self._is_never_zero(number):
            return None
        expr = sympy.cancel((below - rest) / number)
        return None if expr.has(symbol) or not expr.is_integer else (symbol, expr)

    def _is_never_zero(self, factor: sympy.Expr) -> bool:
        """Whether what both sides of an equality are divided by is 0 in no run that counts."""
        sizes = self._real if self.usual else self.never_empty
        bases = [x.as_base_exp()[0] for x in sympy.Mul.make_args(factor)]
        return factor != 0 and all(x.is_Number or str(x) in sizes for x in bases)


def _times(spare: sympy.Expr, x: sympy.Expr) -> set[sympy.Expr]:
    """How often ``x`` may be in ``spare``: where the two have a term in common, and once."""
    whole, part = sympy.expand(spare).as_coefficients_dict(), sympy.expand(x).as_coefficients_dict()
    shares = (whole[term] / number for term, number in part.items() if not term.is_number)
    return {sympy.S.One, *(share for share in shares if share > 0)}


@functools.lru_cache(maxsize=4096)
def _is_rounded(spare: sympy.Expr, x: sympy.Expr) -> bool:
    """Whether a whole ``spare`` is at least 0 as ``x`` is at least 1: floor((x + 1) / 2) - 1."""
    if not (spare.is_integer and spare.has(sympy.floor)):
        return False
    least, most = bounded(spare), -bounded(-x)
    apart = (bounded(sympy.expand(least - times * (x - 1))) for times in _times(least, most))
    return any(rest.is_Number and rest > -1 for rest in apart)


def _degree(dim: Dim) -> float:
    """The highest power of a symbol, or of what holds one, in a size; a bound on it, at least."""

    def of(expr: sympy.Expr) -> float:
        if not expr.free_symbols:
            return 0
        if expr.is_Pow:
            power = expr.exp
            return of(expr.base) * float(power) if power.is_Integer else math.inf
        inner = [of(x) for x in expr.args] or [1]
        if not expr.is_Mul:
            return max(inner)
        # Of sizes of different symbols that are multiplied, each keeps its own.
        return max(inner) if _apart(expr.args) else sum(inner)

    return of(expr_of(dim))


def _apart(factors: Iterable[sympy.Expr]) -> bool:
    """Whether no symbol is in two of them."""
    symbols = [x for factor in factors for x in factor.free_symbols]
    return len(symbols) == len(set(symbols))


@contextlib.contextmanager
def learning(
    *graphs: ir.Graph, known: Sequence[sympy.Expr] = (), usual: bool = False
) -> Iterator[Facts]:
    """Let the rules learn about the model with this main graph.

    Args:
        graphs: The graph; and one inside it, where only runs count that run it.
        known: What an earlier inference has learned to be positive.
        usual: Whether only usual runs count: no size is 0 or over a million, no table is read past
            its end.
    """
    facts = Facts(*graphs, known=known, usual=usual)
    token = _current.set(facts)
    try:
        yield facts
    finally:
        _current.reset(token)


def current() -> Facts | None:
    """What is being learned now; None outside of :func:`learning`."""
    return _current.get()

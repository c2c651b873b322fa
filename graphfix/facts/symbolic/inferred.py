"""Facts about one model, collected while its shapes are inferred."""

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
    array_of_exprs,
    dim_of,
    equal_dims,
    expr_of,
    is_capped_by_number,
    is_min_with,
    is_rest_of_table,
    items_of,
    normal_form,
    positive_parts,
    symbols_of,
)
from graphfix.facts.symbolic.signs import lower_bound, never_negative
from graphfix.facts.symbolic.trials import must_be_equal

# Shape tensors are small: what holds more is data.
MAX_SHAPE_ELEMENTS = 64
# Letters of a size that is reckoned with; the longest in a zoo of exports has 119.
MAX_DIM_TEXT = 120
# How often a size may be multiplied with itself. Of a power of a sum sympy looks for the roots: the
# square of a square of a square took minutes. No tensor has as many axes of one size.
MAX_POWER = 6
# How often a size may be compared with what is known to be positive, which takes sympy milliseconds
# each time; the most in a zoo of exports is 358.
MAX_TRIES = 1000
INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)

_current: contextvars.ContextVar[Facts | None] = contextvars.ContextVar("facts", default=None)


class Facts:
    """Facts about one model, collected while its shapes are inferred.

    Attributes:
        contents: What small integer tensors hold, as arrays of expressions. True is 1.
        constant_ints: What constants that were looked at hold, if one integer or a list of them.
        never_empty: Symbols, and sums of them, that are at least 1 in every run that succeeds.
        usual: Whether only usual runs count: no size is 0 or over a million, no table is read past
            its end.
        undecided: Whether the sign of a size was asked for and was not known. What is learned
            further down may tell: another inference, given these facts, knows it from the start.
        doubts: How often something of a size was asked for that was not known.
        carried: For each Loop whose carried values change shape from round to round, their dims
            before and behind the first.
        inner_graphs: Graphs inside, of which more could be learned apart: they might not run.
    """

    def __init__(self, *graphs: ir.Graph, positive: Sequence[sympy.Expr], usual: bool) -> None:
        self.contents: dict[ir.Value, Array] = {}
        self.constant_ints: dict[ir.Value, tuple[int, ...] | None] = {}
        self.undecided = False
        self.doubts = 0
        self.usual = usual
        self.inner_graphs: dict[ir.Graph, None] = {}
        self.carried: dict[ir.Node, list[tuple[Dim, Dim]]] = {}
        self._graphs = graphs
        self._size_symbols: set[str] = set()
        self._positive_exprs = list(positive)
        self.never_empty = {name for expr in self._positive_exprs for name in positive_parts(expr)}
        self._equalities: list[tuple[sympy.Expr, sympy.Expr]] = []
        self._joins: dict[frozenset[str], ir.SymbolicDim] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._minted: set[str] = set()
        self._short_names: dict[str, ir.SymbolicDim] = {}
        self._solution: dict[sympy.Symbol, sympy.Expr] | None = None
        self._resolved_dims: dict[str, Dim] = {}
        self._tries = 0

    def new_unknown(self, ctx: Context) -> sympy.Expr:
        """Return a number of which nothing is known."""
        return expr_of(self._new_unknown_dim(ctx))

    def _new_unknown_dim(self, ctx: Context) -> ir.SymbolicDim:
        dim: ir.SymbolicDim = ctx.new_symbolic_dim()
        self._minted.add(str(dim))
        return dim

    def shorten_dim(self, ctx: Context, dim: Dim) -> Dim:
        """Return ``dim``, or one name for all dims written like it if it is long or steep.

        Sizes of sizes, a Min of floors of Mins, grow with each layer, and what sympy takes to
        compare two grows much faster. Nothing is known of such a name but that it is a size.
        """
        if isinstance(dim, int) or dim.value is None:
            return dim
        if len(dim.value) <= MAX_DIM_TEXT and (
            "**" not in dim.value or _highest_power(dim) <= MAX_POWER
        ):
            return dim
        if dim.value not in self._short_names:
            self._short_names[dim.value] = ctx.new_symbolic_dim()
        return self._short_names[dim.value]

    def broadcast_dim(self, ctx: Context, a: Dim, b: Dim) -> Dim:
        """Return the dim that ``a`` and ``b`` broadcast to.

        That of two different symbols is a third: each may be 1 where the other is not.
        """
        if a == 1 or equal_dims(a, b):
            return b
        if b == 1 or isinstance(a, int):
            return a
        if isinstance(b, int):
            return b
        for lhs, rhs in ((a, b), (b, a)):
            if is_capped_by_number(rhs, lhs) or is_min_with(rhs, lhs) or is_rest_of_table(rhs, lhs):
                return lhs
        if self.usual and must_be_equal(expr_of(a), expr_of(b)):
            return min(a, b, key=lambda dim: len(str(dim)))
        parts = frozenset.union(*(self._parts.get(str(x), frozenset([str(x)])) for x in (a, b)))
        joined = self._joins.get(parts)
        if joined is None:
            joined = self._joins[parts] = ctx.new_symbolic_dim()
            self._parts[str(joined)] = parts
            self._minted.add(str(joined))
        return joined

    def must_fill_broadcast(self, node: ir.Node, a: Dim, b: Dim) -> None:
        """Note that ``Min(N, b)``, where ``node`` broadcasts it with ``b``, is all of that."""
        for full, partial in ((a, b), (b, a)):
            if (
                isinstance(full, int)
                or isinstance(partial, int)
                or not is_capped_by_number(partial, full)
            ):
                continue
            most = max((x for x in expr_of(partial).atoms(sympy.Integer)), default=0)
            size = expr_of(full)
            terms = sympy.Add.make_args(size)
            parts = terms if all(x.is_nonnegative for x in terms) else ()
            for part in dict.fromkeys((size, *parts)):
                self.must_be_positive(node, most - part + 1)

    def must_equal(self, node: ir.Node, a: sympy.Expr, b: sympy.Expr) -> None:
        """Note that ``node`` fails unless ``a`` is ``b``; a branch might not be run at all."""
        if a != b and self._always_runs(node):
            self._equalities.append((a, b))

    def must_be_positive(self, node: ir.Node, expr: sympy.Expr) -> None:
        """Note that ``node`` fails unless ``expr`` is at least 1."""
        if not expr.is_Integer and expr not in self._positive_exprs and self._always_runs(node):
            self._positive_exprs.append(expr)
            self.never_empty |= positive_parts(expr)

    def _always_runs(self, node: ir.Node) -> bool:
        if node.graph not in self._graphs and isinstance(node.graph, ir.Graph):
            self.inner_graphs[node.graph] = None
        return node.graph in self._graphs

    def is_of_sizes(self, ctx: Context, expr: sympy.Expr) -> bool:
        """Return whether all symbols are sizes of tensors, not unknown numbers, maybe negative."""
        names = (x.name for x in expr.free_symbols)
        are_sizes = all(x in self._size_symbols or not ctx.is_generated_symbol(x) for x in names)
        self.doubts += not are_sizes
        return are_sizes

    @property
    def knowledge(self) -> tuple[int, int]:
        """How much is known of sizes: what was in doubt stays so until this changes."""
        return len(self._positive_exprs), len(self._size_symbols)

    @property
    def lasting_positives(self) -> list[sympy.Expr]:
        """Expressions that are positive in another inference too, as they name only input dims.

        The symbols of the inputs are the same there; new symbols are numbered in the order in which
        they are needed.
        """
        shapes = (x.shape or () for x in self._graphs[0].inputs)
        names = {name for shape in shapes for dim in shape for name in symbols_of(dim)}
        return [x for x in self._positive_exprs if names.issuperset(map(str, x.free_symbols))]

    def is_at_least(self, ctx: Context, expr: sympy.Expr, least: int) -> bool:
        """Return whether ``expr`` is at least ``least`` in every run that succeeds."""
        if expr.is_Integer:
            return bool(expr >= least)
        if not self.is_of_sizes(ctx, expr):
            return False
        spare = normal_form(expr - least)
        proved = never_negative(spare) or self._follows_from_positives(spare)
        self.undecided |= not proved
        self.doubts += not proved
        return proved

    def _follows_from_positives(self, spare: sympy.Expr) -> bool:
        """Return whether ``spare`` is at least 0 since something else is at least 1.

        After many tries the answer is no, which is always safe.
        """
        symbols = spare.free_symbols
        for x in self._positive_exprs:
            # What is taken away may only go where all of its symbols are.
            if self._tries >= MAX_TRIES or not x.free_symbols <= symbols:
                continue
            self._tries += 1
            if any(
                never_negative(normal_form(spare - times * (x - 1)))
                for times in _possible_multiples(spare, x)
            ):
                return True
            if _follows_after_rounding(spare, x):
                return True
        return False

    def read_contents(self, ctx: Context, value: ir.Value | None) -> Array | None:
        """Return what ``value`` holds, if small and known; fractions of sizes, if of floats."""
        if value is None or value.dtype not in (*INTEGERS, *FLOATS):
            return None
        if value in self.contents:
            return self.contents[value]
        if _is_constant(value):
            array = _constant_contents(value)
            if array is not None:
                self.contents[value] = array
            return array
        symbolic = ctx.get_symbolic_value(value) if value.dtype in INTEGERS else None
        if symbolic is None or value.shape is None or len(value.shape) > 1:
            return None
        return array_of_exprs([expr_of(x) for x in symbolic], [len(symbolic)] * len(value.shape))

    def elements_or_unknowns(self, ctx: Context, value: ir.Value | None) -> Array | None:
        """Return what a shape tensor holds, with new unknowns where only their number is known."""
        contents = self.read_contents(ctx, value)
        if contents is not None:
            return contents
        if value is None or value.shape is None or len(value.shape) != 1:
            return None
        length = value.shape[0]
        if not isinstance(length, int) or length > MAX_SHAPE_ELEMENTS:
            return None
        return array_of_exprs([self.new_unknown(ctx) for _ in range(length)], [length])

    def write_contents(self, ctx: Context, value: ir.Value, array: Array | None) -> None:
        """Set what ``value`` holds; if None, also take back what the library thought."""
        value.const_value = None
        self.contents.pop(value, None)
        if array is None or array.size > MAX_SHAPE_ELEMENTS:
            guess = ctx.get_symbolic_value(value)
            if guess is not None:
                # Hundreds of them in a table: no expression is made of a name that nobody reads.
                ctx.set_symbolic_value(value, [self._new_unknown_dim(ctx) for _ in guess])
            return
        items = self._without_overflow(ctx, items_of(array), value.dtype)
        dims = [dim_of(x) for x in items]
        short = [self.shorten_dim(ctx, x) for x in dims]
        if short != dims or any(x is not y for x, y in zip(items, array.flat, strict=True)):
            array = array_of_exprs([expr_of(x) for x in short], array.shape)
        self.contents[value] = array
        if value.shape is None:
            value.shape = ir.Shape(array.shape)
        ctx.set_symbolic_value(value, short)

    def _without_overflow(
        self, ctx: Context, exprs: Sequence[sympy.Expr], dtype: ir.DataType | None
    ) -> list[sympy.Expr]:
        """Replace numbers beyond their type, which start again from its other end, by unknowns."""
        bits = 31 if dtype == ir.DataType.INT32 else 63
        low, high = -(1 << bits), 1 << bits
        return [self.new_unknown(ctx) if x.is_Integer and not low <= x < high else x for x in exprs]

    def write_float_contents(self, value: ir.Value, array: Array | None) -> None:
        """Keep what a float tensor holds; the library is not told, it knows only integers."""
        if array is not None and array.size <= MAX_SHAPE_ELEMENTS:
            self.contents[value] = array

    def dims_as_sizes(self, shape: ir.Shape) -> list[sympy.Expr]:
        """Return the dims of a tensor, as expressions that are known to be sizes."""
        dims = [expr_of(x) for x in shape]
        self._size_symbols.update(x.name for expr in dims for x in expr.free_symbols)
        return dims

    def resolve_dim(self, dim: Dim) -> Dim:
        """Return ``dim`` with every symbol replaced that the equalities determine."""
        if self._solution is None:
            self._solution = self._solve_equalities()
        if isinstance(dim, int) or dim.value is None or not self._solution:
            return dim
        resolved = self._resolved_dims.get(dim.value)
        if resolved is None:
            expr = expr_of(dim)
            determined = not expr.free_symbols.isdisjoint(self._solution)
            resolved = dim_of(expr.subs(self._solution)) if determined else dim
            self._resolved_dims[dim.value] = resolved
        return resolved

    def _solve_equalities(self) -> dict[sympy.Symbol, sympy.Expr]:
        solved: dict[sympy.Symbol, sympy.Expr] = {}
        pending = self._equalities
        while True:
            unsolved = []
            for a, b in pending:
                a, b = a.subs(solved), b.subs(solved)
                solution = self._isolate_symbol(a, b) or self._isolate_symbol(b, a)
                if solution is None:
                    unsolved.append((a, b))
                    continue
                symbol, expr = solution
                solved = {k: v.subs(symbol, expr) for k, v in solved.items()}
                solved[symbol] = expr
            if len(unsolved) == len(pending):
                return solved
            pending = unsolved

    def _isolate_symbol(
        self, a: sympy.Expr, b: sympy.Expr
    ) -> tuple[sympy.Symbol, sympy.Expr] | None:
        """Return a new symbol and its value if ``a == b`` determines it: ``a`` is n * symbol + m.

        Sizes that no run has as 0 are divided out of both.
        """
        minted = [x for x in a.free_symbols if x.name in self._minted]
        if len(minted) != 1 or a == b:
            return None
        symbol, (numerator, denominator) = (
            minted[0],
            sympy.fraction(sympy.cancel(a / b)) if b else (a, b),
        )
        if not self._is_never_zero(sympy.cancel(a / numerator)):
            numerator, denominator = a, b
        number = sympy.expand(numerator).coeff(symbol)
        remainder = sympy.expand(numerator - number * symbol)
        if number == 0 or remainder.has(symbol) or not self._is_never_zero(number):
            return None
        expr = sympy.cancel((denominator - remainder) / number)
        return None if expr.has(symbol) or not expr.is_integer else (symbol, expr)

    def _is_never_zero(self, factor: sympy.Expr) -> bool:
        """Return whether the common divisor of an equality is 0 in no run that counts."""
        sizes = self._size_symbols if self.usual else self.never_empty
        bases = [x.as_base_exp()[0] for x in sympy.Mul.make_args(factor)]
        return factor != 0 and all(x.is_Number or str(x) in sizes for x in bases)


def _is_constant(value: ir.Value) -> bool:
    """Return whether the file says what a value holds, and no caller may override it."""
    node = value.producer()
    is_stored = value.is_initializer() or (node is not None and node.op_type == "Constant")
    return is_stored and not value.is_graph_input()


def _constant_contents(value: ir.Value) -> Array | None:
    """Return what a small constant holds; None if it is large, or not finite."""
    tensor = value.const_value
    if tensor is None:  # a Constant by another attribute than "value"
        tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size > MAX_SHAPE_ELEMENTS:
        return None
    numbers = tensor.numpy()
    if value.dtype not in FLOATS:
        items = [sympy.Integer(int(x)) for x in numbers.flat]
    elif np.isfinite(numbers).all():
        items = [sympy.Rational(Fraction(float(x))) for x in numbers.flat]
    else:
        return None
    return array_of_exprs(items, list(tensor.shape))


def _possible_multiples(spare: sympy.Expr, x: sympy.Expr) -> set[sympy.Expr]:
    """Return how often ``x`` may be in ``spare``: as in a term they share, and once."""
    spare_terms, x_terms = (
        sympy.expand(spare).as_coefficients_dict(),
        sympy.expand(x).as_coefficients_dict(),
    )
    shares = (spare_terms[term] / number for term, number in x_terms.items() if not term.is_number)
    return {sympy.S.One, *(share for share in shares if share > 0)}


@functools.lru_cache(maxsize=4096)
def _follows_after_rounding(spare: sympy.Expr, x: sympy.Expr) -> bool:
    """Return whether whole ``spare`` is at least 0 as ``x`` is at least 1."""
    if not (spare.is_integer and spare.has(sympy.floor)):
        return False
    least, most = lower_bound(spare), -lower_bound(-x)
    gaps = (
        lower_bound(sympy.expand(least - times * (x - 1)))
        for times in _possible_multiples(least, most)
    )
    return any(gap.is_Number and gap > -1 for gap in gaps)


def _highest_power(dim: Dim) -> float:
    """Return the highest power of a symbol, or of what holds one, in a size, or more."""

    def power_of(expr: sympy.Expr) -> float:
        if not expr.free_symbols:
            return 0
        if expr.is_Pow:
            power = expr.exp
            return power_of(expr.base) * float(power) if power.is_Integer else math.inf
        inner = [power_of(x) for x in expr.args] or [1]
        if not expr.is_Mul:
            return max(inner)
        # Of sizes of different symbols that are multiplied, each keeps its own.
        return max(inner) if _share_no_symbol(expr.args) else sum(inner)

    return power_of(expr_of(dim))


def _share_no_symbol(factors: Iterable[sympy.Expr]) -> bool:
    """Return whether no symbol is in two of the factors."""
    symbols = [x for factor in factors for x in factor.free_symbols]
    return len(symbols) == len(set(symbols))


@contextlib.contextmanager
def collect_facts(
    *graphs: ir.Graph, positive: Sequence[sympy.Expr] = (), usual: bool = False
) -> Iterator[Facts]:
    """Let the rules learn facts about the model with this main graph.

    Args:
        graphs: The graph; and one inside it, where only runs count that run it.
        positive: What an earlier inference has learned to be positive.
        usual: Whether only usual runs count: no size is 0 or over a million, no table is read past
            its end.
    """
    facts = Facts(*graphs, positive=positive, usual=usual)
    token = _current.set(facts)
    try:
        yield facts
    finally:
        _current.reset(token)


def current_facts() -> Facts | None:
    """Return the facts that are being collected now; None outside of :func:`collect_facts`."""
    return _current.get()

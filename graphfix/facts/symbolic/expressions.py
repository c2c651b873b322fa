"""Dims as expressions: the arithmetic of sizes, and when two of them are equal."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

# No public name parses the text of a SymbolicDim.
from onnx_shape_inference._symbolic_shapes import parse_symbolic_expression
from sympy.printing.str import StrPrinter

from graphfix.facts.symbolic.signs import never_negative

Array = npt.NDArray[np.object_]
"""Expressions in the shape of the tensor that holds them."""
Ints = npt.NDArray[np.int64]

Dim = int | ir.SymbolicDim


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> sympy.Expr:
    expr = parse_symbolic_expression(_without_ceiling(text))
    return settled(expr) if "(" in text else expr


def _without_ceiling(text: str) -> str:
    """``ceiling(x)`` as ``-floor(-x)``: the library writes the one and reads only the other."""
    while (start := text.find("ceiling(")) >= 0:
        first = end = start + len("ceiling(")
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = f"{text[:start]}(-floor(-({text[first : end - 1]}))){text[end:]}"
    return text


@functools.lru_cache(maxsize=1 << 14)
def settled(expr: sympy.Expr) -> sympy.Expr:
    """Equal sizes in one form: no Mod, no whole number outside a floor, no floor of -x.

    So ``floor((x - 1) / 2) + 1`` is ``floor((x + 1) / 2)``, and x filled up to a multiple of 4,
    ``x + Mod(-x, 4)``, is ``4 * floor((x + 3) / 4)``, and
    ``Max(0, 5 - x)`` is ``Max(0, x - 5) + 5 - x``.
    """
    expr = expr.replace(lambda x: isinstance(x, sympy.Mod), _without_mod)
    expr = expr.replace(lambda x: isinstance(x, sympy.floor), _in_range)
    if expr.count(sympy.floor) > 1:
        expr = expr.replace(lambda x: isinstance(x, sympy.floor), _unnested)
    if expr.has(sympy.Max) or expr.has(sympy.Min):
        expr = expr.replace(lambda x: isinstance(x, sympy.Max | sympy.Min), _decided)
    return expr


@functools.lru_cache(maxsize=1 << 14)
def _decided(extreme: sympy.Expr) -> sympy.Expr:
    """A Max or Min without what another argument is never less, or more, than.

    Of the two that an expression and 0 have on either side, only one: that of its positive terms.
    """
    sign = 1 if isinstance(extreme, sympy.Max) else -1
    left = list(extreme.args)
    for one in extreme.args:
        if any(x is not one and never_negative(sign * (x - one)) for x in left):
            left.remove(one)
    if len(left) == 2 and 0 in left:
        rest = next(x for x in left if x != 0)
        if sign < 0:  # Min(0, x) is x - Max(0, x), and that -Max(0, -x)
            return rest - _decided(sympy.Max(0, rest))
        if rest.as_coeff_Add()[1].could_extract_minus_sign():
            return sympy.Max(0, sympy.expand(-rest)) + rest
    return extreme.func(*left) if left else extreme


def _without_mod(mod: sympy.Expr) -> sympy.Expr:
    x, divisor = mod.args
    if not divisor.is_Integer or divisor < 1:
        return mod
    number, rest = sympy.expand(x).as_coeff_Mul()
    if number.is_Integer and 2 * (number % divisor) > divisor:
        x = (number % divisor - divisor) * rest
    return x - divisor * sympy.floor(sympy.expand(x / divisor))


@functools.lru_cache(maxsize=1 << 14)
def _in_range(floor: sympy.Expr) -> sympy.Expr:
    above, below = sympy.fraction(sympy.together(settled(floor.args[0])))
    if not below.is_Integer:
        return floor
    above = sympy.expand(above)
    number, rest = above.as_coeff_Add()
    turned = rest.could_extract_minus_sign()
    if turned:  # floor(-p / q) is -floor((p + q - 1) / q)
        number = -number + below - 1
        above = sympy.expand(number - rest)
    whole = sympy.floor(number / below) if number.is_Rational else 0
    found = sympy.floor(sympy.expand(above - whole * below) / below) + whole
    return -found if turned else found


@functools.lru_cache(maxsize=1 << 14)
def _unnested(outer: sympy.Expr) -> sympy.Expr:
    """``floor((floor(x) + m) / n)`` as ``floor((x + m) / n)``, which is the same."""
    above, below = sympy.fraction(sympy.together(outer.args[0]))
    if not below.is_Integer:
        return outer
    for term in sympy.Add.make_args(sympy.expand(above)):
        if isinstance(term, sympy.floor):
            return sympy.floor(sympy.expand((above - term + term.args[0]) / below))
    return outer


def expr_of(dim: Dim) -> sympy.Expr:
    """A dim as an expression."""
    return sympy.Integer(dim) if isinstance(dim, int) else _parsed(str(dim))


def dim_of(expr: sympy.Expr) -> Dim:
    """An expression as a dim: one object for all that are equal, since each is parsed when used."""
    return int(expr) if expr.is_Integer else _symbolic(expr)


class _Printer(StrPrinter):  # type: ignore[misc]
    """``-x**2`` as ``-1*x**2``: the library reads the one as ``(-x)**2``."""

    def _print_Mul(self, expr: sympy.Mul) -> str:  # noqa: N802
        text = str(super()._print_Mul(expr))
        return f"-1*{text[1:]}" if text[:1] == "-" and not text[1:2].isdigit() else text


# sympy sorts its terms to print them, and the layers of a model have the same few dims.
_text: Callable[[sympy.Expr], str] = functools.lru_cache(maxsize=4096)(_Printer().doprint)


@functools.lru_cache(maxsize=1 << 14)
def _symbolic(expr: sympy.Expr) -> ir.SymbolicDim:
    return ir.SymbolicDim(_text(expr))


def symbols_of(dim: Dim) -> frozenset[str]:
    """The names in a dim: its own, or those of its expression if it is one."""
    return frozenset() if isinstance(dim, int) or dim.value is None else _names_in(dim.value)


# sympy prints each symbol to say its name, and every tensor has the same few dims.
@functools.lru_cache(maxsize=1 << 14)
def _names_in(text: str) -> frozenset[str]:
    try:
        free = parse_symbolic_expression(_without_ceiling(text)).free_symbols
        return frozenset(x.name for x in free)
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return frozenset([text])


def without(dim: Dim, names: Iterable[str]) -> Dim:
    """A dim where the sizes of these names are 0: what is left of it if they cancel."""
    zeros = {x: 0 for x in expr_of(dim).free_symbols if x.name in set(names)}
    return dim_of(settled(expr_of(dim).subs(zeros))) if zeros else dim


def replaced(dim: Dim, by: Mapping[str, Dim]) -> Dim:
    """A dim with other expressions for some of its symbols."""
    if symbols_of(dim).isdisjoint(by):
        return dim
    expr = expr_of(dim)
    new = {x: expr_of(by[x.name]) for x in expr.free_symbols if x.name in by}
    return dim_of(settled(expr.subs(new)))


def is_positive(dim: Dim, known: frozenset[str]) -> bool:
    """Whether a dim is at least 1 if all that ``known`` names is: symbols, and sums of them."""
    number, factors = _factors(expr_of(dim))
    return bool(number > 0) and all(_is_positive(x, known) for x in factors)


def _is_positive(factor: sympy.Expr, known: frozenset[str]) -> bool:
    if _text(factor) in known:
        return True
    terms = [_factors(x) for x in factor.args] if isinstance(factor, sympy.Add) else []
    sizes = all(n > 0 and all(isinstance(x, sympy.Symbol) for x in rest) for n, rest in terms)
    return sizes and any(all(x.name in known for x in rest) for _, rest in terms)


def positive_parts(expr: sympy.Expr) -> frozenset[str]:
    """The symbols and sums that are at least 1 if ``expr``, a product of sizes, is."""
    _, factors = _factors(expr)
    sums = [x for x in factors if not isinstance(x, sympy.Symbol)]
    return frozenset(_text(x) for x in factors if len(sums) < 2 or x not in sums)


def _factors(expr: sympy.Expr) -> tuple[sympy.Rational, list[sympy.Expr]]:
    """A number, and what it is multiplied with: ``8*a + 8*b`` is 8 and ``a + b``."""
    number, rest = expr.as_content_primitive()
    return number, [sympy.expand(x) for x in sympy.Mul.make_args(rest) if x != 1]


def times(a: Dim, b: Dim) -> Dim:
    """The product of two dims."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1 or b == 1:
        return b if a == 1 else a
    return _times(*sorted((str(a), str(b))))


def product(dims: Iterable[Dim]) -> Dim:
    """All of ``dims``, multiplied."""
    return functools.reduce(times, [1, *dims])


def quotient(a: Dim, b: Dim) -> Dim | None:
    """``a / b``, if that is a size whatever the sizes of the inputs are; None if it is not seen."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    return 1 if equal(a, b) else _quotient(str(a), str(b))


@functools.lru_cache(maxsize=4096)
def _times(a: str, b: str) -> Dim:
    try:
        return dim_of(sympy.expand(_parsed(a) * _parsed(b)))
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return ir.SymbolicDim(None)


@functools.lru_cache(maxsize=4096)
def _quotient(a: str, b: str) -> Dim | None:
    try:
        first, second = _parsed(a), _parsed(b)
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return None
    above, below = sympy.fraction(sympy.cancel(first / second))
    return dim_of(above) if below == 1 else None


def equal(a: Dim, b: Dim) -> bool:
    """Whether two dims are equal for all positive sizes of the inputs."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    if a.value is None or b.value is None:
        return False
    return a.value == b.value or _equal_text(a.value, b.value)


@functools.lru_cache(maxsize=4096)
def _equal_text(a: str, b: str) -> bool:
    try:
        first, second = _parsed(a), _parsed(b)
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return False
    if first.free_symbols != second.free_symbols:
        return False
    apart = sympy.expand(first - second)
    if apart.is_polynomial(*apart.free_symbols):
        return bool(apart == 0)
    # Sizes at which they differ are found at once, and simplify takes up to a second.
    if any(apart.subs(sizes).is_zero is False for sizes in _tried(apart.free_symbols)):
        return False
    return bool(sympy.simplify(apart) == 0)


def _tried(symbols: Iterable[sympy.Symbol]) -> Iterator[dict[sympy.Symbol, int]]:
    """Some sizes: small and large, each another for each symbol."""
    order = sorted(symbols, key=str)
    for least, step in ((5, 3), (1000, 37)):
        yield {x: least + step * i for i, x in enumerate(order)}


def evaluator(dim: Dim) -> Callable[[Mapping[str, Ints]], Ints]:
    """What computes a dim for many sizes of its symbols at once, by their names.

    Raises:
        ValueError: Its name is none that an expression can hold.
    """
    names, compute = _compiled(str(dim))

    def at(sizes: Mapping[str, Ints]) -> Ints:
        # In floats: an end such as the greatest int64 and 1 is no number of numpy's integers.
        given = (np.asarray(sizes[x], np.float64) for x in names)
        return np.round(compute(*given)).astype(np.int64)

    return at


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> tuple[tuple[str, ...], Callable[..., npt.NDArray[np.float64]]]:
    symbols = sorted(_parsed(text).free_symbols, key=str)
    return tuple(map(str, symbols)), sympy.lambdify(
        # ``T/3 + 2/3`` is 34 where T is 100, also in floats.
        symbols,
        _parsed(text),
        [{"floor": lambda x: np.floor(x + 1e-6)}, "numpy"],
        dummify=True,
    )


def key_of(dim: Dim) -> int | str | None:
    """What all dims that are seen to be equal share; None for a dim that is not known."""
    if isinstance(dim, int) or dim.value is None:
        return dim if isinstance(dim, int) else None
    return _key_of_text(dim.value)


@functools.lru_cache(maxsize=4096)
def _key_of_text(text: str) -> int | str:
    if text.isidentifier():
        return text
    try:
        expr = sympy.expand(_parsed(text))
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return text
    return int(expr) if expr.is_Integer else _text(expr)


def is_at_most(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether ``a`` is ``b`` or a number of at least 2, whichever is less: 1 only if ``b`` is."""
    expr = expr_of(a)
    if isinstance(expr, sympy.Max) and len(expr.args) == 2 and expr.args[0] == 0:
        expr = expr.args[1]
    if not isinstance(expr, sympy.Min):
        return False
    return all(x == expr_of(b) or (x.is_Integer and x >= 2) for x in expr.args)


def is_part(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether ``a`` is ``b`` or other sizes, whichever is least: all of it, or 1 beside it."""
    expr = expr_of(a)
    return isinstance(expr, sympy.Min) and expr_of(b) in expr.args


def is_rest_of_table(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether ``a`` is ``Min(N, start + b) - start``: what ``b`` more rows of a table of N are."""
    expr = expr_of(a)
    for most in expr.atoms(sympy.Max):  # Max(0, x), or x + Max(0, -x), as sympy likes it
        inner = expr - most if most != expr else most.args[-1]
        if settled(sympy.Max(0, inner) - expr) == 0:
            expr = inner
    ends = [x for x in sympy.Add.make_args(expr) if isinstance(x, sympy.Min)]
    if len(ends) != 1 or not any(x.is_Integer and x >= 2 for x in ends[0].args):
        return False
    return all(x.is_Integer or settled(x - (ends[0] - expr)) == expr_of(b) for x in ends[0].args)


def array_of(items: Sequence[sympy.Expr], shape: Sequence[object]) -> Array:
    """``items`` as an array of that shape, in order."""
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array.reshape([int(str(x)) for x in shape])


def items_of(array: Array) -> list[sympy.Expr]:
    """What an array holds, in order."""
    return list(array.flat)


def whole_numbers(array: Array | None) -> list[int] | None:
    """The numbers in ``array``, if it holds nothing else."""
    items = None if array is None else items_of(array)
    return None if items is None or not all(x.is_Integer for x in items) else [*map(int, items)]


def truth(decided: bool) -> sympy.Expr:
    """1 for True, 0 for False, as a tensor of booleans holds them here."""
    return sympy.Integer(int(decided))

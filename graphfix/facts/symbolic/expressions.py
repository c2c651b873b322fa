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

# What is asked again soon: the layers of a model have the same few sizes.
_keep_results = functools.lru_cache(maxsize=16384)


@_keep_results
def _parse_text(text: str) -> sympy.Expr:
    expr = parse_symbolic_expression(_without_ceiling(text))
    return normal_form(expr) if "(" in text else expr


def _without_ceiling(text: str) -> str:
    """Rewrite ``ceiling(x)`` as ``-floor(-x)``, the one form that the library also reads."""
    while (start := text.find("ceiling(")) >= 0:
        first = end = start + len("ceiling(")
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = f"{text[:start]}(-floor(-({text[first : end - 1]}))){text[end:]}"
    return text


@_keep_results
def normal_form(expr: sympy.Expr) -> sympy.Expr:
    """Rewrite equal sizes into one form: no Mod, no whole number outside a floor, no floor of -x.

    So ``floor((x - 1) / 2) + 1`` is ``floor((x + 1) / 2)``, and x filled up to a multiple of 4,
    ``x + Mod(-x, 4)``, is ``4 * floor((x + 3) / 4)``, and
    ``Max(0, 5 - x)`` is ``Max(0, x - 5) + 5 - x``.
    """
    expr = expr.replace(lambda x: isinstance(x, sympy.Mod), _without_mod)
    expr = expr.replace(lambda x: isinstance(x, sympy.floor), _normalize_floor)
    if expr.count(sympy.floor) > 1:
        expr = expr.replace(lambda x: isinstance(x, sympy.floor), _merge_nested_floor)
    if expr.has(sympy.Max) or expr.has(sympy.Min):
        expr = expr.replace(lambda x: isinstance(x, sympy.Max | sympy.Min), _simplify_extreme)
    return expr


@_keep_results
def _simplify_extreme(extreme: sympy.Expr) -> sympy.Expr:
    """Drop from a Max or Min what another argument is never less, or more, than.

    Of the two that an expression and 0 have on either side, only one: that of its positive terms.
    """
    sign = 1 if isinstance(extreme, sympy.Max) else -1
    remaining = list(extreme.args)
    for argument in extreme.args:
        if any(x is not argument and never_negative(sign * (x - argument)) for x in remaining):
            remaining.remove(argument)
    if len(remaining) == 2 and 0 in remaining:
        nonzero = next(x for x in remaining if x != 0)
        if sign < 0:  # Min(0, x) is x - Max(0, x), and that -Max(0, -x)
            return nonzero - _simplify_extreme(sympy.Max(0, nonzero))
        if nonzero.as_coeff_Add()[1].could_extract_minus_sign():
            return sympy.Max(0, sympy.expand(-nonzero)) + nonzero
    return extreme.func(*remaining) if remaining else extreme


def _without_mod(mod: sympy.Expr) -> sympy.Expr:
    x, divisor = mod.args
    if not divisor.is_Integer or divisor < 1:
        return mod
    number, variable_part = sympy.expand(x).as_coeff_Mul()
    if number.is_Integer and 2 * (number % divisor) > divisor:
        x = (number % divisor - divisor) * variable_part
    return x - divisor * sympy.floor(sympy.expand(x / divisor))


@_keep_results
def _normalize_floor(floor: sympy.Expr) -> sympy.Expr:
    numerator, denominator = sympy.fraction(sympy.together(normal_form(floor.args[0])))
    if not denominator.is_Integer:
        return floor
    numerator = sympy.expand(numerator)
    number, variable_part = numerator.as_coeff_Add()
    is_negated = variable_part.could_extract_minus_sign()
    if is_negated:  # floor(-p / q) is -floor((p + q - 1) / q)
        number = -number + denominator - 1
        numerator = sympy.expand(number - variable_part)
    whole_part = sympy.floor(number / denominator) if number.is_Rational else 0
    result = (
        sympy.floor(sympy.expand(numerator - whole_part * denominator) / denominator) + whole_part
    )
    return -result if is_negated else result


@_keep_results
def _merge_nested_floor(outer: sympy.Expr) -> sympy.Expr:
    """Rewrite ``floor((floor(x) + m) / n)`` as ``floor((x + m) / n)``, which is the same."""
    numerator, denominator = sympy.fraction(sympy.together(outer.args[0]))
    if not denominator.is_Integer:
        return outer
    for term in sympy.Add.make_args(sympy.expand(numerator)):
        if isinstance(term, sympy.floor):
            return sympy.floor(sympy.expand((numerator - term + term.args[0]) / denominator))
    return outer


def expr_of(dim: Dim) -> sympy.Expr:
    """Return a dim as an expression."""
    return sympy.Integer(dim) if isinstance(dim, int) else _parse_text(str(dim))


def dim_of(expr: sympy.Expr) -> Dim:
    """Return an expression as a dim; equal ones share an object, since each is parsed when used."""
    return int(expr) if expr.is_Integer else _symbolic_dim(expr)


class _Printer(StrPrinter):  # type: ignore[misc]
    """Prints ``-x**2`` as ``-1*x**2``: the library reads the one as ``(-x)**2``."""

    def _print_Mul(self, expr: sympy.Mul) -> str:  # noqa: N802
        text = str(super()._print_Mul(expr))
        return f"-1*{text[1:]}" if text[:1] == "-" and not text[1:2].isdigit() else text


# sympy sorts its terms to print them, and the layers of a model have the same few dims.
_text: Callable[[sympy.Expr], str] = _keep_results(_Printer().doprint)


@_keep_results
def _symbolic_dim(expr: sympy.Expr) -> ir.SymbolicDim:
    return ir.SymbolicDim(_text(expr))


def symbols_of(dim: Dim) -> frozenset[str]:
    """Return the names in a dim: its own, or those of its expression if it is one."""
    return frozenset() if isinstance(dim, int) or dim.value is None else _names_in(dim.value)


# sympy prints each symbol to say its name, and every tensor has the same few dims.
@_keep_results
def _names_in(text: str) -> frozenset[str]:
    try:
        free = parse_symbolic_expression(_without_ceiling(text)).free_symbols
        return frozenset(x.name for x in free)
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return frozenset([text])


def with_zero_sizes(dim: Dim, names: Iterable[str]) -> Dim:
    """Return a dim with the sizes of these names set to 0."""
    zeros = {x: 0 for x in expr_of(dim).free_symbols if x.name in set(names)}
    return dim_of(normal_form(expr_of(dim).subs(zeros))) if zeros else dim


def replace_symbols(dim: Dim, replacements: Mapping[str, Dim]) -> Dim:
    """Return a dim with some of its symbols replaced by dims."""
    if symbols_of(dim).isdisjoint(replacements):
        return dim
    expr = expr_of(dim)
    new = {x: expr_of(replacements[x.name]) for x in expr.free_symbols if x.name in replacements}
    return dim_of(normal_form(expr.subs(new)))


def is_positive(dim: Dim, known: frozenset[str]) -> bool:
    """Return whether a dim is at least 1 if the symbols and sums that ``known`` names are."""
    number, factors = _split_factors(expr_of(dim))
    return bool(number > 0) and all(_is_positive_factor(x, known) for x in factors)


def _is_positive_factor(factor: sympy.Expr, known: frozenset[str]) -> bool:
    if _text(factor) in known:
        return True
    terms = [_split_factors(x) for x in factor.args] if isinstance(factor, sympy.Add) else []
    sizes = all(n > 0 and all(isinstance(x, sympy.Symbol) for x in parts) for n, parts in terms)
    return sizes and any(all(x.name in known for x in parts) for _, parts in terms)


def positive_parts(expr: sympy.Expr) -> frozenset[str]:
    """Return the symbols and sums that are at least 1 if ``expr``, a product of sizes, is."""
    _, factors = _split_factors(expr)
    sums = [x for x in factors if not isinstance(x, sympy.Symbol)]
    return frozenset(_text(x) for x in factors if len(sums) < 2 or x not in sums)


def _split_factors(expr: sympy.Expr) -> tuple[sympy.Rational, list[sympy.Expr]]:
    """Split off the number of a product: ``8*a + 8*b`` is 8 and ``a + b``."""
    number, primitive = expr.as_content_primitive()
    return number, [sympy.expand(x) for x in sympy.Mul.make_args(primitive) if x != 1]


def multiply_dims(a: Dim, b: Dim) -> Dim:
    """Return the product of two dims."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1 or b == 1:
        return b if a == 1 else a
    if _is_unknown(a) or _is_unknown(b):
        return ir.SymbolicDim(None)
    return _multiply_texts(*sorted((str(a), str(b))))


def product_of_dims(dims: Iterable[Dim]) -> Dim:
    """Return the product of all ``dims``."""
    return functools.reduce(multiply_dims, [1, *dims])


def divide_dims(a: Dim, b: Dim) -> Dim | None:
    """Return ``a / b``, if that is a size whatever the inputs are; None if it is not seen."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if _is_unknown(a) or _is_unknown(b):
        return None
    return 1 if equal_dims(a, b) else _divide_texts(str(a), str(b))


def _is_unknown(dim: Dim) -> bool:
    return not isinstance(dim, int) and dim.value is None


@_keep_results
def _multiply_texts(a: str, b: str) -> Dim:
    try:
        return dim_of(sympy.expand(_parse_text(a) * _parse_text(b)))
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return ir.SymbolicDim(None)


@_keep_results
def _divide_texts(a: str, b: str) -> Dim | None:
    try:
        first, second = _parse_text(a), _parse_text(b)
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return None
    numerator, denominator = sympy.fraction(sympy.cancel(first / second))
    return dim_of(numerator) if denominator == 1 else None


def rounded_down(dim: Dim, unit: int) -> Dim:
    """Return the largest multiple of ``unit`` that is not above a dim."""
    return dim_of(normal_form(unit * sympy.floor(expr_of(dim) / unit)))


def without_common_factors(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Return two sizes without the factors that they share, none of which is 0."""
    if isinstance(a, int) or isinstance(b, int):
        return a, b
    above, below = sympy.fraction(sympy.together(sympy.cancel(expr_of(a) / expr_of(b))))
    return dim_of(sympy.expand(above)), dim_of(sympy.expand(below))


def linear_solution(a: Dim, b: Dim) -> int | None:
    """Return the size of the only symbol at which two dims are equal, if they lie on a line.

    -1 where no size does it; None where the dims are no line, or always equal.
    """
    difference = sympy.expand(expr_of(a) - expr_of(b))
    symbols = list(difference.free_symbols)
    if len(symbols) != 1 or not difference.is_polynomial(symbols[0]):
        return None
    if sympy.degree(difference, symbols[0]) != 1:
        return None
    size = -difference.coeff(symbols[0], 0) / difference.coeff(symbols[0], 1)
    return int(size) if size.is_Integer and size >= 0 else -1


def equal_dims(a: Dim, b: Dim) -> bool:
    """Return whether two dims are equal for all positive sizes of the inputs."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    if a.value is None or b.value is None:
        return False
    return a.value == b.value or _equal_texts(a.value, b.value)


@_keep_results
def _equal_texts(a: str, b: str) -> bool:
    try:
        first, second = _parse_text(a), _parse_text(b)
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return False
    if first.free_symbols != second.free_symbols:
        return False
    difference = sympy.expand(first - second)
    if difference.is_polynomial(*difference.free_symbols):
        return bool(difference == 0)
    # Sizes at which they differ are found at once, and simplify takes up to a second.
    if any(
        difference.subs(sizes).is_zero is False for sizes in _sample_sizes(difference.free_symbols)
    ):
        return False
    return bool(sympy.simplify(difference) == 0)


def _sample_sizes(symbols: Iterable[sympy.Symbol]) -> Iterator[dict[sympy.Symbol, int]]:
    """Yield some sizes: small and large, another for each symbol."""
    order = sorted(symbols, key=str)
    for least, step in ((5, 3), (1000, 37)):
        yield {x: least + step * i for i, x in enumerate(order)}


def compile_dim(dim: Dim) -> Callable[[Mapping[str, Ints]], Ints]:
    """Return a function that computes a dim for many sizes of its symbols at once.

    Raises:
        ValueError: Its name is none that an expression can hold.
    """
    names, compute = _compile_text(str(dim))

    def evaluate_at(sizes: Mapping[str, Ints]) -> Ints:
        # In floats: an end such as the greatest int64 and 1 is no number of numpy's integers.
        arrays = (np.asarray(sizes[x], np.float64) for x in names)
        return np.round(compute(*arrays)).astype(np.int64)

    return evaluate_at


@_keep_results
def _compile_text(text: str) -> tuple[tuple[str, ...], Callable[..., npt.NDArray[np.float64]]]:
    symbols = sorted(_parse_text(text).free_symbols, key=str)
    return tuple(map(str, symbols)), sympy.lambdify(
        # ``T/3 + 2/3`` is 34 where T is 100, also in floats.
        symbols,
        _parse_text(text),
        [{"floor": lambda x: np.floor(x + 1e-6)}, "numpy"],
        dummify=True,
    )


def dim_key(dim: Dim) -> int | str | None:
    """Return what all dims that are seen to be equal share; None for an unknown dim."""
    if isinstance(dim, int) or dim.value is None:
        return dim if isinstance(dim, int) else None
    return _key_of_text(dim.value)


@_keep_results
def _key_of_text(text: str) -> int | str:
    if text.isidentifier():
        return text
    try:
        expr = sympy.expand(_parse_text(text))
    except ValueError:  # a name that no expression can hold, such as "batch size"
        return text
    return int(expr) if expr.is_Integer else _text(expr)


def is_capped_by_number(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Return whether ``a`` is ``Min(b, number)``, the number at least 2: 1 only if ``b`` is."""
    expr = expr_of(a)
    if isinstance(expr, sympy.Max) and len(expr.args) == 2 and expr.args[0] == 0:
        expr = expr.args[1]
    if not isinstance(expr, sympy.Min):
        return False
    return all(x == expr_of(b) or (x.is_Integer and x >= 2) for x in expr.args)


def is_min_with(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Return whether ``a`` is the least of ``b`` and other sizes: all of it, or 1 beside it."""
    expr = expr_of(a)
    return isinstance(expr, sympy.Min) and expr_of(b) in expr.args


def is_rest_of_table(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Return whether ``a`` is ``Min(N, start + b) - start``: ``b`` more rows of a table of N."""
    expr = expr_of(a)
    for most in expr.atoms(sympy.Max):  # Max(0, x), or x + Max(0, -x), as sympy likes it
        inner = expr - most if most != expr else most.args[-1]
        if normal_form(sympy.Max(0, inner) - expr) == 0:
            expr = inner
    ends = [x for x in sympy.Add.make_args(expr) if isinstance(x, sympy.Min)]
    if len(ends) != 1 or not any(x.is_Integer and x >= 2 for x in ends[0].args):
        return False
    return all(
        x.is_Integer or normal_form(x - (ends[0] - expr)) == expr_of(b) for x in ends[0].args
    )


def array_of_exprs(items: Sequence[sympy.Expr], shape: Sequence[object]) -> Array:
    """Return ``items`` as an array of that shape, in order."""
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array.reshape([int(str(x)) for x in shape])


def items_of(array: Array) -> list[sympy.Expr]:
    """Return the expressions in an array, in order."""
    return list(array.flat)


def integers_in(array: Array | None) -> list[int] | None:
    """Return the numbers in ``array``, if it holds nothing else, or None."""
    items = None if array is None else items_of(array)
    return None if items is None or not all(x.is_Integer for x in items) else [*map(int, items)]


def bool_expr(decided: bool) -> sympy.Expr:
    """Return 1 for True, 0 for False, as a tensor of booleans holds them here."""
    return sympy.Integer(int(decided))

"""The derived sizes of a manifest, from the expressions of its dims.

``floor((T - 400)/160) + 1`` becomes ``T`` times 1, plus -240, divided by 160: a host needs neither
a parser nor an evaluator. A floor within another expression is a derived size of its own.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from graphfix.errors import ModelError
from graphfix.shipped.derived_size import DerivedSize
from graphfix.shipped.manifest import Port
from graphfix.shipping.dim_expression import parse_expression


def derive_sizes(
    ports: Iterable[Port], containers: Sequence[Mapping[str, int]], varying: Iterable[str]
) -> tuple[DerivedSize, ...]:
    """Return the sizes that these inputs and outputs name and that are no size of a container.

    Args:
        ports: Their dims are numbers, names of sizes, and expressions in these.
        containers: The sizes of each container.
        varying: The dims that a host may run at other sizes. Of a product of two dims, one has to
            be another, with the same size in all containers.

    Returns:
        The derived sizes, each behind those that it follows from.

    Raises:
        ModelError: A dim is a product or a quotient of dims that vary.
    """
    first = containers[0]
    fixed = {x: n for x, n in first.items() if all(c[x] == n for c in containers)}
    table = _SizeTable({x: n for x, n in fixed.items() if x not in {*varying}})
    dims = dict.fromkeys(dim for port in ports for dim in port.dims)
    texts = [x for x in dims if isinstance(x, str) and x not in first]
    for text in texts:
        table.add_dim(text)
    return table.entries_for(texts)


@dataclass(frozen=True)
class _Sum:
    """A sum of multiples of sizes, and a number."""

    factors: Mapping[str, Fraction] = field(default_factory=dict)
    number: Fraction = Fraction(0)

    def plus(self, other: _Sum, times: Fraction | int = 1) -> _Sum:
        """Return the sum of this and a multiple of another."""
        factors = dict(self.factors)
        for name, factor in other.factors.items():
            factors[name] = factors.get(name, Fraction(0)) + times * factor
        kept = {name: factor for name, factor in factors.items() if factor}
        return _Sum(kept, self.number + times * other.number)

    def times(self, number: Fraction | int) -> _Sum:
        """Return a multiple."""
        return _Sum().plus(self, number)

    @property
    def denominator(self) -> int:
        """Return the number that makes all factors whole."""
        return math.lcm(self.number.denominator, *(x.denominator for x in self.factors.values()))


class _SizeTable:
    """Derived sizes by name, in the order in which they are computed.

    Args:
        fixed: The sizes that never vary.
    """

    def __init__(self, fixed: Mapping[str, int]) -> None:
        self._fixed = fixed
        self._entries: dict[str, DerivedSize] = {}

    def add_dim(self, text: str) -> None:
        """Add the size that an expression is, under its text.

        Raises:
            ModelError: It is a product or a quotient of sizes that vary.
        """
        try:
            total = self._sum_of(parse_expression(text))
        except (ValueError, ZeroDivisionError, RecursionError) as error:
            raise ModelError(
                f"the size {text[:200]} is none that a host can compute: {error}. Fix one of its "
                "dims, graphfix run MODEL -p fix-dims:NAME=SIZE, and ship that"
            ) from None
        if text not in self._entries:
            self._entries[text] = self._rounded_inside(text, total) or _entry(text, total)

    def entries_for(self, texts: Iterable[str]) -> tuple[DerivedSize, ...]:
        """Return the entries of these names, and those that they follow from."""
        needed = {*texts}
        for name, entry in reversed(self._entries.items()):
            if name in needed:
                needed |= entry.of.keys()
        return tuple(x for name, x in self._entries.items() if name in needed)

    def _rounded_inside(self, name: str, total: _Sum) -> DerivedSize | None:
        """Return one entry for a rounded size and whole numbers of others; None if it is not that.

        What is whole may as well be added before the division: ``floor(T/2) + 1`` is
        ``floor((T + 2)/2)``.
        """
        if total.denominator != 1:
            return None
        for size, factor in total.factors.items():
            inner = self._entries.get(size)
            if factor != 1 or inner is None or (inner.least, inner.most) != (None, None):
                continue
            others = total.plus(_Sum({size: Fraction(1)}), -1).times(inner.divide)
            whole = others.plus(
                _Sum({x: Fraction(n) for x, n in inner.of.items()}, Fraction(inner.add))
            )
            return _entry(name, whole.times(Fraction(1, inner.divide)), exact=inner.exact)
        return None

    def _sum_of(self, node: ast.expr) -> _Sum:
        """Return an expression as a sum; what is rounded or bounded in it becomes an entry.

        Raises:
            ValueError: It is none.
        """
        match node:
            case ast.Constant(value=int(number)):
                return _Sum({}, Fraction(number))
            case ast.Name(id=name):
                return _Sum({name: Fraction(1)})
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._sum_of(inner).times(-1)
            case ast.BinOp(left=left, op=sign, right=right):
                return self._combine(sign, self._sum_of(left), self._sum_of(right), node)
            case ast.Call(
                func=ast.Name(id="Max" | "Min" as kind), args=[first, *others], keywords=[]
            ):
                total = self._sum_of(first)
                for other in others:
                    total = self._bounded(kind, total, self._sum_of(other), ast.unparse(node))
                return total
            case ast.Call(func=ast.Name(id=kind), args=args, keywords=[]):
                return self._call(kind, [self._sum_of(x) for x in args], ast.unparse(node))
        raise ValueError(f"{ast.unparse(node)[:200]!r} is no size")

    def _combine(self, sign: ast.operator, left: _Sum, right: _Sum, node: ast.expr) -> _Sum:
        text = ast.unparse(node)
        match sign:
            case ast.Add():
                return left.plus(right)
            case ast.Sub():
                return left.plus(right, -1)
            case ast.Mult():
                if left.factors and right.factors:
                    left, right = self._with_fixed(left), self._with_fixed(right)
                number, other = (right, left) if left.factors else (left, right)
                if number.factors:
                    raise ValueError(f"{text[:200]} multiplies sizes that vary")
                return other.times(number.number)
            case ast.Div():
                return left.times(1 / self._divisor(right, text))
            case ast.FloorDiv():
                return self._rounded(left.times(1 / self._divisor(right, text)), text)
            case ast.Mod():
                return self._call("Mod", [left, right], text)
        raise ValueError(f"{text[:200]!r} is no size")

    def _call(self, kind: str, args: list[_Sum], text: str) -> _Sum:
        match kind, args:
            case "floor", [total]:
                return self._rounded(total, text)
            case "ceiling", [total]:
                rest = Fraction(total.denominator - 1, total.denominator)
                return self._rounded(_Sum(total.factors, total.number + rest), text)
            case "Mod", [total, other]:
                divisor = self._divisor(other, text)
                quotient = self._rounded(total.times(1 / divisor), f"floor of {text}")
                return total.plus(quotient, -divisor)
        raise ValueError(f"{text[:200]!r} is no size")

    def _divisor(self, total: _Sum, text: str) -> Fraction:
        total = self._with_fixed(total)
        if total.factors:
            raise ValueError(f"{text[:200]} divides by a size that varies")
        return total.number

    def _with_fixed(self, total: _Sum) -> _Sum:
        """Return a sum with numbers for the sizes that never vary."""
        for name, size in self._fixed.items():
            if name in total.factors:
                factor = total.factors[name]
                total = total.plus(_Sum({name: Fraction(1)}, Fraction(-size)), -factor)
        return total

    def _rounded(self, total: _Sum, text: str) -> _Sum:
        """Return a sum rounded down: an entry, unless it is whole."""
        if total.denominator == 1:
            return total
        if not total.factors:
            return _Sum({}, Fraction(math.floor(total.number)))
        entry = _entry(text, total, exact=False)
        return _Sum({self._add(entry): Fraction(1)})

    def _bounded(self, kind: str, total: _Sum, bound: _Sum, text: str) -> _Sum:
        """Return the larger or the smaller of two sums: the one, and how far the other is off."""
        rest = total.plus(bound, -1)
        if not rest.factors:
            better = rest.number > 0 if kind == "Max" else rest.number < 0
            return total if better else bound
        scale = rest.denominator
        least, most = (0, None) if kind == "Max" else (None, 0)
        entry = _entry(f"rest of {text}", rest.times(scale), least=least, most=most)
        return bound.plus(_Sum({self._add(entry): Fraction(1, scale)}))

    def _add(self, entry: DerivedSize) -> str:
        """Add an entry, and return its name; that of an equal entry if there is one."""
        for name, other in self._entries.items():
            if replace(other, name=entry.name) == entry:
                return name
        name = entry.name
        while name in self._entries:
            name += "'"
        self._entries[name] = replace(entry, name=name)
        return name


def _entry(
    name: str, total: _Sum, *, least: int | None = None, most: int | None = None, exact: bool = True
) -> DerivedSize:
    """Return the entry of a sum; with ``exact`` it has to be a whole number."""
    divide = total.denominator
    of = {size: int(factor * divide) for size, factor in total.factors.items()}
    exact = exact and divide > 1
    return DerivedSize(name, of, int(total.number * divide), divide, least, most, exact)

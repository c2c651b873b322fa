"""What operators do to a padded tensor: one module for each family, one function for each rule.

A rule takes a :class:`graphfix.lengths.site.Site` and gives back the state of each output, asking
for repairs on the way. An operator without a rule is a refusal, never a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.lengths.rules import (
    arrange,
    attend,
    convolve,
    cut,
    elementwise,
    fused,
    index,
    lengthen,
    multiply,
    normalize,
    quantize,
    recur,
    reduce,
    reshape,
    resize,
    sizes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphfix.lengths.domain import State
    from graphfix.lengths.site import Site

    Rule = Callable[[Site], State | Sequence[State | None]]

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        arrange,
        attend,
        convolve,
        cut,
        elementwise,
        fused,
        index,
        lengthen,
        multiply,
        normalize,
        quantize,
        recur,
        reduce,
        reshape,
        resize,
        sizes,
    )
    for name, rule in family.RULES.items()
}
"""The rule of each operator; those of com.microsoft that have no namesake are among them."""

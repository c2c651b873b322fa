"""Guards of a site: functions that return why it is skipped, or None."""

from collections.abc import Callable, Iterable
from typing import ParamSpec

P = ParamSpec("P")


def first_reason(
    guards: Iterable[Callable[P, str | None]], *args: P.args, **kwargs: P.kwargs
) -> str | None:
    """Return the first reason that a guard has against a site, or None; later guards do not run."""
    return next(
        (reason for guard in guards if (reason := guard(*args, **kwargs)) is not None), None
    )

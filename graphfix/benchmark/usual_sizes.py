"""The sizes at which people run a model: a few seconds of audio, a sentence."""

from graphfix.feeds.input import Input, symbols
from graphfix.feeds.signature import Signature

SAMPLES = 80_000
"""Samples of a wave: five seconds at 16 kHz."""
FRAMES = 500
"""Frames of features: five seconds at 10 ms each."""
TOKENS = 64
"""Tokens of a text: a long sentence."""


def usual_sizes(signature: Signature) -> dict[str, int]:
    """Return a usual size for each dim that counts samples, frames or tokens, by the user's names.

    What else a dim counts, such as the height of a picture or the past of a cache, is not known.
    """
    sizes: dict[str, int] = {}
    derived = signature.derived.keys()
    for group in signature.fresh:
        members = set(signature.symbols_in(group))
        counted = [
            size
            for item in signature.inputs
            if (size := _usual_size(item, members, signature.batch_symbols))
        ]
        if counted:
            sizes.update({signature.user_name(x): counted[0] for x in members - derived})
    return sizes


def _usual_size(item: Input, members: set[str], batch: frozenset[str]) -> int | None:
    """Return how many of what an input counts along one of its dims people feed; None if unknown.

    Args:
        item: The input.
        members: The symbols of which one is that dim.
        batch: The symbols of the batch.
    """
    along = [d for d in item.dims if symbols(d) & members]
    others = [d for d in item.dims if d not in along and not symbols(d) & batch and d != 1]
    if len(along) != 1:
        return None
    if item.role.kind == "tokens" and not others:
        return TOKENS
    if item.role.kind != "data" or any(symbols(d) for d in others):
        return None
    return {0: SAMPLES, 1: FRAMES}.get(len(others))

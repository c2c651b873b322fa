"""``--container T=5s,30s --container B=1``: which containers are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphfix.errors import UsageError
from graphfix.feeds.states import State
from graphfix.files.given import sizes_of
from graphfix.spec.quoting import halves, unquoted

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<seconds>s?)")
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class ContainerSpec:
    """The sizes of containers, by the name of the dim.

    Attributes:
        sizes: The sizes of each dim that was named, the smallest first.
        rate: How many of the padded dim a second has; None if nobody said.
    """

    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rate: float | None = None

    def renamed(self, names: Mapping[str, str]) -> ContainerSpec:
        """The same where dims have got other names."""
        return replace(self, sizes={names.get(k, k): x for k, x in self.sizes.items()})


def wanted(given: Iterable[str], rate: float | None = None) -> ContainerSpec:
    """What texts such as ``T=500,3000``, ``T=5s,30s`` and ``B=1`` ask for.

    Args:
        given: The texts.
        rate: How many of a dim a second has, for sizes in seconds.

    Raises:
        UsageError: A text is no size; with how to write one.
    """
    if rate is not None and not 0 < rate < 1e9:
        raise UsageError(f"--rate {rate:g}: is no number of frames or samples a second")
    found: dict[str, set[int]] = {}
    for text in given:
        name, equals, sizes = halves(text, "=")
        name = unquoted(name.strip())
        if not (name and equals and sizes.strip()):
            raise UsageError(f"--container {text}: write NAME=SIZE,SIZE such as T=500,3000")
        found.setdefault(name, set()).update(_size(text, x.strip(), rate) for x in sizes.split(","))
    return ContainerSpec({name: tuple(sorted(sizes)) for name, sizes in found.items()}, rate)


def spec_of(
    given: ContainerSpec | Mapping[str, int | Sequence[int]] | str | Iterable[str],
) -> ContainerSpec:
    """The sizes that a caller from Python asks for.

    Raises:
        UsageError: A text, or what stands behind a name, is no size.
    """
    if isinstance(given, ContainerSpec):
        return given
    if isinstance(given, Mapping):
        return ContainerSpec({name: tuple(sorted({*x})) for name, x in sizes_of(given).items()})
    return wanted([given] if isinstance(given, str) else given)


def cache_sizes(text: str) -> tuple[int, ...]:
    """The sizes of caches that a text such as ``256,1024`` names.

    Raises:
        UsageError: A text is no size.
    """
    sizes = [x.strip() for x in text.split(",") if x.strip()]
    for one in sizes:
        if not one.isdecimal() or not 1 <= int(one) <= _LARGEST:
            raise UsageError(f"--cache {text}: {one!r} is no size; write --cache 256,1024")
    return tuple(sorted({*map(int, sizes)}))


def pairs(given: Iterable[str]) -> tuple[State, ...]:
    """The states that texts such as ``past_key_0=present_key_0`` name.

    Raises:
        UsageError: A text names no two.
    """
    found = []
    for text in given:
        name, equals, output = halves(text, "=")
        if not (name and equals and output):
            raise UsageError(f"--state {text}: write INPUT=OUTPUT, such as past_0=present_0")
        found.append(State(unquoted(name.strip()), unquoted(output.strip())))
    return tuple(found)


def _size(whole: str, text: str, rate: float | None) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"--container {whole}: {text!r} is no size; write 500, or 5s for seconds")
    if match["seconds"]:
        if rate is None:
            raise UsageError(
                f"--container {whole}: {text} is in seconds; say how many frames or samples a "
                "second has, such as --rate 16000"
            )
        size = round(float(match["number"]) * rate)
    elif "." in match["number"]:
        raise UsageError(f"--container {whole}: {text} is not a whole number")
    else:
        size = int(match["number"])
    if not 1 <= size <= _LARGEST:
        raise UsageError(f"--container {whole}: a size is at least 1 and at most {_LARGEST:,}")
    return size

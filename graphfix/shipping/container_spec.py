"""``--container T=5s,30s --container B=1``: the requested containers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphfix.errors import UsageError
from graphfix.feeds.states import StatePair
from graphfix.files.model_input import sizes_by_dim
from graphfix.spec.quoting import partition_outside_quotes, unquote_name

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<seconds>s?)")
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class ContainerSpec:
    """The sizes of containers, by the name of the dim.

    Attributes:
        sizes: The sizes of each named dim, the smallest first.
        rate: How many of the padded dim a second has; None if unknown.
    """

    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rate: float | None = None

    def rename_dims(self, names: Mapping[str, str]) -> ContainerSpec:
        """Return the same sizes under other names of dims."""
        return replace(self, sizes={names.get(k, k): x for k, x in self.sizes.items()})


def parse_containers(texts: Iterable[str], rate: float | None = None) -> ContainerSpec:
    """Parse texts such as ``T=500,3000``, ``T=5s,30s`` and ``B=1``.

    Args:
        texts: The texts.
        rate: How many of a dim a second has, for sizes in seconds.

    Raises:
        UsageError: A text is no size; with how to write one.
    """
    if rate is not None and not 0 < rate < 1e9:
        raise UsageError(f"--rate {rate:g}: is no number of frames or samples a second")
    sizes_by_dim: dict[str, set[int]] = {}
    for text in texts:
        name, equals, sizes = partition_outside_quotes(text, "=")
        name = unquote_name(name.strip())
        if not (name and equals and sizes.strip()):
            raise UsageError(f"--container {text}: write NAME=SIZE,SIZE such as T=500,3000")
        sizes_by_dim.setdefault(name, set()).update(
            _parse_size(text, x.strip(), rate) for x in sizes.split(",")
        )
    return ContainerSpec({name: tuple(sorted(sizes)) for name, sizes in sizes_by_dim.items()}, rate)


def spec_of(
    containers: ContainerSpec | Mapping[str, int | Sequence[int]] | str | Iterable[str],
) -> ContainerSpec:
    """Return the sizes that a caller from Python asks for.

    Raises:
        UsageError: A text is not NAME=SIZE, or a size is no number.
    """
    if isinstance(containers, ContainerSpec):
        return containers
    if isinstance(containers, Mapping):
        return ContainerSpec(
            {name: tuple(sorted({*x})) for name, x in sizes_by_dim(containers).items()}
        )
    return parse_containers([containers] if isinstance(containers, str) else containers)


def parse_cache_sizes(text: str) -> tuple[int, ...]:
    """Parse the sizes of caches in a text such as ``256,1024``.

    Raises:
        UsageError: A text is no size.
    """
    sizes = [x.strip() for x in text.split(",") if x.strip()]
    for size in sizes:
        if not size.isdecimal() or not 1 <= int(size) <= _LARGEST:
            raise UsageError(f"--cache {text}: {size!r} is no size; write --cache 256,1024")
    return tuple(sorted({*map(int, sizes)}))


def parse_states(texts: Iterable[str]) -> tuple[StatePair, ...]:
    """Parse the states that texts such as ``past_key_0=present_key_0`` name.

    Raises:
        UsageError: A text names no two.
    """
    states = []
    for text in texts:
        name, equals, output = partition_outside_quotes(text, "=")
        if not (name and equals and output):
            raise UsageError(f"--state {text}: write INPUT=OUTPUT, such as past_0=present_0")
        states.append(StatePair(unquote_name(name.strip()), unquote_name(output.strip())))
    return tuple(states)


def _parse_size(option: str, text: str, rate: float | None) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"--container {option}: {text!r} is no size; write 500, or 5s for seconds")
    if match["seconds"]:
        if rate is None:
            raise UsageError(
                f"--container {option}: {text} is in seconds; say how many frames or samples a "
                "second has, such as --rate 16000"
            )
        size = round(float(match["number"]) * rate)
    elif "." in match["number"]:
        raise UsageError(f"--container {option}: {text} is not a whole number")
    else:
        size = int(match["number"])
    if not 1 <= size <= _LARGEST:
        raise UsageError(f"--container {option}: a size is at least 1 and at most {_LARGEST:,}")
    return size

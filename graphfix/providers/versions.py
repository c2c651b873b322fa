"""Which version of a provider is meant: the one that is named, or all that users have.

``--ep dml@1.24.4`` names a version, and ``--ep windowsml`` a package by its extra. The name is kept
in the environment, ``GRAPHFIX_DML_VERSION``, so that it holds for the processes that are started.
"""

import os
import re

from graphfix.errors import UsageError
from graphfix.providers.table import PROVIDERS, Distribution, Ep, variable_of


def parse_name(text: str) -> tuple[Ep, str]:
    """Return the provider that a name such as ``dml@1.24.4`` is of, and the version named, or "".

    A package of the provider is named by its extra: ``windowsml``.

    Raises:
        UsageError: There is no such provider, or what follows is no version of it.
    """
    name, _, version = text.partition("@")
    for ep in PROVIDERS:
        if name == ep:
            return ep, _checked(ep, version) if "@" in text else ""
        if text in _extras_of(ep):
            return ep, text
    names = [*PROVIDERS, *(extra for ep in PROVIDERS for extra in _extras_of(ep))]
    choices = ", ".join(dict.fromkeys(names))
    raise UsageError(f"there is no provider {text!r}; ep is one of {choices}")


def _checked(ep: Ep, version: str) -> str:
    if re.fullmatch(r"\d+(\.\d+)*", version) or version in _extras_of(ep):
        return version
    example = f"{ep}@{PROVIDERS[ep].distributions[0].version}"
    raise UsageError(f"{version!r} is no version of {PROVIDERS[ep].label}; write {example}")


def _extras_of(ep: Ep) -> dict[str, str]:
    """Return the version of each package that has an extra, by the extra."""
    return {x.extra: x.version for x in PROVIDERS[ep].distributions if x.extra}


def name_version(ep: Ep, version: str) -> None:
    """Make a version the one that is meant, here and in processes that are started."""
    os.environ[variable_of(ep, "VERSION")] = version


def named_version(ep: Ep) -> str:
    """Return the version that is named, or the extra of a package; "" where none is.

    Raises:
        UsageError: The environment names no version.
    """
    version = os.environ.get(variable_of(ep, "VERSION"), "").strip()
    return version and _checked(ep, version)


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers, by which versions are sorted."""
    return tuple(int(x) for x in re.findall(r"\d+", version)[:3])


def distribution_of(ep: Ep, version: str) -> Distribution:
    """Return the package that has a version of a provider; it may be named by its extra."""
    distributions = _newest_first(ep)
    by_extra = [x for x in distributions if x.extra == version]
    older = [x for x in distributions if version_key(x.version) <= version_key(version)]
    return (by_extra or older or distributions[-1:])[0]


def meant_distributions(ep: Ep) -> list[Distribution]:
    """Return the packages that have what is named, or all packages; the newest first."""
    version = named_version(ep)
    return [distribution_of(ep, version)] if version else _newest_first(ep)


def is_meant(ep: Ep, version: str, named: str) -> bool:
    """Return whether a version that was found is what is named; where nothing is, each is."""
    if named in _extras_of(ep):
        return distribution_of(ep, version).extra == named
    return f"{version}.".startswith(f"{named}.") if named else True


def known_versions(ep: Ep, named: str) -> tuple[str, ...]:
    """Return the versions that a statement about a provider is to hold for, the oldest first.

    Args:
        ep: The provider.
        named: A version, the extra of a package, or "" for all that are known.
    """
    if not named:
        return tuple(x.version for x in reversed(_newest_first(ep)))
    return (_extras_of(ep).get(named, named),)


def named_label(ep: Ep) -> str:
    """Return what a provider is called in a sentence, with the version that is named, if any."""
    label, version = PROVIDERS[ep].label, named_version(ep)
    return f"{label} {known_versions(ep, version)[0]}" if version else label


def _newest_first(ep: Ep) -> list[Distribution]:
    distributions = PROVIDERS[ep].distributions
    return sorted(distributions, key=lambda x: version_key(x.version), reverse=True)

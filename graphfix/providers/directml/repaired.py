"""Defects of DirectML that a version of ONNX Runtime repaired: ``repaired.csv``.

A row is a pass or rule whose findings are right from that version on, by runs of both versions. The
kernels that DirectML registers are the same in 1.24.4 and 1.30.0, as is DirectML itself.
"""

import csv
import functools
from collections.abc import Iterable
from importlib import resources

from graphfix.providers.versions import version_key


def repaired_in(check: str) -> str | None:
    """Return the version from which on what a pass or rule flags is right, or None."""
    return _load_rows().get(check)


def wrong_versions(check: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the versions in which what a pass or rule flags is wrong."""
    repaired = repaired_in(check)
    return tuple(x for x in versions if repaired is None or version_key(x) < version_key(repaired))


@functools.cache
def _load_rows() -> dict[str, str]:
    folder = resources.files("graphfix.providers.directml")
    text = folder.joinpath("repaired.csv").read_text(encoding="utf-8")
    return {row["check"]: row["version"] for row in csv.DictReader(text.splitlines())}

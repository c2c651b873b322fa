"""Versions of providers: how they are named, and which are meant."""

from __future__ import annotations

import pytest

from graphfix.errors import UsageError
from graphfix.providers import versions


@pytest.fixture(autouse=True)
def _no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFIX_DML_VERSION", "")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("dml", ("dml", "")),
        ("dml@1.24.4", ("dml", "1.24.4")),
        ("dml@windowsml", ("dml", "windowsml")),
        ("windowsml", ("dml", "windowsml")),
        ("directml", ("dml", "directml")),
        ("webgpu", ("webgpu", "")),
    ],
)
def test_a_name_may_have_a_version_or_be_a_package(text: str, meant: tuple[str, str]) -> None:
    assert versions.parse_name(text) == meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dlm", "no provider 'dlm'; ep is one of cpu, dml, .*windowsml"),
        ("", "no provider ''"),
        ("dml@", "'' is no version of DirectML; write dml@1.24.4"),
        ("dml@new", "'new' is no version of DirectML"),
        ("windowsml@1.30.0", "no provider 'windowsml@1.30.0'"),
    ],
)
def test_what_is_no_name(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        versions.parse_name(text)


def test_the_environment_names_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFIX_DML_VERSION", " 1.24.4 ")
    assert versions.named_version("dml") == "1.24.4"
    monkeypatch.setenv("GRAPHFIX_DML_VERSION", "old")
    with pytest.raises(UsageError, match="'old' is no version"):
        versions.named_version("dml")


@pytest.mark.parametrize(
    ("version", "extra"),
    [
        ("1.24.4", "directml"),
        ("1.20.0", "directml"),
        ("1.30.0", "windowsml"),
        ("1.31.2", "windowsml"),
        ("windowsml", "windowsml"),
        ("directml", "directml"),
    ],
)
def test_the_package_of_a_version(version: str, extra: str) -> None:
    assert versions.distribution_of("dml", version).extra == extra


@pytest.mark.parametrize(
    ("found", "named", "is_it"),
    [
        ("1.24.4", "", True),
        ("1.24.4", "1.24", True),
        ("1.24.4", "1.2", False),
        ("1.31.0", "windowsml", True),
        ("1.24.4", "windowsml", False),
        ("1.30.0", "1.24.4", False),
    ],
)
def test_a_version_that_is_found_is_the_named_one(found: str, named: str, is_it: bool) -> None:
    assert versions.is_meant("dml", found, named) is is_it


def test_without_a_name_all_versions_are_meant() -> None:
    assert versions.known_versions("dml", "") == ("1.24.4", "1.30.0")
    assert versions.known_versions("dml", "windowsml") == ("1.30.0",)
    assert versions.known_versions("dml", "1.26.0") == ("1.26.0",)
    assert [x.extra for x in versions.meant_distributions("dml")] == ["windowsml", "directml"]
    versions.name_version("dml", "1.24.4")
    assert [x.extra for x in versions.meant_distributions("dml")] == ["directml"]


def test_a_label_has_the_version_that_is_named() -> None:
    assert versions.named_label("dml") == "DirectML"
    versions.name_version("dml", "windowsml")
    assert versions.named_label("dml") == "DirectML 1.30.0"

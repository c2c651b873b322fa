"""The table of execution providers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import onnxruntime
import pytest

from graphfix.engine import registry
from graphfix.providers.table import EVERYWHERE, PROVIDERS, Ep, ep_called, variable_of

ROOT = Path(__file__).parents[2]


def test_it_has_every_provider() -> None:
    assert get_args(Ep) == EVERYWHERE


@pytest.mark.parametrize("ep", EVERYWHERE)
def test_onnx_runtime_knows_the_name(ep: Ep) -> None:
    name = PROVIDERS[ep].ort_name
    assert name in onnxruntime.get_all_providers()
    assert ep_called(name) == ep


@pytest.mark.parametrize("ep", EVERYWHERE)
def test_its_page_names_it_and_its_packages(ep: Ep) -> None:
    page = (ROOT / "docs/providers.md").read_text(encoding="utf-8")
    for distribution in PROVIDERS[ep].distributions:
        row = rf"\| `{ep}` \| `{distribution.package}`"
        assert re.search(row, page)
    if ep != "cpu":
        assert variable_of(ep) in page


def test_make_has_each_set_up() -> None:
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for provider in PROVIDERS.values():
        assert not provider.setup or f"\n{provider.setup}:  ## " in targets


def test_make_sets_up_the_versions_that_are_known() -> None:
    for provider in PROVIDERS.values():
        if provider.setup:
            script = (ROOT / provider.setup / "setup.sh").read_text(encoding="utf-8")
            for distribution in provider.distributions:
                assert distribution.package in script
                assert re.search(
                    rf"=={distribution.version}|version={distribution.version}", script
                )


def test_variables_have_the_name_of_the_provider() -> None:
    assert variable_of("dml") == "GRAPHFIX_DML_PYTHON"
    assert variable_of("webgpu", "HOME") == "GRAPHFIX_WEBGPU_HOME"
    assert PROVIDERS["cpu"].short_label == "CPU"


def test_each_has_a_profile_that_there_is() -> None:
    assert {x.profile for x in PROVIDERS.values()} <= set(registry.PROFILES)

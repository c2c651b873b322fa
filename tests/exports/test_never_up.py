"""No count of kernels goes up, of any model in the repository; or the report says why."""

from __future__ import annotations

from pathlib import Path

import pytest

import graphfix

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*/model.onnx"))


@pytest.mark.parametrize("profile", ["directml", "fast"])
@pytest.mark.parametrize("path", MODELS, ids=lambda x: x.parent.name)
def test_no_count_goes_up(path: Path, profile: str, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    report = graphfix.repair_file(path, target, profile, check=False, kernels=True)
    assert report.kernels is not None
    before, after = (report.kernels[x] for x in ("before", "after"))
    assert before is not None
    assert after is not None
    assert report.kept or not {x: (before[x], after[x]) for x in before if after[x] > before[x]}

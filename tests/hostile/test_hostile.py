"""Files made to end in a traceback, a hang or a lie: one sentence, and nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphfix.cli import main

FOLDER = Path(os.environ.get("GRAPHFIX_HOSTILE", Path(__file__).parents[3] / "shared" / "hostile"))
FILES = sorted(FOLDER.glob("*.onnx"))

pytestmark = pytest.mark.skipif(not FILES, reason=f"no files in {FOLDER}; set GRAPHFIX_HOSTILE")


@pytest.mark.parametrize("verb", ["run", "check", "plan", "padded"])
@pytest.mark.parametrize("file", FILES, ids=lambda x: x.stem)
def test_it_is_refused_in_one_sentence_or_gone_through(
    file: Path, verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "o.onnx")] if verb == "run" else []
    code = main([verb, str(file), *out])
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert "this is a fault" not in told
    assert "\x1b" not in told
    left = [x.name for x in tmp_path.iterdir()]
    assert left == (["o.onnx"] if verb == "run" and code == 0 else [])
    assert code in ((0, 2) if verb != "check" else (0, 1, 2))
    if code == 2:
        errors = [x for x in told.splitlines() if x.startswith("graphfix: error: ")]
        assert len(errors) == 1

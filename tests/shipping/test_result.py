"""What shipping returns, and what it writes into the folder."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.core import Findings
from graphfix.engine import registry
from graphfix.engine.report import FailedRepair, PassReport, Report
from graphfix.files import io
from graphfix.job.remaining_findings import HazardComparison
from graphfix.shipped.manifest import NAME, Axis, Container, FileRecord, InputPort, Manifest, Port
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.new_outputs import ShipSource
from graphfix.shipping.result import (
    Shipped,
    containers_with_kernels,
    provenance_of,
    reasons_not_rounded,
    records_of,
    write_folder,
    write_models,
)
from graphfix.version import __version__
from tests.feeds.small_models import HEAD
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = Manifest(
    axis=Axis("T", "x", 0),
    batch=None,
    lengths=None,
    inputs=(InputPort("x", "tensor(float)", ("T",), None),),
    outputs=(Port("y", "tensor(float)", ("T",), None),),
    containers=(Container("m.8.onnx", {"T": 8}),),
    files=(FileRecord("m.8.onnx", 0, 64 * "0"),),
)
PROVED, FAILED = SessionProof(True, ()), SessionProof(False, (), "it did not run")
TEXT = "m (float[T, 4] x) => (float[T, 4] y) { a = Neg (x)  y = Softmax (a) }"


class PaddingProof:
    """Stands for the proof of one container."""

    file, ep = "m.8.onnx", "cpu"

    def __init__(self, ok: bool) -> None:
        self.verdict = SimpleNamespace(ok=ok, to_json=lambda: {"ok": ok})

    def __str__(self) -> str:
        return f"padding {self.verdict.ok}"


def shipped(**changes: Any) -> Shipped:
    result = Shipped(
        folder=None,
        manifest=MANIFEST,
        reports=(),
        checked=HazardComparison(Findings(()), Findings(())),
        padding=(),
        whole=PROVED,
    )
    return replace(result, **changes)


@pytest.mark.parametrize(
    ("padding", "whole", "ok"),
    [
        ((), PROVED, True),
        ((), None, True),
        ((), FAILED, False),
        ((True, True), PROVED, True),
        ((True, False), PROVED, False),
        ((False,), None, False),
    ],
)
def test_it_is_true_if_every_proof_passed(
    padding: tuple[bool, ...], whole: SessionProof | None, ok: bool
) -> None:
    result = shipped(padding=tuple(map(PaddingProof, padding)), whole=whole)
    assert result.ok == bool(result) == ok
    assert result.to_json()["ok"] == ok


def test_what_it_says(tmp_path: Path) -> None:
    assert str(shipped(whole=None)).startswith("nothing was written; ")
    proof = PaddingProof(True)
    text = str(shipped(folder=tmp_path, padding=(proof,)))
    assert text == f"{tmp_path}; padding True; {PROVED}"


def test_it_is_plain_data_as_json(tmp_path: Path) -> None:
    data = shipped(whole=None).to_json()
    assert data["schema"] == 1
    assert data["folder"] is None
    assert data["whole"] is None
    data = shipped(folder=tmp_path, padding=(PaddingProof(True),), sizes={"a": 3}).to_json()
    assert data["folder"] == str(tmp_path)
    assert data["padding"] == [{"file": "m.8.onnx", "ep": "cpu", "ok": True}]
    assert data["whole"] == PROVED.to_json()
    assert data["sizes"] == {"a": 3}


def report_of(*passes: PassReport, left: tuple[FailedRepair, ...] = ()) -> Report:
    return Report("", passes, {}, {}, left=left)


def test_passes_that_raised_are_told_once() -> None:
    first, second = (FailedRepair(x, (), "raised", raised=True) for x in ("fold", "fuse-gelu"))
    reports = (report_of(left=(first,)), report_of(left=(second, first)))
    result = shipped(reports=reports, left=(FailedRepair("fuse-norm", ("n",), "wrong"),))
    assert result.faults == (first, second)
    assert [x["by"] for x in result.to_json()["left"]] == ["fold", "fuse-gelu", "fuse-norm"]


def test_passes_that_rounded_nothing_say_why() -> None:
    passes = [registry.get_pass("float16"), registry.get_pass("fold")]

    def said(name: str, *reasons: str, changes: tuple[Any, ...] = ()) -> Report:
        skips = tuple((f"n{i}", x) for i, x in enumerate(reasons))
        return report_of(PassReport(name, name, "exact", changes, skips))

    reports = [said("float16", "one", "two"), said("float16", "two", "three"), said("fold", "four")]
    assert reasons_not_rounded(passes, reports) == ("one", "two", "three")
    done = said("float16", "one", changes=(SimpleNamespace(),))
    assert reasons_not_rounded(passes, [done]) == ()


# The folder


def fill(folder: Path, **changes: Any) -> Shipped:
    (folder / "m.8.onnx").write_bytes(b"12345")
    return shipped(manifest=replace(MANIFEST, **changes))


def test_a_folder_that_is_proved_has_its_name_and_verdict(tmp_path: Path) -> None:
    target = tmp_path / "out"
    result = write_folder(target, lambda path: replace(fill(path), padding=(PaddingProof(True),)))
    assert result.folder == target
    assert sorted(x.name for x in target.iterdir()) == sorted(["m.8.onnx", NAME])
    assert result.sizes == {"m.8.onnx": 5, NAME: (target / NAME).stat().st_size}
    verdict = read_manifest(target).verdict
    assert verdict == result.manifest.verdict
    assert verdict == {
        "ok": True,
        "check": str(result.checked),
        "padding": ["padding True"],
        "session": str(PROVED),
    }


@pytest.mark.parametrize(
    "changes", [{"whole": FAILED}, {"whole": None}, {"padding": (PaddingProof(False),)}]
)
def test_a_folder_that_is_not_proved_is_not_written(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    target = tmp_path / "out"
    result = write_folder(target, lambda path: replace(fill(path), **changes))
    assert result.folder is None
    assert not target.exists()


def test_models_share_a_file_of_weights(tmp_path: Path) -> None:
    weight = f"float[4, 4] w = {{{', '.join(['0.5'] * 16)}}}"
    text = f"m (float[T, 4] x) => (float[T, 4] y) <{weight}> {{ y = MatMul (x, w) }}"
    (tmp_path / "source").mkdir()
    source = tmp_path / "source" / "m.onnx"
    ir.save(ir.from_onnx_text(HEAD + text), source, external_data="m.data", size_threshold_bytes=0)
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    write_models([io.load(source) for _ in paths], paths, "a")
    shared = [x for x in tmp_path.iterdir() if x.is_file() and x not in paths]
    assert [x.stat().st_size for x in shared] == [4 * 16]
    (tmp_path / NAME).write_text("{}")
    shutil.rmtree(source.parent)
    records = records_of(tmp_path)
    assert [x.name for x in records] == sorted(x.name for x in (*paths, *shared))
    for record in records:
        content = (tmp_path / record.name).read_bytes()
        assert record.bytes == len(content)
        assert record.sha256 == hashlib.sha256(content).hexdigest()
    for path in paths:
        weights = ir.load(path).graph.initializers["w"].const_value
        assert weights is not None
        assert weights.numpy().tolist() == [[0.5] * 4] * 4


def test_containers_tell_the_kernels_before_and_after(tmp_path: Path) -> None:
    source = saved(HEAD + TEXT, tmp_path / "m.onnx")
    fixed = saved(HEAD + TEXT.replace("T,", "8,"), tmp_path / "m.8.onnx")
    told: list[str] = []
    (container,) = containers_with_kernels(source, [fixed], [{"T": 8}], told.append)
    assert (container.file, container.sizes) == ("m.8.onnx", {"T": 8})
    before, after = container.kernels["before"], container.kernels["after"]
    assert before is not None
    assert after is not None
    assert (before["dispatches"], after["dispatches"]) == (2, 1)
    assert told == ["planning m.8.onnx for DirectML"]
    bad = saved(HEAD + TEXT.replace("Neg (x)", "Add (x, x, x)"), tmp_path / "bad.onnx")
    (container,) = containers_with_kernels(bad, [fixed], [{"T": 8}], told.append)
    assert container.kernels["before"] is None


def test_where_a_folder_comes_from(tmp_path: Path) -> None:
    source = saved(HEAD + TEXT, tmp_path / "m.onnx")
    left = FailedRepair("fold", ("n",), "wrong")
    given = ShipSource(tmp_path / "outputs" / "m.onnx", source, "top-k:output=y:k=2")
    data = provenance_of(given, "fast", {"T": ("time", "frames")}, [left])
    assert data == {
        "source": "m.onnx",
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "passes": "top-k:output=y:k=2,fast",
        "graphfix": __version__,
        "names": {"T": ["time", "frames"]},
        "left": [
            {
                "by": "fold",
                "at": ("n",),
                "why": "wrong",
                "instead": "",
                "raised": False,
                "costs": False,
            }
        ],
    }

"""Files: what is refused and in which words, and that a failure leaves nothing behind."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import ModelError, UsageError
from graphfix.model import io

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "me", model_version: 7>
    m (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Add (x, w) y = Relu (a) }"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    proto = onnx.parser.parse_model(TEXT)
    for node in proto.graph.node:  # the parser writes an empty domain where exporters write none
        node.ClearField("domain")
    onnx.save(proto, path)
    return path


@pytest.fixture
def external(tmp_path: Path) -> Path:
    folder = tmp_path / "big"
    folder.mkdir()
    model = ir.from_onnx_text(TEXT)
    ir.save(model, folder / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    return folder / "m.onnx"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


class TestLoad:
    @pytest.mark.parametrize(
        ("name", "data", "says"),
        [
            ("none.onnx", None, "no such file"),
            ("empty.onnx", b"", "is empty"),
            ("text.onnx", b"hello, this is no model", "not an ONNX"),
            ("zeros.onnx", b"\0" * 64, "not an ONNX"),
            ("image.onnx", b"\x89PNG\r\n\x1a\n" + b"\1" * 100, "not an ONNX"),
        ],
    )
    def test_what_is_not_a_model(
        self, tmp_path: Path, name: str, data: bytes | None, says: str
    ) -> None:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(ModelError, match=says):
            graphfix.load(path)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
    def test_a_truncated_file(self, file: Path, share: float) -> None:
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError, match=str(file)):
            graphfix.load(file)

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="is a folder"):
            graphfix.load(tmp_path)

    def test_missing_external_data(self, external: Path) -> None:
        (external.parent / "m.data").unlink()
        with pytest.raises(ModelError, match=r"weights of 'w'.*'m\.data'.*no such file"):
            graphfix.load(external)

    def test_short_external_data(self, external: Path) -> None:
        (external.parent / "m.data").write_bytes(b"123")
        with pytest.raises(ModelError, match="truncated"):
            graphfix.load(external)

    @pytest.mark.parametrize("location", ["../m.data", "/etc/hostname", "a/../../m.data"])
    def test_external_data_outside_the_folder(self, external: Path, location: str) -> None:
        proto = onnx.load(external, load_external_data=False)
        for entry in proto.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        external.write_bytes(proto.SerializeToString())
        shutil.copy(external.parent / "m.data", external.parent.parent / "m.data")
        with pytest.raises(ModelError, match="outside the model's folder"):
            graphfix.load(external)

    def test_weights_are_not_read(self, external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a weight was read")

        monkeypatch.setattr(ir.ExternalTensor, "_load", refuse)
        monkeypatch.setattr(ir.ExternalTensor, "tofile", refuse)
        model = graphfix.load(external)
        graphfix.save(model, external.with_name("copy.onnx"))


class TestSave:
    def test_a_round_trip_keeps_what_onnx_says(self, file: Path) -> None:
        out = file.with_name("out.onnx")
        graphfix.save(graphfix.load(file), out)
        before, after = onnx.load(file), onnx.load(out)
        assert after.graph == before.graph
        assert (after.producer_name, after.model_version) == ("me", 7)

    def test_the_input_is_never_overwritten(self, file: Path) -> None:
        data = file.read_bytes()
        link = file.with_name("link.onnx")
        link.symlink_to(file)
        for target in (file, link, file.parent / "." / "m.onnx"):
            with pytest.raises(UsageError, match="the input itself"):
                graphfix.save(graphfix.load(file), target)
        assert file.read_bytes() == data

    def test_another_file_is_replaced_whole(self, file: Path) -> None:
        out = file.with_name("out.onnx")
        out.write_bytes(b"old")
        graphfix.save(graphfix.load(file), out)
        assert onnx.load(out).graph == onnx.load(file).graph
        assert sorted(f.name for f in file.parent.iterdir()) == ["m.onnx", "out.onnx"]

    def test_external_weights_stay_where_they_are(self, external: Path) -> None:
        out = external.with_name("out.onnx")
        inode = (external.parent / "m.data").stat().st_ino
        graphfix.save(graphfix.load(external), out)
        assert sorted(f.name for f in external.parent.iterdir()) == ["m.data", "m.onnx", "out.onnx"]
        assert (external.parent / "m.data").stat().st_ino == inode
        weight = onnx.load(out).graph.initializer[0]
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), [1, 2, 3, 4])

    def test_external_weights_go_along_to_another_folder(
        self, external: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        graphfix.save(graphfix.load(external), other / "m.onnx")
        copied = other / "m.data"
        assert copied.read_bytes() == (external.parent / "m.data").read_bytes()
        assert copied.stat().st_nlink == 1
        assert onnx.load(other / "m.onnx").graph.initializer[0].raw_data

    def test_another_weight_file_is_not_overwritten(self, external: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "m.data").write_bytes(b"mine")
        with pytest.raises(ModelError, match="is not the weight file of this model"):
            graphfix.save(graphfix.load(external), other / "m.onnx")
        assert tree(other) == {"m.data": b"mine"}

    def test_a_missing_folder_is_not_made(self, file: Path) -> None:
        with pytest.raises(ModelError, match="there is no folder"):
            graphfix.save(graphfix.load(file), file.parent / "none" / "m.onnx")
        assert not (file.parent / "none").exists()

    def test_a_full_disk_leaves_nothing(
        self, file: Path, external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        other = tmp_path / "other"
        other.mkdir()
        model = graphfix.load(external)
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(ModelError, match="No space left on device; free some space"):
            graphfix.save(model, other / "m.onnx")
        assert tree(other) == {}

    def test_an_interrupt_leaves_nothing(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        model = graphfix.load(file)
        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            graphfix.save(model, file.with_name("out.onnx"))
        assert [f.name for f in file.parent.iterdir() if f.is_file()] == ["m.onnx"]

    def test_an_unchanged_model_is_copied_byte_for_byte(self, file: Path) -> None:
        # Bytes that onnx-ir would not write again in the same order.
        data = file.read_bytes() + onnx.ModelProto(doc_string="late").SerializeToString()
        file.write_bytes(data)
        out = file.with_name("out.onnx")
        with io.drafting(graphfix.load(file), out, changed=False) as draft:
            draft.keep()
        assert out.read_bytes() == data

    def test_a_draft_that_is_not_kept_vanishes(self, external: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        with io.drafting(graphfix.load(external), other / "m.onnx") as draft:
            assert onnx.load(draft.path).graph.node
        assert tree(other) == {}

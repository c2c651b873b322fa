"""Files: what is refused and in which words, and that a failure leaves nothing behind."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.errors import ModelError, UsageError
from graphfix.files import atomic_file, byte_ranges, io, wire

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "me", model_version: 7>
    m (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Add (x, w) y = Relu (a) }"""


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file, "GRACE", 0.0)


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


def only_data(path: Path) -> str:
    """The name of the one file of weights that a model refers to."""
    proto = onnx.load(path, load_external_data=False)
    tensors = [*proto.graph.initializer, *(a.t for n in proto.graph.node for a in n.attribute)]
    (name,) = {e.value for t in tensors for e in t.external_data if e.key == "location"}
    return name


def weight_in(path: Path, name: str = "w") -> np.ndarray:
    initializers = {x.name: x for x in onnx.load(path).graph.initializer}
    return onnx.numpy_helper.to_array(initializers[name])


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
        with pytest.raises(ModelError, match=re.escape(str(file))):
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

    def test_the_input_is_never_overwritten(
        self, file: Path, symlink: Callable[[Path, Path], None]
    ) -> None:
        data = file.read_bytes()
        link = file.with_name("link.onnx")
        symlink(link, file)
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
        for _ in range(2):  # a second run replaces what the first one wrote
            graphfix.save(graphfix.load(external), other / "n.onnx")
            model, data = sorted(tree(other))
            assert (model, data) == ("n.onnx", only_data(other / "n.onnx"))
            assert (other / data).stat().st_nlink == 1
            np.testing.assert_array_equal(weight_in(other / "n.onnx"), [1, 2, 3, 4])

    def test_a_file_of_someone_else_is_not_overwritten(
        self, external: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "n.onnx.data").write_bytes(b"mine")
        graphfix.save(graphfix.load(external), other / "n.onnx")
        assert (other / "n.onnx.data").read_bytes() == b"mine"
        assert sorted(tree(other)) == sorted(["n.onnx", "n.onnx.data", only_data(other / "n.onnx")])

    def test_what_an_earlier_run_wrote_comes_back_after_a_failure(
        self, external: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        graphfix.save(graphfix.load(external), other / "n.onnx")
        before = tree(other)
        with io.draft_model(graphfix.load(external), other / "n.onnx"):
            pass
        assert tree(other) == before

    def test_a_name_that_cannot_be_given_leaves_the_weights_as_they_were(
        self, external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        graphfix.save(graphfix.load(external), other / "n.onnx")
        before = tree(other)
        replace = Path.replace

        def failing(self: Path, target: Path) -> Path:
            if Path(target).name == "n.onnx":
                raise PermissionError(errno.EACCES, "Permission denied")
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(ModelError, match=r"n\.onnx: cannot be written: Permission denied"):
            graphfix.save(graphfix.load(external), other / "n.onnx")
        assert tree(other) == before

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
        monkeypatch.setattr(byte_ranges, "_write_all", full)
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
        with io.draft_model(graphfix.load(file), out, changed=False) as draft:
            draft.keep()
        assert out.read_bytes() == data

    def test_a_draft_that_is_not_kept_vanishes(self, external: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        with io.draft_model(graphfix.load(external), other / "m.onnx") as draft:
            assert onnx.load(draft.path).graph.node
        assert tree(other) == {}


@pytest.fixture
def inline(tmp_path: Path) -> Path:
    """A model with a big weight inside, and one in a Constant node."""
    big = np.arange(wire.BIG, dtype=np.float32)
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[N] x) => (float[N] y) <float[4] small = {1, 2, 3, 4}>
        { a = Mul (x, big) b = Add (a, c) y = Relu (b) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(big, "big"))
    node = onnx.helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(-big))
    proto.graph.node.insert(0, node)
    path = tmp_path / "inline.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr(ir.ExternalTensor, "_load", refuse)
    monkeypatch.setattr(ir.ExternalTensor, "tofile", refuse)
    monkeypatch.setattr(ir.ExternalTensor, "tobytes", refuse)


class TestInlineWeights:
    @pytest.mark.usefixtures("unread")
    def test_are_referred_to_and_streamed_back(self, inline: Path) -> None:
        model = graphfix.load(inline)
        assert isinstance(model.graph.initializers["big"].const_value, ir.ExternalTensor)
        out = inline.with_name("out.onnx")
        graphfix.save(model, out)
        before, after = onnx.load(inline), onnx.load(out)
        del after.graph.value_info[:]
        for proto in (before, after):
            for node in proto.graph.node:
                node.ClearField("domain")
        assert after.graph == before.graph
        assert sorted(f.name for f in inline.parent.iterdir()) == ["inline.onnx", "out.onnx"]

    def test_can_still_be_looked_at(self, inline: Path) -> None:
        tensor = graphfix.load(inline).graph.initializers["big"].const_value
        np.testing.assert_array_equal(tensor.numpy(), np.arange(wire.BIG))

    def test_go_beside_the_model_on_request_aligned(self, inline: Path) -> None:
        out = inline.with_name("out.onnx")
        graphfix.save(graphfix.load(inline), out, external_data="separate")
        proto = onnx.load(out, load_external_data=False)
        entries = {e.key: e.value for t in proto.graph.initializer for e in t.external_data}
        assert re.fullmatch(r"out\.onnx\.[0-9a-f]{16}\.data", entries["location"])
        assert int(entries["offset"]) % 64 == 0
        np.testing.assert_array_equal(weight_in(out, "big"), np.arange(wire.BIG))
        np.testing.assert_array_equal(weight_in(out, "small"), [1, 2, 3, 4])

    def test_external_ones_go_inside_on_request(self, external: Path) -> None:
        out = external.with_name("out.onnx")
        graphfix.save(graphfix.load(external), out, external_data="inline")
        assert not onnx.load(out, load_external_data=False).graph.initializer[0].external_data
        np.testing.assert_array_equal(weight_in(out), [1, 2, 3, 4])

    def test_over_two_gigabytes_go_beside(
        self, inline: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(io, "_LIMIT", 100_000)
        out = inline.with_name("out.onnx")
        with pytest.raises(ModelError, match="--external-data separate"):
            graphfix.save(graphfix.load(inline), out, external_data="inline")
        assert not out.exists()
        model = graphfix.load(inline)
        model.doc_string = "edited"  # or the file would be copied, which the limit let be written
        graphfix.save(model, out)
        assert (inline.parent / only_data(out)).exists()
        np.testing.assert_array_equal(weight_in(out, "big"), np.arange(wire.BIG))

    def test_a_layout_that_is_not_understood_is_read_as_usual(self, inline: Path) -> None:
        # A second graph field is merged into the first, says protobuf.
        more = onnx.ModelProto(graph=onnx.GraphProto(doc_string="more")).SerializeToString()
        inline.write_bytes(inline.read_bytes() + more)
        model = graphfix.load(inline)
        assert model.graph.doc_string == "more"
        assert not isinstance(model.graph.initializers["big"].const_value, ir.ExternalTensor)
        np.testing.assert_array_equal(
            model.graph.initializers["big"].const_value.numpy(), np.arange(wire.BIG)
        )

    def test_copying_works_without_help_from_the_kernel(
        self, inline: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
        out = inline.with_name("out.onnx")
        graphfix.save(graphfix.load(inline), out)
        np.testing.assert_array_equal(weight_in(out, "big"), np.arange(wire.BIG))


@st.composite
def messages(draw: st.DrawFn) -> onnx.ModelProto:
    """Models with weights of any size, in any place, with fields that onnx-ir does not know."""
    tensors = [
        onnx.numpy_helper.from_array(
            np.full(draw(st.sampled_from([0, 1, 100, 16383, 16384, 16385, 40000])), i, np.float32),
            f"w{i}",
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    nodes = [
        onnx.helper.make_node("Constant", [], [f"c{i}"], value=tensor)
        for i, tensor in enumerate(tensors)
        if draw(st.booleans())
    ]
    graph = onnx.GraphProto(name="g", initializer=tensors, node=nodes)
    return onnx.ModelProto(ir_version=8, graph=graph, producer_name=draw(st.text(max_size=5)))


@settings(max_examples=50, deadline=None)
@given(messages())
def test_slim_then_fill_gives_the_same_model(proto: onnx.ModelProto) -> None:
    data = proto.SerializeToString()
    slim = wire.strip_weights(memoryview(data), "file")
    assert len(slim) < 16 * wire.BIG

    def resolve(entries: dict[str, str]) -> wire.Span:
        return wire.Span("file", int(entries["offset"]), int(entries["length"]))

    chunks = wire.fill_weights(slim, resolve)
    whole = b"".join(
        data[x.offset : x.offset + x.length] if isinstance(x, wire.Span) else bytes(x)
        for x in chunks
    )
    assert wire.total_size(chunks) == len(whole)
    assert onnx.load_model_from_string(whole) == proto


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    try:
        wire.strip_weights(memoryview(data), "file")
    except wire.NotUnderstoodError:
        return


@pytest.mark.parametrize(
    ("node", "output", "says"),
    [
        ("y = Add (x, nowhere)", "y", "Add reads 'nowhere'"),
        ("y = Relu (x)", "z", "the graph returns 'z'"),
    ],
)
def test_a_name_that_nothing_defines_is_told(
    tmp_path: Path, node: str, output: str, says: str
) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 18]> m (float[N] x) => (float[N] {output})'
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f"{text} {{ {node} }}"), path)
    with pytest.raises(ModelError, match=f"not a well-formed ONNX graph: {says}, which no node"):
        io.load(path)

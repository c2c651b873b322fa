"""One model for each of several sizes, and one file of weights for all of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import graphfix
from graphfix.cli import group
from graphfix.errors import ModelError, UsageError
from graphfix.job import size_variants
from graphfix.model import wire
from graphfix.runtime.local_session import Session

WIDTH = 160  # so that one weight is big
TEXT = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, {WIDTH}] x) => (float[B, T, 2, {WIDTH // 2}] y)
    <int64[1] heads = {{2}}, int64[1] size = {{{WIDTH // 2}}}> {{
        h = MatMul (x, w)
        s = Shape <start = 0, end = 2> (h)
        to = Concat <axis = 0> (s, heads, size)
        y = Reshape (h, to)
    }}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    assert weight.nbytes > wire.BIG
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def external(file: Path) -> Path:
    folder = file.parent / "given"
    folder.mkdir()
    graphfix.save(graphfix.load(file), folder / "model.onnx", external_data="separate")
    file.unlink()
    return folder / "model.onnx"


def locations(path: Path) -> set[tuple[str, str]]:
    proto = onnx.load(path, load_external_data=False)
    entries = [{e.key: e.value for e in t.external_data} for t in proto.graph.initializer]
    return {(x["location"], x["offset"]) for x in entries if x}


def data_in(folder: Path) -> str:
    """The name of the one file of weights that all buckets share."""
    (path,) = folder.glob("*.buckets.*.data")
    return path.name


def listing(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir() if x.is_file())


def test_inline_weights_move_out_once(file: Path) -> None:
    reports = graphfix.repair_buckets(file, passes="fix-dims:T=5,30,B=1")
    assert [x.ok for x in reports] == [True, True]
    data = data_in(file.parent)
    assert listing(file.parent) == ["model.30.onnx", "model.5.onnx", data, "model.onnx"]
    assert locations(file.with_name("model.5.onnx")) == {(data, "0")}
    assert locations(file.with_name("model.30.onnx")) == {(data, "0")}
    assert file.with_name(data).stat().st_size == WIDTH * WIDTH * 4
    x = np.ones((1, 30, WIDTH), np.float32)
    with Session(str(file)) as before, Session(reports[1].output) as after:
        np.testing.assert_allclose(after.run({"x": x})["y"], before.run({"x": x})["y"], rtol=1e-5)


def test_external_weights_beside_it_stay(external: Path) -> None:
    given = listing(external.parent)
    graphfix.repair_buckets(external, passes="fix-dims:T=5,30")
    assert listing(external.parent) == sorted(["model.30.onnx", "model.5.onnx", *given])
    assert locations(external.with_name("model.5.onnx")) == locations(external)


def test_external_weights_go_along_once(external: Path, tmp_path: Path) -> None:
    graphfix.repair_buckets(external, tmp_path / "out.onnx", "fix-dims:T=5,30")
    assert listing(tmp_path) == ["out.30.onnx", "out.5.onnx", data_in(tmp_path)]
    assert len({*locations(tmp_path / "out.5.onnx"), *locations(tmp_path / "out.30.onnx")}) == 1


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fix-dims:T=5,30,B=1,2", "B and T|T and B"),
        ("fix-dims:T=5s,30s", "in seconds.*rate=100"),
        ("fix-dims:T=5s,30s:rate=fast", "rate=fast is no number"),
        ("fix-dims:buckets=5,30", r"could be of B, T; write T=5,30 instead"),
        ("fix-dims:T=5,30:B=1:buckets=2,3", "no symbolic dim left"),
        ("fix-dims:T=1.5,2", "not a whole number"),
        ("fix-dims:T=0,2", "T=0 is no size"),
        ("fix-dims:t=5,30", "no input has a dim named 't'"),
        ("fix-dims:T=5,30,fix-dims:B=1", "name fix-dims once"),
    ],
)
def test_what_is_an_error(file: Path, spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        graphfix.repair_buckets(file, passes=spec)
    assert listing(file.parent) == ["model.onnx"]


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("fix-dims:T=5,30", {"5": "fix-dims:T=5", "30": "fix-dims:T=30"}),
        ("fix-dims:T=30,5:B=1", {"5": "fix-dims:T=5:B=1", "30": "fix-dims:T=30:B=1"}),
        ("fix-dims:T=0.5s,3s:rate=100", {"0.5s": "fix-dims:T=50", "3s": "fix-dims:T=300"}),
        ("fix-dims:B=1:buckets=5,9", {"5": "fix-dims:B=1:T=5", "9": "fix-dims:B=1:T=9"}),
        ("bool-cast,fix-dims:T=5,5,thaw", {"5": "bool-cast,fix-dims:T=5,thaw"}),
        ("fix-dims:T=5s:rate=50", {"5s": "fix-dims:T=250"}),
    ],
)
def test_the_spellings(spec: str, made: dict[str, str]) -> None:
    assert size_variants.are_in(spec)
    assert {x.label: x.spec for x in size_variants.expand(spec, ["B", "T"])} == made


@pytest.mark.parametrize("spec", ["fix-dims:T=5,B=1", "directml", "additive-mask:floor=-1000"])
def test_what_names_one_size(spec: str) -> None:
    assert not size_variants.are_in(spec)


def test_one_model_cannot_have_two_sizes(file: Path) -> None:
    with pytest.raises(UsageError, match=r"T=5,30 are several sizes.*repair_buckets"):
        graphfix.repair_file(file, passes="fix-dims:T=5,30")


def test_a_size_at_which_it_cannot_run_leaves_nothing(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[2, 3] y)
        <int64[2] s = {2, 3}> { y = Reshape (x, s) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"no model for 7: .*cannot run at these sizes"):
        graphfix.repair_buckets(tmp_path / "m.onnx", passes="fix-dims:T=6,7")
    assert listing(tmp_path) == ["m.onnx"]


def test_a_failure_leaves_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphfix.job import prove
    from graphfix.proof.verify import Verdict

    verdicts = [Verdict(True, {}), Verdict(False, {}, reason="no")]
    monkeypatch.setattr(prove, "_verify", lambda *_, **__: verdicts.pop(0))
    reports = graphfix.repair_buckets(file, passes="fix-dims:T=5,30")
    assert [x.ok for x in reports] == [True, False]
    assert [x.output for x in reports] == [None, None]
    assert listing(file.parent) == ["model.onnx"]


@pytest.mark.parametrize("there", [(), ("5",), ("5", "30", "60")])
def test_a_name_that_cannot_be_given_leaves_each_file_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...]
) -> None:
    earlier = {f"model.{size}.onnx": f"earlier {size}".encode() for size in there}
    for name, content in earlier.items():
        file.with_name(name).write_bytes(content)
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if Path(target).name == "model.60.onnx":
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    told = r"model\.60\.onnx: cannot be written: Permission denied.*; written: .*model\.30\.onnx$"
    with pytest.raises(ModelError, match=told):
        graphfix.repair_buckets(file, passes="fix-dims:T=5,30,60", check=False)
    for size in (5, 30):
        graphfix.load(file.with_name(f"model.{size}.onnx"))
    monkeypatch.undo()
    graphfix.repair_buckets(file, passes="fix-dims:T=5,30,60", check=False)
    data = data_in(file.parent)
    made = ["model.30.onnx", "model.5.onnx", "model.60.onnx", data, "model.onnx"]
    assert listing(file.parent) == made


def test_the_command_line(file: Path) -> None:
    spec = "fix-dims:B=1:buckets=5s,30s:rate=10"
    ran = CliRunner().invoke(group, ["run", str(file), "-p", spec, "--json"], standalone_mode=False)
    data = json.loads(ran.stdout)
    outputs = [Path(x["output"]).name for x in data["buckets"]]
    assert outputs == ["model.5s.onnx", "model.30s.onnx"]
    shape = onnx.load(file.with_name("model.30s.onnx"), load_external_data=False).graph.input[0]
    assert [x.dim_value for x in shape.type.tensor_type.shape.dim] == [1, 300, WIDTH]


def test_inline_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="share one file of weights"):
        graphfix.repair_buckets(file, passes="fix-dims:T=5,30", external_data="inline")


def test_a_file_of_someone_else_is_not_overwritten(file: Path) -> None:
    file.with_name("model.buckets.data").write_bytes(b"mine")
    graphfix.repair_buckets(file, passes="fix-dims:T=5,30", check=False)
    assert file.with_name("model.buckets.data").read_bytes() == b"mine"


def test_a_model_that_is_told_lengths_is_held_to_its_clips(file: Path, tmp_path: Path) -> None:
    minus = "m = MatMul (x, w) c = ReduceMean <axes = [1]> (m) h = Sub (m, c)"
    text = TEXT.replace("h = MatMul (x, w)", minus)
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(x for x in onnx.load(file).graph.initializer if x.name == "w")
    source = tmp_path / "mean.onnx"
    onnx.save(proto, source)
    spec = "ilens-mask,fix-dims:T=5,30,B=1"
    for _ in range(2):  # the second time over its own output
        reports = graphfix.repair_buckets(source, passes=spec)
        assert [x.ok for x in reports] == [True, True]
        for report, size in zip(reports, (5, 30), strict=True):
            assert report.padded is not None
            assert {x["container"] for x in report.padded["checks"]} == {size}
    one = graphfix.repair_file(source, tmp_path / "one.onnx", "ilens-mask,fix-dims:T=5,B=1")
    assert one.ok
    assert one.padded is not None

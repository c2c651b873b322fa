"""graphfix ship: what it makes, what it refuses, and that nothing is left of what fails."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphfix
from graphfix.cli import main
from graphfix.errors import FeedError, ModelError, PaddingError, UsageError
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping import build, container_repair, end_to_end
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.end_to_end import SessionProof
from tests.shipping.conftest import MEAN, saved

Pair = tuple[Path, Path]


class TestWanted:
    def test_numbers_and_seconds(self) -> None:
        assert parse_containers(["T=3000,500", "B=1"]).sizes == {"T": (500, 3000), "B": (1,)}
        assert parse_containers(["T=5s,0.5s"], 16000).sizes == {"T": (8000, 80000)}

    @pytest.mark.parametrize(
        ("text", "rate", "told"),
        [
            ("500", None, "write NAME=SIZE,SIZE such as T=500,3000"),
            ("T=", None, "write NAME=SIZE,SIZE"),
            ("T=5s", None, "say how many frames or samples a second has, such as --rate 16000"),
            ("T=1.5", None, "1.5 is not a whole number"),
            ("T=x", None, "'x' is no size"),
            ("T=0", None, "a size is at least 1"),
            ("T=99999999999", None, "at most 2,147,483,647"),
            ("T=5s", 0.0, "--rate 0: is no number of frames"),
        ],
    )
    def test_what_is_no_size_is_a_sentence(self, text: str, rate: float | None, told: str) -> None:
        with pytest.raises(UsageError, match=told):
            parse_containers([text], rate)


class TestFolder:
    def test_it_has_a_model_a_container_and_a_manifest(self, mean: Pair) -> None:
        names = {x.name for x in mean[1].iterdir()}
        assert names >= {"graphfix.json", "mean.8.onnx", "mean.20.onnx"}
        manifest = read_manifest(mean[1])
        assert names == {
            "graphfix.json",
            *(x.name for x in manifest.files),
            *(x.file for x in manifest.containers),
        }

    def test_the_manifest_says_how_much_is_valid(self, mean: Pair) -> None:
        manifest = read_manifest(mean[1])
        assert (manifest.axis.dim, manifest.axis.input, manifest.axis.axis) == ("T", "x", 2)
        assert (manifest.batch, manifest.lengths) == ("B", "ilens")
        dims = {x.name: x.dims for x in manifest.outputs}
        assert dims["pooled"] == ("B", 3)
        assert dims["frames"][:2] == ("B", 3)
        assert "T" in str(dims["frames"][2])
        assert [x.sizes for x in manifest.containers] == [{"T": 8, "B": 1}, {"T": 20, "B": 1}]
        assert manifest.verdict["ok"]

    def test_every_dim_of_what_is_shipped_is_fixed(self, mean: Pair) -> None:
        for container in read_manifest(mean[1]).containers:
            model = onnx.load(mean[1] / container.file)
            for value in model.graph.input:
                dims = value.type.tensor_type.shape.dim
                assert all(d.HasField("dim_value") for d in dims)

    def test_a_mask_of_the_models_own_is_used(self, masked: Pair) -> None:
        manifest = read_manifest(masked[1])
        assert manifest.lengths is None
        assert {x.name: x.kind for x in manifest.inputs} == {"x": "data", "mask": "mask"}

    def test_again_over_its_own_output(self, mean: Pair, tmp_path: Path) -> None:
        source, folder = mean
        shutil.copytree(folder, tmp_path / "out")
        build.ship_file(source, tmp_path / "out", parse_containers(["T=6"]))
        assert {x.suffix for x in (tmp_path / "out").iterdir()} >= {".onnx", ".json"}
        assert not (tmp_path / "out" / "mean.8.onnx").exists()
        assert [x.name for x in tmp_path.iterdir()] == ["out"]

    def test_never_over_what_it_did_not_make(self, mean: Pair, tmp_path: Path) -> None:
        source, folder = mean
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "precious.txt").write_text("x", encoding="utf-8")
        with pytest.raises(UsageError, match="'graphfix ship' did not make it"):
            build.ship_file(source, theirs, parse_containers(["T=6"]))
        ours = tmp_path / "ours"
        shutil.copytree(folder, ours)
        (ours / "notes.txt").write_text("x", encoding="utf-8")
        with pytest.raises(UsageError, match=r"holds notes\.txt"):
            build.ship_file(source, ours, parse_containers(["T=6"]))
        assert (ours / "notes.txt").exists()
        assert (ours / "mean.8.onnx").exists()

    def test_nothing_is_left_of_what_does_not_agree(
        self, mean: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.copytree(mean[1], tmp_path / "out")
        before = sorted(x.name for x in (tmp_path / "out").iterdir())
        monkeypatch.setattr(
            container_repair,
            "prove_end_to_end",
            lambda *_: SessionProof(False, (), "it does not"),
        )
        done = build.ship_file(mean[0], tmp_path / "out", parse_containers(["T=6"]))
        assert (done.ok, done.folder) == (False, None)
        assert [x.name for x in tmp_path.iterdir()] == ["out"]
        assert sorted(x.name for x in (tmp_path / "out").iterdir()) == before

    def test_a_container_that_does_not_run_is_a_result(
        self, mean: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise RunError("no such axis")

        monkeypatch.setattr(end_to_end, "call_in_worker", fails)
        done = build.ship_file(mean[0], tmp_path / "out", parse_containers(["T=6"]))
        assert not done.ok
        assert "does not run: no such axis" in str(done.whole)
        assert not list(tmp_path.iterdir())


class TestRefusals:
    def test_a_size_that_the_model_does_not_run_at(self, tmp_path: Path) -> None:
        text = """
        < ir_version: 8, opset_import: ["" : 17] >
        placed (float[1, T, 2] x) => (float[1, T, 2] y)
        <float[6, 2] table = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0},
         int64 zero = {0}, int64 one = {1}>
        {
            shape = Shape <start = 1, end = 2> (x)
            n = Squeeze (shape)
            index = Range (zero, n, one)
            place = Gather (table, index)
            y = Add (x, place)
        }
        """
        source = saved(text, tmp_path / "m.onnx")
        with pytest.raises(UsageError, match="T=7: the model as given does not run at that size"):
            build.ship_file(source, tmp_path / "out", parse_containers(["T=7"]))
        assert build.ship_file(source, tmp_path / "out", parse_containers(["T=6"])).ok

    def test_a_dim_without_a_size(self, mean: Pair, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="T has none; say --container T=500,3000"):
            build.ship_file(mean[0], tmp_path / "out", parse_containers(["B=1"]))
        with pytest.raises(UsageError, match="no input has a dim 'frames'; there are: B, T"):
            build.ship_file(mean[0], tmp_path / "out", parse_containers(["frames=1"]))

    def test_rows_that_an_output_does_not_have(self, tmp_path: Path) -> None:
        text = """
        < ir_version: 8, opset_import: ["" : 17] >
        total (float[B, T, 2] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }
        """
        source = saved(text, tmp_path / "m.onnx")
        with pytest.raises(UsageError, match="'y' has no axis of rows"):
            build.ship_file(source, tmp_path / "out", parse_containers(["T=7", "B=2"]))

    def test_a_model_of_one_size(self, tmp_path: Path) -> None:
        text = """
        < ir_version: 8, opset_import: ["" : 17] >
        fixed (float[1, 4] x) => (float[1, 4] y) { y = Relu (x) }
        """
        with pytest.raises(UsageError, match="no symbolic dim, so nothing can be padded"):
            build.ship_file(
                saved(text, tmp_path / "m.onnx"), tmp_path / "o", parse_containers(["T=7"])
            )

    @pytest.mark.parametrize(
        ("text", "sizes", "told"),
        [
            (
                """baked (float[N, 4, 4] x) => (float[N, 16] y) <int64[2] s = {1, 16}>
                { y = Reshape (x, s) }""",
                "T=7",
                "no dim may vary, .*: N = 1, from Reshape 'y'. .*fix-dims:N=1",
            ),
            (
                "words (string[B, T] x) => (string[B, T] y) { y = Identity (x) }",
                "T=7",
                "the input 'x' cannot be put into a container: its type is STRING",
            ),
            *(
                (
                    "rows (float[batch_size, 4] x) => (float[batch_size, 4] y) { y = Relu (x) }",
                    sizes,
                    "only batch_size, the batch, may vary, .*fix-dims:batch_size=2 -o",
                )
                for sizes in ("B=2", "batch_size=2")
            ),
        ],
    )
    def test_what_has_no_containers(self, text: str, sizes: str, told: str, tmp_path: Path) -> None:
        source = saved(f'<ir_version: 8, opset_import: ["" : 17]> {text}', tmp_path / "m.onnx")
        with pytest.raises(UsageError, match=told):
            build.ship_file(source, tmp_path / "o", parse_containers([sizes]))

    def test_a_size_that_a_weight_dictates_is_fixed(self, tmp_path: Path) -> None:
        text = """
        < ir_version: 8, opset_import: ["" : 17] >
        widen (float[B, T, F] x) => (float[B, T, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
        { y = MatMul (x, w) }
        """
        source = saved(text, tmp_path / "m.onnx")
        with pytest.raises(FeedError, match="F is 3, as w wants it"):
            build.ship_file(source, tmp_path / "out", parse_containers(["T=6", "F=4"]))
        assert build.ship_file(source, tmp_path / "out", parse_containers(["T=6"])).ok
        shipped = onnx.load(tmp_path / "out" / "m.6.onnx").graph.input[0]
        assert [x.dim_value for x in shipped.type.tensor_type.shape.dim] == [1, 6, 3]

    def test_a_manifest_of_another_version(self, mean: Pair, tmp_path: Path) -> None:
        shutil.copytree(mean[1], tmp_path / "out")
        path = tmp_path / "out" / "graphfix.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**data, "schema": 99}), encoding="utf-8")
        with pytest.raises(ModelError, match="has schema 99, and this graphfix reads 2"):
            graphfix.Session(tmp_path / "out")

    @pytest.mark.parametrize(
        "file",
        [
            "../mean.onnx",
            "..\\mean.onnx",
            pytest.param(
                "C:mean.onnx",
                marks=pytest.mark.skipif(os.name != "nt", reason="a plain name elsewhere"),
            ),
        ],
    )
    def test_a_manifest_that_names_a_file_elsewhere(
        self, file: str, mean: Pair, tmp_path: Path
    ) -> None:
        shutil.copytree(mean[1], tmp_path / "out")
        path = tmp_path / "out" / "graphfix.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        data["containers"][0]["file"] = file
        path.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(ModelError, match="is malformed"):
            graphfix.Session(tmp_path / "out")


@pytest.mark.parametrize(
    ("dims", "told"),
    [
        ("batch, 3", "graphfix run MODEL -p directml,fix-dims:batch=1 -o fixed.onnx"),
        ("N, 3", "say --axis N"),
        ("2, 3", "graphfix run MODEL"),
    ],
)
def test_what_is_no_clip_is_refused_with_the_next_command(
    tmp_path: Path, dims: str, told: str
) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    fixed (float[{dims}] x) => (float[{dims}] y) {{ y = Softmax <axis = -1> (x) }}"""
    with pytest.raises(UsageError, match=re.escape(told)):
        build.ship_file(
            saved(text, tmp_path / "m.onnx"), tmp_path / "out", parse_containers(["T=9"])
        )


def test_frames_that_come_first_are_padded_if_they_are_named(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    frames (float[T, 3] x) => (float[T, 3] y) { y = Softmax <axis = -1> (x) }"""
    source = saved(text, tmp_path / "m.onnx")
    assert build.ship_file(source, tmp_path / "out", parse_containers(["T=9"])).ok


def test_dims_without_a_name(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MEAN)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    onnx.save(model, tmp_path / "unnamed.onnx")
    done = build.ship_file(tmp_path / "unnamed.onnx", tmp_path / "out", parse_containers(["T=9"]))
    assert done.ok
    feeds = {"x": np.ones((1, 4, 5), np.float32), "language": np.array([2])}
    _, frames = graphfix.Session(tmp_path / "out").run(None, feeds)
    assert frames.shape == (1, 3, 3)


@pytest.mark.parametrize(
    "name", ["x.1", "[samples]", "a=b,c", "f(", "../..", "größe", "in", "None", "µs"]
)
def test_dims_of_any_name(tmp_path: Path, name: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    named (float[B, T, 4] x) => (float[U, T, 4] y) { y = Tanh (x) }"""
    model = onnx.parser.parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = name
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "y:0"  # of no input
    onnx.save(model, tmp_path / "named.onnx")
    done = build.ship_file(tmp_path / "named.onnx", tmp_path / "out", parse_containers(["T=9"]))
    assert done.ok
    (made,) = graphfix.Session(tmp_path / "out").run(None, {"x": np.ones((1, 5, 4), np.float32)})
    assert made.shape == (1, 5, 4)


def test_a_mask_of_what_is_padding(tmp_path: Path) -> None:
    """It is filled with 1 behind the clip, and the length is told by an input of its own."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    gone (float[B, T, 4] x, bool[B, T] gone) => (float[B, 4] y)
    <int64[1] at = {-1}, int64[1] t = {1}>
    {
        here = Not (gone)
        f = Cast <to = 1> (here)
        u = Unsqueeze (f, at)
        z = Mul (x, u)
        s = ReduceSum <keepdims = 0> (z, t)
        most = ReduceMax <axes = [1], keepdims = 0> (x)
        y = Add (s, most)
    }"""
    done = build.ship_file(
        saved(text, tmp_path / "m.onnx"), tmp_path / "out", parse_containers(["T=8"])
    )
    assert done.ok, str(done)
    feeds = {"x": -np.ones((1, 3, 4), np.float32), "gone": np.zeros((1, 3), np.bool_)}
    (made,) = graphfix.Session(tmp_path / "out").run(None, feeds)
    assert made.tolist() == [[-4.0] * 4]


@pytest.mark.parametrize(("model", "folder"), [("m\udcff.onnx", "out"), ("m.onnx", "o\udcff")])
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, model: str, folder: str) -> None:
    with pytest.raises(UsageError, match="is not in UTF-8, and ONNX Runtime opens no file of such"):
        build.ship_file(tmp_path / model, tmp_path / folder, parse_containers(["T=9"]))


class TestChecked:
    def test_what_the_original_has_is_counted_and_gone(self, mean: Pair, tmp_path: Path) -> None:
        done = build.ship_file(mean[0], tmp_path / "out", parse_containers(["T=8"]))
        rules = {x.rule for x in done.checked.before}
        assert "dynamic-dims" in rules
        assert not done.checked.after
        assert "nothing left" in done.manifest.verdict["check"]

    def test_an_error_that_is_left_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        left (float[B, T] x) => (float[B, T] y) <float least = {2.0}, float most = {1.0}> {
            y = Clip (x, least, most)
        }"""
        source = saved(text, tmp_path / "left.onnx")
        given = ["ship", str(source), "--container", "T=8", "-o", str(tmp_path / "out")]
        assert main([*given, "-p", "ilens-mask"]) == 0
        assert "left      clip-minmax at " in capsys.readouterr().out
        assert main(given) == 0
        assert "clip-minmax" not in capsys.readouterr().out


class TestCommand:
    def test_what_it_prints(
        self, mean: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        assert main(["ship", str(mean[0]), "--container", "T=8", "-o", str(out)]) == 0
        told = capsys.readouterr().out
        assert "mean.8.onnx, T=8" in told
        assert "on the CPU the same in all" in " ".join(told.split())
        assert "-> 1 on DirectML" in told
        assert "the same in all" in told
        assert "graphfix.Session(" in told

    def test_json(self, mean: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "out"
        assert main(["ship", str(mean[0]), "--container", "T=8", "-o", str(out), "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["ok"]
        assert data["manifest"]["containers"][0]["sizes"] == {"T": 8, "B": 1}
        assert [(x["file"], x["ep"], x["ok"]) for x in data["padding"]] == [
            ("mean.8.onnx", "cpu", True)
        ]

    def test_a_failed_proof_is_exit_code_1(
        self,
        mean: Pair,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(
            container_repair,
            "prove_end_to_end",
            lambda *_: SessionProof(False, (), "it does not"),
        )
        out = tmp_path / "out"
        assert main(["ship", str(mean[0]), "--container", "T=8", "-o", str(out)]) == 1
        assert "it does not" in capsys.readouterr().err
        assert not out.exists()

    def test_seconds_without_a_rate_are_exit_code_2(
        self, mean: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        assert main(["ship", str(mean[0]), "--container", "T=8s", "-o", str(out)]) == 2
        assert "--rate 16000" in capsys.readouterr().err


@pytest.mark.parametrize(
    "mixes",
    [
        "h = ReduceMax <axes = [0]> (x)",
        "h = Softmax <axis = 0> (x)",
        "f = Reshape (x, flat) g = Softmax <axis = 0> (f) z = Shape (x) h = Reshape (g, z)",
    ],
)
def test_what_mixes_rows_of_a_batch_is_shipped_with_one(mixes: str, tmp_path: Path) -> None:
    """The batch is fixed first, then padding is looked at: one row has one length."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 4] x) => (float[B, T, 4] y) <int64[2] flat = {{-1, 4}}>
        {{ {mixes} y = Add (x, h) }}"""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    shipped = build.ship_file(path, tmp_path / "out", parse_containers(["T=9,24"]))
    assert shipped.ok
    with pytest.raises(PaddingError, match=r"batch|row"):
        build.ship_file(path, tmp_path / "two", parse_containers(["T=9", "B=2"]))

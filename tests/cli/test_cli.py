"""The command line: what it prints and where, its exit codes, and what it leaves behind."""

from __future__ import annotations

import errno
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.cli import _options, group, main
from graphfix.engine import pipeline, registry
from graphfix.spec.manual import manual_of
from tests.cli.conftest import said

pytestmark = pytest.mark.usefixtures("quiet")

MASKED = manual_of(registry.pass_class("additive-mask")).before
PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N, 4] x) => (float[N, 4] z) { y = Relu (x) z = Add (y, x) }"""
ODD = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N, 4] x) => (float[N, 4] z) { y = Relu (x) z = Relu (y) }"""
# A pass that is wrong on purpose, with near misses.
WRONG = '''
from dataclasses import dataclass
from typing import ClassVar
import graphfix

@dataclass(frozen=True)
class Wrong(graphfix.NodePass[graphfix.Match]):
    """Relu(x) becomes x + x, which is not the same."""

    name: ClassVar[str] = "wrong"
    anchors: ClassVar[tuple[str, ...]] = ("Relu", "Add")
    only_look: bool = False

    def match(self, node, view):
        if node.op_type == "Add" or self.only_look:
            return graphfix.Skip(node, "it is none of ours")
        return graphfix.Match(node)

    def rewrite(self, match, op):
        x = match.node.inputs[0]
        return op.Add(x, x)
'''


def save(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    return save(tmp_path / "model.onnx", MASKED)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return save(tmp_path / "plain.onnx", PLAIN)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path / "wrong.py"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in folder.rglob("*")
        if f.is_file() and f.suffix != ".pyc"
    }


class TestRun:
    def test_it_writes_beside_the_model_and_says_what_it_did(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, err = said(capsys, "run", masked, "-p", "additive-mask")
        assert (code, err) == (0, "")
        fixed = masked.with_name("model.fixed.onnx")
        assert " ".join(out.split()).startswith(f"{masked} -> {fixed} worse on DirectML")
        assert re.search(r"  numbers   (identical|the same) in \d+ cases", out)
        assert "  repairs   2: 2 additive-mask\n" in out
        assert len(out.splitlines()) <= 15
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "-v")
        assert "additive-mask  2 repairs (valid-rows)" in out
        assert "Where 2 -> 0" in out
        assert "Where" not in {n.op_type for n in onnx.load(fixed).graph.node}

    def test_weights_go_where_one_says(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        proto = onnx.parser.parse_model(PLAIN.replace("Add (y, x)", "Add (y, w)"))
        weight = np.zeros((20000, 4), np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 20000
        proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 20000
        onnx.save(proto, path)
        out = tmp_path / "out.onnx"
        assert main(["run", str(path), "-o", str(out), "--external-data", "separate"]) == 0
        assert out.stat().st_size < 10_000
        (data,) = tmp_path.glob("out.onnx.*.data")
        assert data.stat().st_size == weight.nbytes
        back = tmp_path / "back.onnx"
        assert main(["run", str(out), "-o", str(back), "--external-data", "inline"]) == 0
        assert back.stat().st_size > weight.nbytes

    def test_what_a_repair_rests_on_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = """<ir_version: 8, opset_import: ["" : 18]>
            m (float[N, 4] x, int64[2] to) => (float[P, Q] y)
            { y = Reshape <allowzero = 1> (x, to) }"""
        path = save(tmp_path / "model.onnx", model)
        _, out, _ = said(capsys, "run", path, "-p", "reshape-allowzero", "--no-verify", "-v")
        assert "reshape-allowzero  1 repair (conditional)" in out
        assert "1 x rests on assume-nonempty" in " ".join(out.split())

    def test_json_is_one_document_and_the_report(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = masked.with_name("out.onnx")
        code, out, err = said(capsys, "run", masked, "-p", "additive-mask", "-o", target, "--json")
        assert (code, err) == (0, "")
        data = json.loads(out)
        assert data["schema"] == 1
        assert data["output"] == str(target)
        assert data["verdict"]["ok"]
        assert len(data["passes"][0]["changes"]) == 2
        assert set(data["kernels"]) == {"before", "after"}

    def test_the_kernels_of_a_run_are_said(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--json", "--dry-run")
        assert json.loads(out)["kernels"] is None
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--json")
        counted = json.loads(out)["kernels"]
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask")
        told = " ".join(out.split())
        before, after = counted["before"], counted["after"]
        on_directml = f"{before['directml']} -> {after['directml']} on DirectML"
        on_cpu = f"{before['cpu']} -> {after['cpu']} on the CPU"
        assert f"kernels {on_directml}, {on_cpu}; " in told
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--no-kernels")
        assert "  kernels" not in out

    def test_worse_is_said_first_and_directml_next(
        self, plain: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wrong.write_text(WRONG.replace("op.Add(x, x)", "op.Relu(op.Abs(op.Relu(x)))"))
        _, out, _ = said(capsys, "run", plain, "-p", "wrong", "--plugin", wrong)
        lines = [x for x in out.splitlines() if x.startswith("  ")]
        assert lines[:3] == [
            "  worse     on DirectML than the original, predicted: kernels 2 -> 4, recompiled",
            "            per new length 2 -> 4",
            "  DirectML  runs, predicted",
        ]

    def test_nothing_to_repair_is_a_success(
        self, plain: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "run", plain, "-p", "additive-mask")
        assert code == 0
        assert "  repairs   none needed\n" in out
        assert "(an identical graph)" in " ".join(out.split())
        assert plain.with_name("plain.fixed.onnx").read_bytes() == plain.read_bytes()

    def test_the_default_is_the_profile(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "run", masked, "--json", "--dry-run")
        assert code == 0
        names = [x["name"] for x in json.loads(out)["passes"]]
        assert names == list(registry.PROFILES[pipeline.DEFAULT])

    def test_a_profile_stands_among_passes(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(
            capsys, "run", masked, "-p", "cumsum-index,directml", "--json", "--dry-run"
        )
        names = [x["name"] for x in json.loads(out)["passes"]]
        assert names == ["cumsum-index", *registry.PROFILES["directml"]]

    def test_a_dry_run_writes_nothing(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = tree(masked.parent)
        code, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--dry-run")
        assert code == 0
        assert "repairs   2: 2 additive-mask" in out
        assert "-> nothing, a dry run" in " ".join(out.split())
        assert tree(masked.parent) == before

    def test_diff_prints_each_place_before_and_after(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--diff", "--dry-run")
        lines = [line.strip() for line in out.splitlines()]
        assert "- masked = Where (hidden, -inf, scores)" in lines
        assert any(line.startswith("+ masked = Add (scores, ") for line in lines)

    def test_without_verification_nothing_is_run(
        self, masked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphfix.job.one_file.prove", None)
        code, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--no-verify")
        assert code == 0
        assert "not compared, as asked" in out
        assert masked.with_name("model.fixed.onnx").exists()

    def test_a_failed_verdict_writes_nothing_and_names_the_place(
        self, plain: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = tree(plain.parent)
        code, out, err = said(capsys, "run", plain, "--plugin", wrong, "-p", "wrong")
        assert code == 1
        assert "-> nothing was written" in " ".join(out.split())
        assert err.startswith("graphfix: error: ")
        assert err.count("\n") == 1
        assert "output 'z'" in err
        assert "first tensor to differ is 'y'" in err
        assert tree(plain.parent) == before

    def test_a_failed_verdict_in_json(
        self, plain: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "run", plain, "--plugin", wrong, "-p", "wrong", "--json")
        data = json.loads(out)
        assert code == 1
        assert data["output"] is None
        assert data["verdict"]["worst"]["output"] == "z"
        assert data["verdict"]["first_divergence"]["tensor"] == "y"

    def test_a_tolerance_lets_a_difference_pass(
        self, plain: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # The cosine of -x and 0 still fails, so only positive inputs are given.
        np.savez(plain.with_name("in.npz"), x=np.full((2, 4), 1e-3, np.float32))
        given = ("run", plain, "--plugin", wrong, "-p", "wrong")
        feeds = ("--feeds", plain.with_name("in.npz"))
        assert said(capsys, *given, *feeds, "--atol", "1e-9")[0] == 1
        monkey = registry._plugins
        monkey.clear()
        assert said(capsys, *given, *feeds, "--atol", "1")[0] == 0

    def test_near_misses_are_grouped_and_verbose_lists_all(
        self, tmp_path: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]> m (float[N] x) => (float[N] d)
            { a = Add (x, x) b = Add (a, x) c = Add (b, x) d = Add (c, x) }"""
        path = save(tmp_path / "adds.onnx", text)
        given = ("run", path, "--plugin", wrong, "-p", "wrong", "--dry-run")
        _, out, _ = said(capsys, *given)
        assert "skipped   4 places" in out
        assert "4 x it is none of ours" in out
        assert "at Add of a, Add of b and 2 more (-v)" in out
        registry._plugins.clear()
        _, out, _ = said(capsys, *given, "-v")
        assert "at Add of a, Add of b, Add of c, Add of d\n" in out

    def test_verbose_lists_every_case(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "-v")
        assert out.count("context: ") >= 3

    def test_sizes_are_taken(self, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, _ = said(capsys, "run", plain, "-p", "additive-mask", "--dims", "N=3,5", "--json")
        cases = json.loads(out)["verdict"]["cases"]
        assert [x["name"] for x in cases[:2]] == ["N=3", "N=5"]
        assert {x["dims"]["N"] for x in cases} == {3, 5}

    def test_the_page_is_written(self, masked: Path, capsys: pytest.CaptureFixture[str]) -> None:
        page = masked.with_name("page.html")
        code, out, _ = said(capsys, "run", masked, "-p", "additive-mask", "--report", page)
        assert code == 0
        assert "report    " in out
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    def test_every_line_fits_80_columns(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = Path(__file__).parents[2] / "models/wav2vec2/model.onnx"
        monkeypatch.chdir(tmp_path)
        Path("model.onnx").write_bytes(model.read_bytes())
        _, out, _ = said(capsys, "run", "model.onnx")
        assert max(len(line) for line in out.splitlines()) <= 80
        assert out.isascii()

    def test_a_name_cannot_drive_the_terminal(
        self, tmp_path: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        proto = onnx.parser.parse_model(ODD)
        proto.graph.node[0].name = "evil\x1b[2J\rname"
        onnx.save(proto, tmp_path / "evil.onnx")
        spec = "wrong:only-look=yes"
        _, out, _ = said(
            capsys, "run", tmp_path / "evil.onnx", "--plugin", wrong, "-p", spec, "--dry-run"
        )
        assert "evil\\x1b[2J\\rname" in out
        assert "\x1b" not in out


class TestOtherVerbs:
    def test_check_finds_and_changes_nothing(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = tree(masked.parent)
        code, out, err = said(capsys, "check", masked, "-p", "additive-mask")
        assert (code, err) == (0, "")
        assert "no error on DirectML; 2 warnings, all repaired by graphfix run" in out
        assert "warning additive-mask: 2" in out
        assert "-p additive-mask" in out
        assert tree(masked.parent) == before

    def test_check_in_json(self, masked: Path, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = said(capsys, "check", masked, "-p", "additive-mask", "--json")
        data = json.loads(out)
        assert code == 0
        assert [x["severity"] for x in data["findings"]] == ["warning", "warning"]
        assert {x["fix"] for x in data["findings"]} == {"additive-mask"}

    def test_check_of_a_sound_model(self, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = said(capsys, "check", plain)
        assert code == 0
        assert "no error on DirectML; 1 warning, no automatic repair" in out

    def test_near_misses_alone_are_no_findings(
        self, plain: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "check", plain, "--plugin", wrong, "-p", "wrong:only-look=yes")
        assert code == 0
        assert "note wrong: 2" in out

    def test_verify_says_the_same_or_where_not(
        self, masked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fixed = masked.with_name("model.fixed.onnx")
        said(capsys, "run", masked, "-p", "additive-mask")
        code, out, err = said(capsys, "verify", masked, fixed)
        assert (code, err) == (0, "")
        assert re.search("(identical|the same) in", out)
        code, out, err = said(capsys, "verify", masked, fixed, "--json", "--safety", "exact")
        assert json.loads(out)["ok"] == (code == 0)

    def test_verify_holds_float16_to_what_its_pass_promises(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]> m (float[N, 2] x) => (float[N, 2] z)
            <float[2, 2] w = {0.1, 0.2, 0.3, 0.7}> { y = MatMul (x, w) z = Tanh (y) }"""
        before, after = save(tmp_path / "model.onnx", text), tmp_path / "half.onnx"
        assert said(capsys, "run", before, "-p", "float16", "-o", after)[0] == 0
        code, out, err = said(capsys, "verify", before, after)
        assert (code, err) == (0, "")
        assert "of the largest element off" in out
        code, _, err = said(capsys, "verify", before, after, "--atol", "1e-6")
        assert code == 1
        assert "--rtol" not in err
        other = ir.load(after)
        other.metadata_props.clear()  # as another tool would have made it
        ir.save(other, after)
        code, _, err = said(capsys, "verify", before, after)
        assert code == 1
        assert "it computes in float16: --rtol 0.01 allows what that rounds" in err
        assert said(capsys, "verify", before, after, "--rtol", "0.01")[0] == 0

    def test_verify_of_different_models(
        self, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = save(tmp_path / "other.onnx", ODD)
        code, out, err = said(capsys, "verify", plain, other)
        assert code == 1
        assert "  numbers   output 'z' differs by" in out
        assert "output 'z'" in err

    def test_passes_lists_passes_and_profiles(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = said(capsys, "passes")
        assert (code, err) == (0, "")
        for name in registry.pass_names():
            assert f"{name} (" in out
        assert "directml = fresh-shapes," in out
        data = json.loads(said(capsys, "passes", "--json")[1])
        assert [x["name"] for x in data["passes"]] == registry.pass_names()
        assert data["profiles"]["directml"] == list(registry.PROFILES["directml"])

    @pytest.mark.parametrize("name", registry.pass_names())
    def test_explain_prints_the_manual(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = said(capsys, "explain", name)
        assert (code, err) == (0, "")
        manual = manual_of(registry.pass_class(name))
        for line in (*manual.before.splitlines(), *manual.after.splitlines()):
            assert line.strip() in out
        for option in manual.options:
            assert f"{option.name}={option.default}" in out

    def test_explain_a_profile(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = said(capsys, "explain", "directml")
        assert code == 0
        assert "unflatten-heads" in out

    def test_explain_a_plugin_without_sections(
        self, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, err = said(capsys, "explain", "wrong", "--plugin", wrong)
        assert code == 0
        assert "Relu(x) becomes x + x" in out
        assert "lacks Why:" in err

    def test_alone_it_prints_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = said(capsys)
        assert code == 0
        assert out.startswith("Usage: graphfix")

    def test_the_help_names_the_default_profile(self) -> None:
        run = group.commands["run"]
        spec = next(x for x in run.params if x.name == "spec")
        assert f"profile {pipeline.DEFAULT}" in str(getattr(spec, "help", ""))


class TestBadInput:
    """A sentence, exit code 2, and the folder as it was."""

    def refuses(
        self,
        capsys: pytest.CaptureFixture[str],
        folder: Path,
        says: str,
        *arguments: object,
        code: int = 2,
    ) -> str:
        before = tree(folder)
        got, out, err = said(capsys, *arguments)
        assert got == code, (out, err)
        assert err.startswith("graphfix: error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert says in err, err
        assert tree(folder) == before
        return err

    @pytest.mark.parametrize("verb", ["run", "check"])
    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (None, "no such file"),
            (b"", "is empty"),
            (b"hello, this is no model", "not an ONNX"),
            (b"\x89PNG\r\n\x1a\n" + b"\1" * 100, "not an ONNX"),
        ],
    )
    def test_what_is_not_a_model(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        verb: str,
        data: bytes | None,
        says: str,
    ) -> None:
        path = tmp_path / "bad.onnx"
        if data is not None:
            path.write_bytes(data)
        self.refuses(capsys, tmp_path, says, verb, path)

    @pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
    def test_a_truncated_file(
        self, masked: Path, capsys: pytest.CaptureFixture[str], share: float
    ) -> None:
        data = masked.read_bytes()
        masked.write_bytes(data[: int(len(data) * share)])
        self.refuses(capsys, masked.parent, str(masked), "run", masked)

    def test_a_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.refuses(capsys, tmp_path, "is a folder", "run", tmp_path)

    @pytest.fixture
    def external(self, tmp_path: Path) -> Path:
        (tmp_path / "big").mkdir()
        text = PLAIN.replace("{ y", "<float[4] w = {1, 2, 3, 4}> { v = Add (x, w) y", 1)
        model = ir.from_onnx_text(text.replace("Relu (x)", "Relu (v)"))
        ir.save(model, tmp_path / "big/m.onnx", external_data="m.data", size_threshold_bytes=0)
        return tmp_path / "big/m.onnx"

    def test_external_data_is_missing(
        self, external: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (external.parent / "m.data").unlink()
        self.refuses(capsys, external.parent, "'m.data'", "run", external)

    def test_external_data_is_truncated(
        self, external: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (external.parent / "m.data").write_bytes(b"123")
        self.refuses(capsys, external.parent, "truncated", "run", external)

    def test_external_data_is_outside_the_folder(
        self, external: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (external.parent / "m.data").rename(external.parent.parent / "m.data")
        proto = onnx.load(external, load_external_data=False)
        for entry in proto.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = "../m.data"
        external.write_bytes(proto.SerializeToString())
        says = "outside the model's folder"
        self.refuses(capsys, external.parent.parent, says, "run", external)

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ("additive-masc", "did you mean 'additive-mask'? 'graphfix passes' lists them\n"),
            ("fp16", "did you mean 'float16'?"),
            ("FLOAT16", "did you mean 'float16'?"),
            ("xyz", "there is no pass 'xyz'. 'graphfix passes' lists them\n"),
            ("directm", "did you mean 'directml'"),
            ("additive-mask:flor=-1e3", "did you mean 'floor'"),
            ("additive-mask:floor=high", "not a number"),
            ("additive-mask:floor=5", "must be a finite number"),
            ("additive-mask:floor", "write floor=VALUE"),
            ("directml:floor=1", "takes no options"),
            ("additive-mask,,cumsum-index", "there is no pass '': a comma is too many"),
        ],
    )
    @pytest.mark.parametrize("verb", ["run", "check"])
    def test_a_bad_spec(
        self, masked: Path, capsys: pytest.CaptureFixture[str], verb: str, spec: str, says: str
    ) -> None:
        self.refuses(capsys, masked.parent, says, verb, masked, "-p", spec)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["runn"], "Did you mean 'run'"),
            (["run"], "Missing argument 'MODEL ...'"),
            (["run", "m.onnx", "--jsn"], "--json"),
            (
                ["run", "m.onnx", "-p", "fix-dims", "T=4"],
                "T=4: no such file. Is this meant: graphfix run m.onnx --dims T=4",
            ),
            (["run", "."], "is a folder; name the .onnx file in it"),
            (["explain", "8007023"], "an error is a code such as 8007023E"),
            (["bench", "m.onnx", "--runs", "0"], "--runs 0: at least 1\n"),
            (["run", "m.onnx", "--atol", "small"], "not a valid float"),
            (["run", "m.onnx", "--atol", "-1"], "at least 0"),
            (["run", "m.onnx", "--atol", "nan"], "at least 0"),
            (["run", "m.onnx", "--dims", "7,40"], "write NAME=SIZE"),
            (["run", "m.onnx", "--dims", "T=a"], "not whole numbers"),
            (["run", "m.onnx", "--dims", "T=0"], "at least 1"),
            (["verify", "a.onnx"], "Missing argument 'AFTER'"),
            (["verify", "a.onnx", "b.onnx", "--safety", "none"], "valid-rows"),
            (["verify", "a.onnx", "b.onnx"], "a.onnx: no such file"),
            (["explain"], "Missing argument 'NAME'"),
            (["explain", "additive-masc"], "did you mean 'additive-mask'"),
            (["passes", "--plugin", "no.py"], "no.py: not a Python file"),
        ],
    )
    def test_bad_usage(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        says: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        self.refuses(capsys, tmp_path, says, *arguments)

    def test_the_output_is_the_input(
        self,
        masked: Path,
        capsys: pytest.CaptureFixture[str],
        symlink: Callable[[Path, Path], None],
    ) -> None:
        self.refuses(capsys, masked.parent, "is the input itself", "run", masked, "-o", masked)
        link = masked.with_name("link.onnx")
        symlink(link, masked)
        self.refuses(capsys, masked.parent, "is the input itself", "run", masked, "-o", link)

    @pytest.mark.parametrize(
        ("report", "says"),
        [
            ("model.onnx", "is a model's file"),
            ("model.fixed.onnx", "is a model's file"),
            ("none/page.html", "there is no folder"),
            (".", "is a folder"),
        ],
    )
    def test_a_bad_page(
        self, masked: Path, capsys: pytest.CaptureFixture[str], report: str, says: str
    ) -> None:
        page = masked.parent / report
        self.refuses(capsys, masked.parent, says, "run", masked, "--report", page)

    @pytest.mark.parametrize("verb", ["run", "check", "padded", "bench"])
    def test_a_page_in_a_read_only_folder_is_refused_before_loading(
        self,
        masked: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        verb: str,
    ) -> None:
        folder = masked.parent / "locked"
        folder.mkdir()
        # What root may write in is read-only to others.
        monkeypatch.setattr(os, "access", lambda path, *_: Path(path) != folder)
        monkeypatch.setattr("graphfix.files.io.load", None)
        page = folder / "page.html"
        self.refuses(capsys, masked.parent, "is read-only", verb, masked, "--report", page)

    @pytest.mark.parametrize(
        ("target", "says"), [("none/out.onnx", "there is no folder"), (".", "is a folder")]
    )
    def test_a_bad_target(
        self, masked: Path, capsys: pytest.CaptureFixture[str], target: str, says: str
    ) -> None:
        given = ("run", masked, "-p", "additive-mask", "-o", masked.parent / target)
        self.refuses(capsys, masked.parent, says, *given)

    def test_a_model_that_onnx_runtime_rejects(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
            m (float[1, 1, N] x, float[1, 1, 3] w) => (float[1, 1, M] y)
            { a = Cast <to = 9> (x) b = Cast <to = 9> (w) c = Conv (a, b) y = Cast <to = 1> (c) }"""
        path = save(tmp_path / "conv.onnx", text)
        err = self.refuses(capsys, tmp_path, "tensor(bool)", "run", path, "-p", "additive-mask")
        assert "the model as given does not load in ONNX Runtime" in err

    def test_missing_feeds(self, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
        feeds = plain.with_name("in.npz")
        given = ("run", plain, "-p", "additive-mask", "--feeds", feeds)
        self.refuses(capsys, plain.parent, "in.npz", *given)
        np.savez(feeds, other=np.zeros((2, 4), np.float32))
        self.refuses(capsys, plain.parent, "'x'", *given)
        np.savez(feeds, x=np.zeros((2, 5), np.float32))
        self.refuses(capsys, plain.parent, "x", *given)
        feeds.write_bytes(b"no arrays here")
        self.refuses(capsys, plain.parent, "in.npz", *given)

    def test_an_unknown_dim(self, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = ("run", plain, "-p", "additive-mask", "--dims", "Z=3")
        self.refuses(capsys, plain.parent, "'Z'", *given)

    def test_a_plugin_that_does_not_load(
        self, plain: Path, wrong: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wrong.write_text("import nothing_of_this_name")
        given = ("run", plain, "--plugin", wrong, "-p", "wrong")
        self.refuses(capsys, plain.parent, "nothing_of_this_name", *given)

    def test_a_verb_that_is_gone(self, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
        says = "probe is no verb any more; 'padded MODEL' measures"
        self.refuses(capsys, plain.parent, says, "probe", plain, "--dim", "T=6")

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            (("check", "--fix"), "--fix is no option any more; graphfix run repairs and verifies"),
            (("check", "--axis=x.1"), "--axis is no option any more; say -p ilens-mask:axis="),
            (
                ("bench", "--bucket", "T=8"),
                "--bucket is no option any more; ship makes a container",
            ),
            (("padded", "--fix"), "No such option"),
        ],
    )
    def test_an_option_that_is_gone(
        self, plain: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], says: str
    ) -> None:
        self.refuses(capsys, plain.parent, says, *given, plain)

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            (("MODEL",), "is a model; to repair it: graphfix run "),
            (("run", "MODEL", "out.onnx"), "out.onnx: no such file. Is this meant: graphfix run "),
            (("run", "MODEL", "--overwrite_input_shape", "x:1,4"), "fix-dims:NAME=SIZE"),
            (("run", "MODEL", "--input-shapes=x:1,4"), "fix-dims:NAME=SIZE"),
        ],
    )
    def test_a_habit_from_another_tool_is_told_the_command(
        self, plain: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], says: str
    ) -> None:
        arguments = [str(plain) if x == "MODEL" else x for x in given]
        self.refuses(capsys, plain.parent, says, *arguments)


class TestSeveralModels:
    """``graphfix run`` of several models: each beside itself, whatever becomes of the others."""

    def test_each_is_repaired(
        self, masked: Path, plain: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", str(masked), str(plain)]) == 0
        printed = capsys.readouterr().out
        for model in (masked, plain):
            assert model.with_suffix(".fixed.onnx").exists()
            assert f"{model} -> " in printed.replace("\n", " ")

    def test_a_bad_one_is_told_and_the_others_are_repaired(
        self, masked: Path, plain: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        missing = plain.with_name("missing.onnx")
        assert main(["run", str(missing), str(masked), str(plain), "--json"]) == 2
        printed = capsys.readouterr()
        assert f"error: {missing}: no such file" in printed.err
        reports = json.loads(printed.out)["models"]
        assert [x["source"] for x in reports] == [str(masked), str(plain)]

    @pytest.mark.parametrize("option", ["-o", "--report"])
    def test_what_is_for_one_model_is_refused(
        self, masked: Path, plain: Path, capsys: pytest.CaptureFixture[str], option: str
    ) -> None:
        target = plain.with_name("target")
        assert main(["run", str(masked), str(plain), option, str(target)]) == 2
        assert "one model" in capsys.readouterr().err.replace("\n", " ")
        assert not target.exists()


class TestTrouble:
    """What the system does to us: a sentence, the right code, and nothing half-written."""

    @pytest.mark.parametrize(
        ("number", "says"),
        [(errno.ENOSPC, "free some space"), (errno.EACCES, "Permission denied")],
    )
    @pytest.mark.parametrize("where", ["os.open", "os.fsync", "pathlib.Path.replace"])
    def test_the_disk_refuses(
        self,
        masked: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        number: int,
        says: str,
        where: str,
    ) -> None:
        real = pkgutil.resolve_name(where)

        def refuse(what: int | Path, *rest: object, **more: object) -> object:
            # Only there: who is told so of a temporary folder tries other names, for ever.
            if isinstance(what, int) or masked.parent in Path(what).parents:
                raise OSError(number, os.strerror(number))
            return real(what, *rest, **more)

        before = tree(masked.parent)
        monkeypatch.setattr(where, refuse)
        code, _, err = said(capsys, "run", masked, "-p", "additive-mask")
        monkeypatch.undo()
        assert code == 2
        assert says in err
        assert "model.fixed.onnx: cannot be written" in err
        assert tree(masked.parent) == before

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.skipif(sys.platform == "win32", reason="no folder goes there that somebody is in")
    def test_the_current_folder_is_no_more(
        self,
        masked: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        words = ("ship", masked, "-o", "s", "--container", "T=8")
        code, _, err = said(capsys, *words)
        monkeypatch.undo()
        assert code == 2
        assert "the current folder is no more; change to one" in " ".join(err.split())

    def test_a_full_disk_while_the_graph_is_written(
        self, masked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Path.open

        def full(self: Path, mode: str = "r", *rest: object, **more: object) -> object:
            if self.suffix == ".part" and "w" in mode:
                return real(Path("/dev/full"), mode, *rest, **more)
            return real(self, mode, *rest, **more)

        before = tree(masked.parent)
        monkeypatch.setattr(Path, "open", full)
        code, _, err = said(capsys, "run", masked, "-p", "additive-mask")
        monkeypatch.undo()
        assert code == 2
        assert "free some space" in err
        assert tree(masked.parent) == before

    @pytest.mark.parametrize(
        ("error", "code", "says"),
        [
            (KeyboardInterrupt(), 130, "interrupted"),
            (MemoryError(), 2, "out of memory"),
            (RuntimeError("can't start new thread"), 2, "starts no more threads"),
            (OSError(errno.EIO, "Input/output error"), 2, "Input/output error"),
            (RuntimeError("odd"), 2, "unexpected RuntimeError: odd"),
        ],
    )
    def test_it_stops_in_the_middle(
        self,
        masked: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        code: int,
        says: str,
    ) -> None:
        def stop(*_: object, **__: object) -> None:
            raise error

        before = tree(masked.parent)
        monkeypatch.setattr("graphfix.job.one_file.prove", stop)
        got, _, err = said(capsys, "run", masked, "-p", "additive-mask")
        assert got == code
        assert says in err
        assert ("Traceback" in err) == ("unexpected" in says)
        assert tree(masked.parent) == before

    def test_it_is_told_to_end(self, masked: Path, tmp_path: Path) -> None:
        name = "SIGBREAK" if sys.platform == "win32" else "SIGTERM"  # that of Ctrl+Break
        script = (
            "import signal, sys, graphfix.job.one_file\n"
            f"graphfix.job.one_file.prove = lambda *a, **k: signal.raise_signal(signal.{name})\n"
            "from graphfix.cli import main\n"
            f"sys.exit(main(['run', {str(masked)!r}, '-p', 'additive-mask']))"
        )
        before = tree(tmp_path)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        assert done.returncode == 130
        assert tree(tmp_path) == before

    def test_the_page_cannot_be_written(
        self, masked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.open

        def refuse(path: str | Path, *rest: int, **more: int) -> int:
            if "page.html" in str(path):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(path, *rest, **more)

        monkeypatch.setattr("os.open", refuse)
        page = masked.with_name("page.html")
        code, _, err = said(capsys, "run", masked, "-p", "additive-mask", "--report", page)
        assert code == 2  # not all that was asked for is there
        assert "page.html: cannot be written" in err
        assert f"the model is written: {masked.with_name('model.fixed.onnx')}" in err
        assert not page.exists()
        assert masked.with_name("model.fixed.onnx").exists()


class TestStart:
    @pytest.mark.parametrize("arguments", [["--help"], ["passes"], ["run", "--help"]])
    def test_it_starts_without_what_is_heavy(self, arguments: list[str]) -> None:
        heavy = ("numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "sympy", "jinja2", "rich")
        script = (
            "import sys\nfrom graphfix.cli import main\n"
            f"main({arguments})\nprint([x for x in {heavy} if x in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"

    def test_repairs_that_are_not_verified_load_no_runtime(self, masked: Path) -> None:
        script = (
            "import sys\nfrom graphfix.cli import main\n"
            f"code = main(['run', {str(masked)!r}, '--no-verify'])\n"
            "print(code, 'onnxruntime' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "0 False"

    def test_the_command_is_installed(self) -> None:
        command = shutil.which("graphfix", path=sysconfig.get_path("scripts"))
        assert command is not None
        done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"graphfix, version {graphfix.__version__}\n"


def test_what_may_be_further_apart_may_point_elsewhere_too() -> None:
    assert _options.build_tolerance(None) is None
    for atol, cosine in ((1e-6, 0.999999), (1e-4, 0.999999), (0.01, 0.9999), (1.0, 0.99)):
        gate = _options.build_tolerance(atol)
        assert gate is not None
        assert (gate.max_abs, gate.cosine) == (atol, pytest.approx(cosine, abs=1e-12))
    gate = _options.build_tolerance(0.01, cosine=0.5)
    assert gate is not None
    assert (gate.max_abs, gate.cosine) == (0.01, 0.5)
    gate = _options.build_tolerance(0.01, wide=False)  # as padded, which has --cosine
    assert gate is not None
    assert (gate.max_abs, gate.cosine) == (0.01, 0.999999)


def test_shared_options_are_spelled_once() -> None:
    assert _options.plugin is not None
    for verb in ("run", "check", "verify", "passes", "explain"):
        assert "--plugin" in {x for p in group.commands[verb].params for x in p.opts}


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_are_as_the_environment_asks(
    variables: dict[str, str],
    coloured: bool,
    plain: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _, out, _ = said(capsys, "run", plain, "-p", "additive-mask", "--dry-run")
    assert ("\x1b[" in out) == coloured

"""``graphfix check``: what is said, to whom, with which exit code; SARIF."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import onnx
import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema

import graphfix
from graphfix.cli import main
from graphfix.core import Finding
from graphfix.engine import registry
from graphfix.job import checking
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.rules import rules
from graphfix.show.sarif import sarif_document
from graphfix.spec.manual import manual_of, rule_manual_of
from tests.cli.conftest import said

pytestmark = pytest.mark.usefixtures("quiet")

HEAD = '<ir_version: 8, opset_import: ["" : 18]> m '
CRASH = HEAD + """(float[T, 8] x) => (float[N, 4] y) <int64[2] s = {-1, 4}>
    { a = Relu (x)  b = Reshape <allowzero = 1> (a, s)  y = Neg (b) }"""  # fmt: skip
SLOW = HEAD + "(float[N, 4] x) => (float[N, 4] z) { y = Relu (x) z = Add (y, x) }"
SOUND = HEAD + "(float[2, 4] x) => (float[2, 4] z) { y = Relu (x) z = Add (y, x) }"
LAYOUT = HEAD + """(float[2, 3, 4] x, float[1, 8, 4] w, float[1, 8, 2] r) => (float[2, 3, 1, 2] y)
    { y = LSTM <hidden_size = 2, layout = 1> (x, w, r) }"""  # fmt: skip
RESIZE = HEAD + """(float[1, 3, 8, 8] x) => (float[1, 3, 4, 4] y) <float[4] s = {1, 1, 0.5, 0.5}>
    { y = Resize <mode = "linear", antialias = 1> (x, , s) }"""  # fmt: skip


def saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


class TestSeverities:
    @pytest.mark.parametrize(
        ("text", "more", "code"),
        [
            (CRASH, [], 1),
            (CRASH, ["--ep", "cpu"], 0),
            (SLOW, [], 0),
            (SLOW, ["--fail-on", "warning"], 1),
            (SOUND, ["--fail-on", "note"], 0),
            (CRASH, ["-p", "reshape-allowzero"], 1),
            (SLOW, ["--rules", "dynamic-dims"], 0),  # what is asked for does not count more
            (SLOW, ["--rules", "dynamic-dims", "--fail-on", "warning"], 1),
            (RESIZE, [], 1),
        ],
    )
    def test_the_exit_code(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        text: str, more: list[str], code: int,
    ) -> None:  # fmt: skip
        path = saved(tmp_path, text)
        before = path.read_bytes()
        got, out, err = said(capsys, "check", path, *more)
        assert (got, err) == (code, "")
        assert [x.name for x in tmp_path.iterdir()] == ["model.onnx"]
        assert path.read_bytes() == before
        assert all(len(line) <= 80 or str(tmp_path) in line for line in out.splitlines())

    def test_errors_come_first(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, _ = said(capsys, "check", saved(tmp_path, CRASH))
        findings = out.partition("\n\n")[2].splitlines()
        lines = [x.split()[:2] for x in findings if x.startswith("  ") and x[2] != " "]
        assert lines[0] == ["error", "reshape-allowzero:"]
        assert "repair with -p reshape-allowzero" in out
        answer = "1 error on DirectML, repaired by graphfix run; 1 warning, no automatic repair"
        assert " ".join(out.split()).removeprefix(f"{tmp_path / 'model.onnx'} ").startswith(answer)

    def test_nothing_is_said_to_be_wrong_with_a_sound_model(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "check", saved(tmp_path, SOUND), "--fail-on", "note")
        assert code == 0
        assert out.splitlines()[1:] == ["  no error and no warning on DirectML"]

    def test_notes_are_counted_and_listed_on_request(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = f"{HEAD} (float[2, 4] x) => (float[2, 4] z) {{ y = Identity (x) z = Relu (y) }}"
        path = saved(tmp_path, text)
        _, out, _ = said(capsys, "check", path)
        assert out.splitlines()[-1] == "  1 note (-v lists them)"
        assert "fold" not in out
        for more in (["-v"], ["-p", "fold"]):
            _, out, _ = said(capsys, "check", path, *more)
            assert "note fold: 1" in out

    def test_repeated_findings_are_one_line_and_all_on_request(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ops = ("Sin", "Cos", "Softplus", "Elu", "Round")
        steps = " ".join(f"v{i + 1} = {op} (v{i})" for i, op in enumerate(ops))
        head = HEAD.replace("18", "22")
        text = f"{head} (float[4] v0) => (float[4] v5) {{ {steps} }}"
        path = saved(tmp_path, text)
        _, out, _ = said(capsys, "check", path)
        assert "warning no-kernel: 5; repair with -p opset-ceiling" in out
        assert "2 x for 2 more reasons (-v lists them)" in out
        for flag in ("-v", "--all"):
            _, out, _ = said(capsys, "check", path, flag)
            assert all(f"no kernel for {op} of" in out for op in ops)

    def test_json_has_all(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = said(capsys, "check", saved(tmp_path, CRASH), "--json")
        data = json.loads(out)
        assert (code, err, data["ep"]) == (1, "", "dml")
        assert data["count"] == {"error": 1, "warning": 1, "note": 0}
        assert data["findings"][0] == {
            "rule": "reshape-allowzero",
            "severity": "error",
            "at": "Reshape of b",
            "message": "Reshape has allowzero=1: DirectML cannot read a -1 in it",
            "fix": "reshape-allowzero",
            "module": "",
            "versions": [],
        }

    def test_a_version_may_be_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRAPHFIX_DML_VERSION", "")
        text = f"""{HEAD} (float[2, 4, T] x, float[4, 3, 4] w) => (float[2, 3, U] y)
        {{ y = ConvTranspose <strides = [2], output_padding = [1]> (x, w) }}"""
        path = saved(tmp_path, text)
        given = ("check", path, "-p", "convtranspose-2d")
        code, out, _ = said(capsys, *given, "--ep", "dml@1.24.4")
        assert (code, out.splitlines()[1].strip()) == (
            1, "1 error on DirectML 1.24.4, repaired by graphfix run"
        )  # fmt: skip
        code, out, _ = said(capsys, *given, "--ep", "windowsml", "--json")
        data = json.loads(out)
        assert (code, data["ep"], data["versions"]) == (0, "dml", ["1.30.0"])
        code, _, err = said(capsys, *given, "--ep", "dml@new")
        assert (code, "'new' is no version of DirectML" in err) == (2, True)

    @pytest.mark.parametrize("ep", ["dml", "webgpu"])
    def test_a_plan_has_the_versions_of_its_provider(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], ep: Ep
    ) -> None:
        path = saved(tmp_path, f"{HEAD} (float[T] x) => (float[T] y) {{ y = Relu (x) }}")
        data = json.loads(said(capsys, "plan", path, "--ep", ep, "--json")[1])
        assert data["plan"]["ep"] == ep
        assert data["versions"] == [x.version for x in PROVIDERS[ep].distributions]

    @pytest.mark.parametrize(
        ("more", "says"),
        [
            (["--json", "--sarif"], "only one of them"),
            (["--fix"], "graphfix run repairs"),
            (["--run"], "graphfix verify MODEL MODEL"),
            (["--axis", "x.1"], "-p ilens-mask:axis="),
            (["--ep", "npu"], "'npu'"),
            (["--rules", "no-kernle"], "did you mean 'no-kernel'"),
        ],
    )
    def test_bad_usage(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
    ) -> None:
        code, out, err = said(capsys, "check", saved(tmp_path, CRASH), *more)
        assert (code, out) == (2, "")
        assert says in err


class TestOddModels:
    def test_one_that_does_not_load_has_no_place(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        head = HEAD.replace("18]", '18, "my.ops" : 1]')
        path = saved(tmp_path, head + "(float[4] x) => (float[4] y) { y = my.ops.Magic (x) }")
        code, out, err = said(capsys, "verify", path, path)
        assert (code, out) == (2, "")
        assert "does not load" in err
        code, out, err = said(capsys, "plan", path)
        assert (code, out) == (2, "")
        assert "ONNX Runtime does not load the model: " in err

    @pytest.mark.parametrize("ep", ["dml", "cpu"])
    @pytest.mark.parametrize(
        "text",
        [
            """<ir_version: 3, opset_import: ["" : 7]> m (float[N] x) => (float[N] y)
            { y = Relu (x) }""",
            """<ir_version: 11, opset_import: ["" : 25]> m (float[N] x) => (float[N] y)
            { y = Swish (x) }""",
            HEAD + "(double[N] x) => (double[N] y) { y = Relu (x) }",
            HEAD + "(string[N] x) => (string[N] y) { y = Identity (x) }",
            HEAD
            + """(float[N] x) => (float[N] y) <int64 i = {0}>
            { q = SequenceConstruct (x, x) y = SequenceAt (q, i) }""",
            """<ir_version: 8, opset_import: ["" : 18, "f" : 1]> m (float[N] x) => (float[N] y)
            { y = f.twice (x) }
            <domain: "f", opset_import: ["" : 18]> twice (a) => (b) { b = Add (a, a) }""",
        ],
    )
    def test_nothing_odd_is_an_error_by_itself(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, ep: str
    ) -> None:
        code, out, err = said(capsys, "check", saved(tmp_path, text), "--ep", ep)
        assert (code, err) == (0, "")
        assert out.splitlines()[1].startswith("  no error")


class TestRepair:
    @pytest.mark.parametrize("name", [k for k, x in rules().items() if x.repaired_by])
    def test_what_a_rule_names_a_pass_for(self, name: str, tmp_path: Path) -> None:
        assert_repairs(name, rule_manual_of(rules()[name]).flagged, tmp_path)

    @pytest.mark.parametrize(
        ("name", "repair"), [(k, x) for k, rule in rules().items() for x in rule.matched_by]
    )
    def test_what_a_pass_repairs_as_well(self, name: str, repair: str, tmp_path: Path) -> None:
        text = manual_of(registry.pass_class(repair)).before
        if name == "refused-in-run":  # WebGPU has the kernel with a bias, but not with groups
            text = text.replace(", , , bias)", ", , groups)").replace(
                "float[1] bias = {1}", f"int32[16] groups = {{{', '.join('0' * 16)}}}"
            )
        fixes = assert_repairs(name, text, tmp_path)
        assert fixes == {repair}


def assert_repairs(name: str, text: str, folder: Path) -> set[str | None]:
    """Hold that what a rule flags is repaired by the pass it names; return that."""
    path, target = folder / "model.onnx", folder / "out.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    ep = rules()[name].providers[0]
    fixes = {x.fix for x in graphfix.check(graphfix.load(path), name, ep=ep)}
    (fix,) = fixes
    assert fix is not None
    report = graphfix.repair_file(path, target, fix)
    assert [len(x.changes) for x in report.passes] == [1]
    assert target.exists()
    return fixes


class TestSarif:
    """What the schema of SARIF 2.1.0 requires, and what viewers need."""

    def test_it_is_what_the_standard_says(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, err = said(capsys, "check", saved(tmp_path, CRASH), "--sarif")
        assert (code, err) == (1, "")
        log = json.loads(out)
        assert log["version"] == "2.1.0"
        assert log["$schema"].endswith("sarif-schema-2.1.0.json")
        (run,) = log["runs"]
        driver = run["tool"]["driver"]
        assert driver["name"] == "graphfix"
        ids = [x["id"] for x in driver["rules"]]
        assert len(ids) == len(set(ids))
        assert set(ids) == {x.name for x in checking.default_checks()}
        StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate(log)
        for rule in driver["rules"]:
            assert rule["shortDescription"]["text"]
            assert rule["fullDescription"]["text"]
            assert rule["helpUri"].startswith("https://")
        assert len(run["results"]) == 2
        for result in run["results"]:
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in ("error", "warning", "note")
            assert len(result["message"]["text"]) > 20
            (location,) = result["locations"]
            uri = location["physicalLocation"]["artifactLocation"]["uri"]
            assert location["physicalLocation"]["region"]["startLine"] == 1
            assert uri.startswith("file:///")
            assert uri.endswith("/model.onnx")
            assert location["logicalLocations"][0]["name"]

    def test_a_model_below_is_told_by_its_relative_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Code scanning looks it up in the repository."""
        monkeypatch.chdir(tmp_path)
        finding = Finding("no-kernel", "warning", "Sin of y", "no kernel", None)
        for source in ("models/a b.onnx", str(tmp_path / "models" / "a b.onnx")):
            log: Any = sarif_document({source: [finding]}, {})
            place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
            assert place["artifactLocation"]["uri"] == "models/a%20b.onnx"

    def test_a_file_of_any_name_has_a_uri(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also one that is named in no encoding, and where the current folder is no more."""

        def gone() -> Path:
            raise FileNotFoundError(2, "No such file or directory")

        finding = Finding("no-kernel", "warning", "Sin of y", "no kernel", None)
        names = ["m\udcff.onnx", "模型.onnx", str(Path("/a/m.onnx").absolute())]
        monkeypatch.setattr(Path, "cwd", gone)
        for name in names:
            log: Any = sarif_document({name: [finding]}, {})
            place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
            uri = place["artifactLocation"]["uri"]
            assert os.fsdecode(unquote_to_bytes(uri)).endswith(Path(name).name)

    def test_the_same_finding_has_the_same_fingerprint_and_another_has_not(self) -> None:
        def prints(*findings: Finding) -> list[str]:
            log: Any = sarif_document({"model.onnx": findings}, {})
            results = log["runs"][0]["results"]
            return [x["partialFingerprints"]["primaryLocationLineHash"] for x in results]

        one = Finding("no-kernel", "warning", "Sin of y", "no kernel", None)
        other = Finding("no-kernel", "warning", "Cos of z", "no kernel", None)
        assert prints(one) == prints(other, one)[1:] != prints(other)

    def test_a_module_is_part_of_the_name_and_a_repair_of_the_message(self) -> None:
        finding = Finding("no-kernel", "warning", "/a/b/Sin", "no kernel", "opset-ceiling", "a.b")
        log: Any = sarif_document({"some model.onnx": [finding]}, {})
        (result,) = log["runs"][0]["results"]
        place = result["locations"][0]
        assert place["logicalLocations"][0]["fullyQualifiedName"] == "a.b::/a/b/Sin"
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "some%20model.onnx"
        assert result["message"]["text"] == "no kernel. Repair with: graphfix run -p opset-ceiling"

    def test_a_finding_keeps_its_fingerprint(self) -> None:
        one = Finding("a", "note", "x", "m", None)
        two = Finding("a", "note", "y", "m", None)
        logs: list[Any] = [sarif_document({"m.onnx": [x]}, {}) for x in (one, one, two)]
        prints = [x["runs"][0]["results"][0]["partialFingerprints"] for x in logs]
        assert prints[0] == prints[1] != prints[2]


def test_float16_says_what_would_stay_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, 4] x, int64[B] n) => (float[B, 4] y) <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8,
        9, 10, 11, 12, 13, 14, 15, 16}> { c = Cast <to = 1> (n) a = Cos (c) h = MatMul (x, w)
        at = Constant <value = int64[1] {1}> () u = Unsqueeze (a, at) y = Mul (h, u) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    assert main(["check", str(path), "--float16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {x["severity"] for x in found} == {"note"}
    assert any("may hold whole numbers past 2,048" in x["message"] for x in found)
    assert [x.name for x in tmp_path.iterdir()] == ["m.onnx"]


class TestSeveralModels:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "deep").mkdir()
        saved(tmp_path, CRASH).rename("bad.onnx")
        saved(tmp_path, f"{HEAD} (float[4] x) => (float[4] y) {{ y = Relu (x) }}").rename(
            "deep/good.onnx"
        )
        return tmp_path

    def test_each_is_checked_and_the_last_line_sums_up(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "check", "**/*.onnx", "bad.onnx")
        assert code == 1
        assert "bad.onnx\n" in out
        assert f"{Path('deep/good.onnx')}\n" in out
        assert out.splitlines()[-1] == "  in all    2 models, 1 with errors: 1 error, 1 warning"

    def test_json_and_sarif_hold_all(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ("check", "bad.onnx", Path("deep/good.onnx"))
        data = json.loads(said(capsys, *given, "--json")[1])
        assert [len(x["findings"]) for x in data["models"]] == [2, 0]
        (run,) = json.loads(said(capsys, *given, "--sarif")[1])["runs"]
        places = [x["locations"][0]["physicalLocation"] for x in run["results"]]
        assert {x["artifactLocation"]["uri"] for x in places} == {"bad.onnx"}

    def test_one_that_cannot_be_read_does_not_hide_the_others(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "broken.onnx").write_bytes(b"no model")
        code, out, err = said(capsys, "check", "broken.onnx", "bad.onnx")
        assert code == 2
        assert err.startswith("graphfix: error: broken.onnx: ")
        assert "1 error" in out

    def test_a_pattern_without_files_is_an_error(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, _, err = said(capsys, "check", "none/*.onnx")
        assert code == 2
        assert "none/*.onnx: matches no file" in err


MASKED = HEAD + """(float[B, T, 4] x, int64[B] lens) => (float[B, T, 4] z)
    <int64[1] a0 = {0}, int64[1] a1 = {1}, int64 nought = {0}, int64 one = {1}, float low = {-inf}>
    { size = Shape <start = 1, end = 2> (x)  n = Squeeze (size, a0)  at = Range (nought, n, one)
      row = Unsqueeze (at, a0)  end = Unsqueeze (lens, a1)  off = GreaterOrEqual (row, end)
      hidden = Unsqueeze (off, a1)
      k = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, k)  m = Where (hidden, low, s)
      w = Softmax (m)  y = MatMul (w, x)
      k2 = Transpose <perm = [0, 2, 1]> (y)  s2 = MatMul (y, k2)  m2 = Where (hidden, low, s2)
      w2 = Softmax (m2)  z = MatMul (w2, y) }"""  # fmt: skip
SECOND_UNMASKED = MASKED.replace("Softmax (m2)", "Softmax (s2)")
OF_LENS = "-p ilens-mask:from=lens"


class TestPadding:
    """``check --padding`` says what ``padded`` measures."""

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            (MASKED, "no error and no warning on DirectML"),
            (SECOND_UNMASKED, f"1 warning, repaired by graphfix run {OF_LENS}"),
        ],
    )
    def test_it_agrees_with_padded(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, answer: str
    ) -> None:
        path = saved(tmp_path, text)
        code, out, _ = said(capsys, "check", "--padding", path)
        words = " ".join(out.split())
        assert code == 0
        assert answer in words
        assert f"those of the model's own input, as with {OF_LENS}" in words
        assert ("attention dilution at Softmax" in words) == (text == SECOND_UNMASKED)
        assert (
            "note ilens-mask: 1 1 x poisoned input at Transpose: only NaN or infinity in the "
            "padding gets through; padded --poison nan measures it"
        ) in words
        assert graphfix.padded(path).ok == (text == MASKED)
        assert not graphfix.padded(path, fills=["nan"]).ok

    def test_the_demo_is_safe(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        said(capsys, "demo")
        code, out, _ = said(capsys, "check", "--padding", "demo.onnx", "--fail-on", "warning")
        assert code == 0
        assert out.splitlines()[1] == "  no error and no warning on DirectML"

    def test_a_pass_that_is_named_is_asked_as_it_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = saved(tmp_path, MASKED)
        given = ("check", "--padding", path, "-p", "ilens-mask", "--json")
        data = json.loads(said(capsys, *given)[1])
        assert data["spec"] == "ilens-mask"
        assert data["count"]["warning"]  # without the model's own lengths, all of it leaks
        assert json.loads(said(capsys, *given[:3], "--json")[1])["spec"] == OF_LENS[3:]

    @pytest.mark.parametrize(
        ("inputs", "old", "new"),
        [
            # Two that say what is valid, and a mask that is 1 for padding.
            ("int64[B] lens, int64[B] more", "end = Unsqueeze (lens, a1)",
             "both = Min (lens, more)  end = Unsqueeze (both, a1)"),
            ("bool[B, T] off", "end = Unsqueeze (lens, a1)  off = GreaterOrEqual (row, end)", ""),
        ],
    )  # fmt: skip
    def test_no_lengths_are_taken_that_ilens_mask_would_not_take(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], inputs: str, old: str, new: str
    ) -> None:
        path = saved(tmp_path, MASKED.replace("int64[B] lens", inputs).replace(old, new))
        data = json.loads(said(capsys, "check", "--padding", path, "--json")[1])
        assert data["spec"] == "ilens-mask"
        assert data["count"]["warning"]

"""``graphfix explain``: an error in every spelling, its causes, and the nodes of a model."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.providers.directml import hresult
from graphfix.rules import rules
from tests.cli.conftest import said

pytestmark = pytest.mark.usefixtures("quiet")

HEAD = '<ir_version: 8, opset_import: ["" : 18]> m '
CRASH = HEAD + """(float[T, 8] x) => (float[N, 4] y) <int64[2] s = {-1, 4}>
    { a = Relu (x)  y = Reshape <allowzero = 1> (a, s) }"""  # fmt: skip
LINE = (
    "[E:onnxruntime:, sequential_executor.cc:572] Non-zero status code returned while running "
    "Reshape node. Name:'node_view_2' Status Message: Exception(1) tid(24) 8007023E"
)


@pytest.fixture
def crash(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(CRASH)
    proto.graph.node[1].name = "node_view_2"
    onnx.save(proto, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("8007023E", "8007023E"),
        ("8007023e", "8007023E"),
        ("0x8007023E", "8007023E"),
        ("0X8007023e", "8007023E"),
        ("-2147024322", "8007023E"),
        ("2147942974", "8007023E"),
        (LINE, "8007023E"),
        ("80070057", "80070057"),
        ("-2147024809", "80070057"),
        ("RuntimeError: ... 80070057 The parameter is incorrect.", "80070057"),
        ("E_INVALIDARG", "80070057"),
        ("887A0005", "887A0005"),
        ("887a0006", "887A0006"),
        ("DXGI_ERROR_DEVICE_HUNG", "887A0006"),
        ("-2005270522", "887A0006"),
        ("8007000E", "8007000E"),
        ("UnicodeDecodeError", "UnicodeDecodeError"),
        (
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xb2 in position 89",
            "UnicodeDecodeError",
        ),
        (
            "Shape mismatch attempting to re-use buffer. {1,4} != {4294967295,4}",
            "Shape mismatch attempting to re-use buffer",
        ),
        (
            "INVALID_ARGUMENT : Unexpected input data type. Actual: (tensor(int32)) , "
            "expected: (tensor(int64))",
            "Unexpected input data type",
        ),
        (
            "Inferred shape and existing shape differ in dimension 2: (896) vs (3584)",
            "Inferred shape and existing shape differ",
        ),
        (
            "EP Error Failed to find node output or a constant initializer producing output: h.",
            "Failed to find node output or a constant initializer",
        ),
        ("reshape-allowzero", None),
        ("no-kernel", None),
        ("80001234", None),
        ("80004005 Unspecified error", "80004005"),
        (
            "dml_provider_factory.cc(520)\\onnxruntime.dll!00007FFBDAE7F9B9: "
            "(caller: 00007FFBDAE7FB21) Exception(1) tid(93ac) 887A0004 The specified",
            "887A0004",
        ),
        (
            "NOT_IMPLEMENTED : Could not find an implementation for Relu(14) node with name 'r'",
            "Could not find an implementation for",
        ),
        (
            "OrtValue shape verification failed. Current shape:{} Requested shape:{1}",
            "OrtValue shape verification failed",
        ),
        (
            "VerifyEachNodeIsAssignedToAnEp] Some nodes were not assigned to the preferred "
            "execution providers which may or may not have an negative impact on performance.",
            "Some nodes were not assigned",
        ),
    ],
)
def test_an_error_is_known_in_every_spelling(text: str, key: str | None) -> None:
    found = hresult.find_code(text)
    assert (found.key if found is not None else None) == key


@pytest.mark.parametrize("code", hresult.CODES, ids=lambda x: x.key)
def test_every_error_is_explained(code: hresult.ErrorCode) -> None:
    assert hresult.find_code(code.key) is code
    assert code.meaning
    assert code.causes
    for cause in code.causes:
        assert cause.source
        for rule in cause.rules:
            assert rule in registry.pass_names() or rule in rules()


class TestVerb:
    def test_a_signed_code_is_no_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = said(capsys, "explain", "-2147024809")
        assert (code, err) == (0, "")
        assert out.startswith("80070057 (E_INVALIDARG)\n")
        assert "graphfix explain '80070057' MODEL" in out
        assert all(len(line) <= 80 for line in out.splitlines())

    def test_the_nodes_of_a_model_and_the_repair(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "explain", LINE, crash)
        assert code == 0
        assert "y = Reshape <allowzero = 1> (a, {-1, 4})" in out
        assert "error reshape-allowzero: 1; repair with -p reshape-allowzero" in out
        assert "at node_view_2" in out

    def test_a_node_that_is_not_there(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(capsys, "explain", LINE.replace("node_view_2", "fused_7"), crash)
        assert "no node 'fused_7'" in out

    def test_the_inputs_are_listed_where_the_array_is_at_fault(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(capsys, "explain", "Unexpected input data type", crash)
        assert "x: tensor(float), shape [T,8]" in out
        assert "the array is at fault" in out

    @pytest.mark.parametrize("code", ["887A0004", "80004002", "C0262002"])
    def test_the_system_is_at_fault_and_no_array(
        self, crash: Path, capsys: pytest.CaptureFixture[str], code: str
    ) -> None:
        _, out, _ = said(capsys, "explain", code, crash)
        assert "Nothing: the system is at fault." in out

    def test_a_hung_gpu_blames_no_array(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = said(capsys, "explain", "887A0006", crash)
        assert "nothing that is known to cause it was found" in out
        assert "at fault" not in out

    def test_a_line_that_nobody_knows_is_no_missing_pass(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, _, err = said(capsys, "explain", "Something odd has happened", crash)
        assert code == 2
        assert "nothing is known of the error Something odd has happened" in err
        assert "no pass" not in err

    def test_json(self, crash: Path, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = said(capsys, "explain", "8007023E", crash, "--json")
        data = json.loads(out)
        assert code == 0
        assert data["key"] == "8007023E"
        assert [x["at"] for x in data["findings"]] == ["node_view_2"]

    def test_the_nodes_that_a_pass_repairs(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = said(capsys, "explain", "reshape-allowzero", crash)
        assert code == 0
        assert "To repair it: graphfix run" in out
        data = json.loads(said(capsys, "explain", "reshape-allowzero", "--json")[1])
        assert (data["name"], data["promise"]) == ("reshape-allowzero", "conditional")

    def test_it_is_a_callable_of_the_package(
        self, crash: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in ("additive-mask", "no-kernel", "8007023E", "fast"):
            assert said(capsys, "explain", name)[1] == f"{graphfix.explain(name)}\n"
        found = graphfix.explain(LINE, onnx.load(crash))
        assert [x.at for x in found.findings] == ["node_view_2"]
        assert "Known causes" in found._repr_html_()
        assert repr(found) == "<Explanation: 8007023E (ERROR_UNHANDLED_EXCEPTION)>"

    def test_a_rule_has_a_manual_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = said(capsys, "explain", "no-kernel")
        assert code == 0
        for title in ("no-kernel (rule of check, holds on dml)", "Why", "Flagged", "Clean"):
            assert f"{title}\n" in out

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["80001234"], "nothing is known of the error 80001234"),
            (["additive-mask", "none.onnx"], "none.onnx: no such file"),
            (["8007023E", "none.onnx"], "none.onnx: no such file"),
            (["no-kernle"], "did you mean 'no-kernel'"),
        ],
    )
    def test_what_is_not_known(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
    ) -> None:
        code, out, err = said(capsys, "explain", *arguments)
        assert (code, out) == (2, "")
        assert says in err

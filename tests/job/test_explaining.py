"""``explain`` in Python: passes, profiles, rules and errors, with a model and without."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from graphfix.core import Finding, Findings
from graphfix.engine import registry
from graphfix.errors import UsageError
from graphfix.job.explaining import Explanation, Section, explain
from graphfix.providers.directml import hresult
from graphfix.rules import rules

CRASH = """<ir_version: 8, opset_import: ["" : 18]> m (float[T, 8] x) => (float[N, 4] y)
    <int64[2] s = {-1, 4}> { a = Relu (x)  y = Reshape <allowzero = 1> (a, s) }"""


def crash() -> ir.Model:
    proto = onnx.parser.parse_model(CRASH)
    proto.graph.node[1].name = "node_view_2"
    proto.graph.node[1].metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'encoder', 'encoder.view', 'view']"
    )
    return ir.from_proto(proto)


def titles(explanation: Explanation) -> list[str]:
    return [x.title for x in explanation.sections]


def test_a_pass_is_its_manual() -> None:
    found = explain("reshape-allowzero")
    assert found.title.startswith("reshape-allowzero (")
    kinds = {x.title: x.kind for x in found.sections}
    assert (kinds["Why"], kinds["Safety"]) == ("prose", "prose")
    assert (kinds["Before"], kinds["After"]) == ("code", "code")
    assert [*kinds][:3] == ["Why", "Before", "After"]
    assert (found.findings, found.hint) == (None, "")
    assert found.data["name"] == "reshape-allowzero"
    assert found.to_json() == {"schema": 1, **found.data, "findings": []}
    assert found.line == found.title


def test_a_pass_that_needs_options_says_how_its_example_is_run() -> None:
    found = explain("fix-dims")
    assert titles(found)[:2] == ["Why", "Run as"]
    assert found.sections[1].text.startswith("-p fix-dims:")


def test_options_and_what_is_left_alone_are_sections() -> None:
    found = explain("additive-mask")
    (options,) = (x for x in found.sections if x.title == "Options")
    assert options.kind == "list"
    assert "floor=" in options.text
    left = [x for x in found.sections if x.title.startswith("Left alone. ")]
    assert left
    assert all(x.kind == "code" and not x.title.endswith(":") for x in left)


def test_a_rule_says_where_it_holds_and_what_it_flags() -> None:
    for name, cls in rules().items():
        found = explain(name)
        assert found.title == f"{name} (rule of check, holds on {', '.join(cls.providers)})"
        assert "Flagged" in titles(found)


def test_a_profile_is_a_list_of_passes() -> None:
    found = explain("fast")
    assert found.title == "fast (profile)"
    assert found.sections == (Section("Passes", "\n".join(registry.PROFILES["fast"]), "list"),)
    assert found.hint == "More about one: graphfix explain NAME"
    assert found.data == {"name": "fast", "passes": [*registry.PROFILES["fast"]]}


def test_with_a_model_its_findings_are_there() -> None:
    found = explain("reshape-allowzero", crash())
    assert found.findings is not None
    assert [x.at for x in found.findings] == ["node_view_2"]
    assert [x["at"] for x in found.to_json()["findings"]] == ["node_view_2"]
    assert "\n\nIn this model\n" in str(found)
    assert len(found.rows()) == 1 + len(found.sections) + 1
    assert "In this model" not in str(explain("reshape-allowzero"))


def test_an_error_says_its_causes_and_finds_them() -> None:
    found = explain("8007023E")
    assert found.title == "8007023E (ERROR_UNHANDLED_EXCEPTION)"
    assert titles(found) == ["Known causes"]
    assert found.sections[0].kind == "list"
    assert found.sections[0].text.startswith("- ")
    assert "Found by: " in found.sections[0].text
    assert found.hint == "What it is in a model: graphfix explain '8007023E' MODEL"
    assert found.data["node"] is None
    found = explain("Reshape node. Name:'node_view_2' Status Message: 8007023E", crash())
    assert (found.hint, found.data["node"]) == ("", "node_view_2")
    assert titles(found) == ["Known causes", "The node that it names"]
    assert "Reshape <allowzero = 1>" in found.sections[1].text
    assert found.sections[1].text.endswith("(of the module encoder.view)")
    assert found.findings is not None
    assert [x.severity for x in found.findings] == ["error"]
    found = explain("Reshape node. Name:'other' Status Message: 8007023E", crash())
    assert found.sections[1].text == (
        "this model has no node 'other': ONNX Runtime may have made it of others"
    )


def test_where_the_graph_is_not_at_fault_nothing_is_looked_for() -> None:
    found = explain("Unexpected input data type", crash())
    sections = {x.title: x for x in found.sections}
    assert found.findings is None
    assert sections["The inputs of this model"].text == "x: tensor(float), shape [T,8]"
    assert sections["The inputs of this model"].kind == "list"
    assert sections["In this model"].text == "Nothing: the array is at fault."
    found = explain("887A0004", crash())
    assert "The inputs of this model" not in titles(found)
    assert found.sections[-1].text == "Nothing: the system is at fault."
    assert "In this model" not in titles(explain("887A0004"))


def test_advice_is_a_section_where_there_is_some() -> None:
    for code in hresult.CODES:
        assert ("What to do" in titles(explain(code.key))) is bool(code.advice)


def test_causes_are_sorted_by_how_bad_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Findings(
        Finding("r", severity, severity, "m", fix)  # type: ignore[arg-type]
        for severity, fix in (("note", "fold"), ("warning", None), ("error", None))
    )
    monkeypatch.setattr("graphfix.job.explaining.check", lambda *_, **__: looked)
    found = explain("8007023E", crash())
    assert found.findings is not None
    assert [x.severity for x in found.findings] == ["error", "note"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (3, "give the name of a pass or a rule, or an error, as text"),
        ("reshape-allowzer", "reshape-allowzero.*an error is a code such as 8007023E"),
        ("80001234", "nothing is known of the error 80001234; known are 8007023E, "),
    ],
)
def test_what_is_not_known_is_said(name: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        explain(name)  # type: ignore[arg-type]


def test_lines_are_wrapped_where_they_are_prose_alone() -> None:
    long = "word " * 40
    text = Explanation(
        "name (a kind)",
        f"``first`` paragraph\n\n- {long}\n\n{long}",
        (Section("Code", long, "code"), Section("List", f"- {long}\nitem {long}", "list")),
        hint="do this",
    )
    lines = [*text.lines(bold=lambda x: f"<{x}>", code=lambda x: f"[{x}]")]
    assert lines[0] == "<name> (a kind)"
    assert lines[1:3] == ["`first` paragraph", ""]
    assert lines[3] == f"- {long}".rstrip() or lines[3] == f"- {long}"
    assert all(len(x) <= 80 for x in lines[5:8])
    assert f"[  {long}]" in lines
    assert "<List>" in lines
    (begin,) = (i for i, x in enumerate(lines) if x.startswith("  - word"))
    assert lines[begin + 1].startswith("    word")
    (begin,) = (i for i, x in enumerate(lines) if x.startswith("  item"))
    assert lines[begin + 1].startswith("      word")
    assert lines[-2:] == ["", "do this"]
    assert [*Explanation("name", "text").lines()] == ["name", "text"]

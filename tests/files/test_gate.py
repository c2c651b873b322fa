"""What is no graph is refused in one sentence before anything else looks at it."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from graphfix.editing import local_functions as calls
from graphfix.engine import pipeline, registry
from graphfix.errors import GraphfixError, ModelError
from graphfix.files import gate, io
from graphfix.job import checking
from graphfix.ops import attribute_values

HEAD = '<ir_version: 9, opset_import: ["" : 17]>'


def model(body: str, head: str = HEAD) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{head} m (float[T, 4] x) => (float[T, 4] y) {body}")


def refusal(proto: onnx.ModelProto, folder: Path) -> str:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        io.load(path)
    told = str(caught.value)
    assert "\n" not in told
    return told


def no_graph_output(proto: onnx.ModelProto) -> None:
    del proto.graph.output[:]


def wrong_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("axis", "one"))


def unknown_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].attribute.append(helper.make_attribute("colour", 1))


def untyped_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].attribute[0].type = 0


def twice_the_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].attribute.append(helper.make_attribute("axis", 1))


def no_input(proto: onnx.ModelProto) -> None:
    del proto.graph.node[0].input[:]


def empty_input(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[0] = ""


def three_inputs(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input.extend(["x", "x"])


def no_output(proto: onnx.ModelProto) -> None:
    del proto.graph.node[0].output[:]


def not_defined(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[0] = "nowhere"


def circle(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[0] = "y"


def made_twice(proto: onnx.ModelProto) -> None:
    proto.graph.node.add().CopyFrom(proto.graph.node[0])


def bad_name(proto: onnx.ModelProto) -> None:
    data = proto.SerializeToString().replace(b"longname", b"\xff" * 8)
    proto.Clear()
    proto.ParseFromString(data)


def bad_node_name(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].name = "asitsays"
    data = proto.SerializeToString().replace(b"asitsays", b"\xff" * 8)
    proto.Clear()
    proto.ParseFromString(data)


def short_tensor(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.add(name="w", data_type=1, dims=[4], raw_data=b"123")


def long_list(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.add(name="w", data_type=7, dims=[1], int64_data=[1, 2])


def no_such_type(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.add(name="w", data_type=99, dims=[0])


def negative_dim(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.add(name="w", data_type=1, dims=[-1])


def huge_dim(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**41


def huge_rank(proto: onnx.ModelProto) -> None:
    for _ in range(1000):
        proto.graph.input[0].type.tensor_type.shape.dim.add(dim_value=1)


def named(text: str) -> object:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = text

    return change


def metadata(proto: onnx.ModelProto) -> None:
    entry = onnx.StringStringEntryProto.FromString(b"\x0a\x01k\x12\x03\xed\xa0\x80")
    proto.graph.node[0].metadata_props.append(entry)


def opset(version: int) -> object:
    def change(proto: onnx.ModelProto) -> None:
        proto.opset_import[0].version = version

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            wrong_attribute,
            "Softmax of 'longname': Mismatched attribute type in ' : axis'. Expected: 'INT'",
        ),
        (unknown_attribute, "Softmax of 'longname': Unrecognized attribute: colour"),
        (untyped_attribute, "'axis' of Softmax has no type"),
        (twice_the_attribute, "Attribute 'axis' appeared multiple times"),
        (no_input, "has input size 0 not in range [min=1, max=1]"),
        (empty_input, "input 0 is marked single but has an empty string"),
        (three_inputs, "has input size 3 not in range [min=1, max=1]"),
        (no_output, "has output size 0 not in range [min=1, max=1]"),
        (not_defined, "Softmax reads 'nowhere', which no node, input or initializer makes"),
        (circle, "Graph contains a cycle"),
        (made_twice, "Softmax makes 'longname', which something else makes already"),
        (bad_name, "not in UTF-8"),
        (bad_node_name, "the name of a node is not in UTF-8"),
        (short_tensor, "'w' has 3 bytes for the shape [4], which takes 16"),
        (long_list, "'w' has 2 values for the shape [1], which takes 1"),
        (no_such_type, "'w' has no type that there is: 99"),
        (negative_dim, "'w' has a dim of -1"),
        (huge_dim, "'x' has a dim of 2,199,023,255,552"),
        (huge_rank, "'x' has 1,002 dims; 64 are the most"),
        (named("9**9**9"), "which is a number that no memory may hold"),
        (named("2**T"), "which is a number that no memory may hold"),
        (named("(" * 5000), "5,000 characters long"),
        (named("(" * 500 + "T" + ")" * 500), "too many parentheses"),
        (named("-" * 1000 + "T"), "too many parentheses or signs"),
        (named("1" * 5000), "is 5,000 characters long"),
        (named("1" * 50), "is too long a number"),
        (named("T//0"), "is no size"),
        (named("floor()"), "is no size"),
        (metadata, "a text among its metadata is not in UTF-8"),
        (opset(2**31), "version 2147483648 of the operator set ''"),
        (no_graph_output, "the graph has no outputs, so it computes nothing"),
        (opset(-1), "version -1 of the operator set ''"),
    ],
)
def test_each_fault_has_its_sentence(tmp_path: Path, change: object, says: str) -> None:
    proto = model("{ longname = Softmax <axis = 1> (x) y = Relu (longname) }")
    change(proto)  # type: ignore[operator]
    assert says in refusal(proto, tmp_path)


@pytest.mark.parametrize(
    "text", ["T", "?", "batch size", "input.1", "(T - 400)//160", "s0**2", "é"]
)
def test_dims_have_any_name_that_is_a_name(tmp_path: Path, text: str) -> None:
    proto = model("{ y = Relu (x) }")
    named(text)(proto)  # type: ignore[operator]
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    loaded = io.load(tmp_path / "m.onnx")
    # A question mark stands for no name, and for any size; the file keeps it.
    assert loaded.graph.inputs[0].shape[0].value == (None if text == "?" else text)
    io.save(loaded, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()


def test_functions_come_to_an_end(tmp_path: Path) -> None:
    head = '<ir_version: 9, opset_import: ["" : 17, "d" : 1]>'
    proto = model("{ y = d.F0 (x) }", head)

    def function(name: str, *calls: str) -> None:
        nodes = [helper.make_node("Identity", ["a"], ["0"])]
        nodes += [
            helper.make_node(x, [f"{i}"], [f"{i + 1}"], domain="d") for i, x in enumerate(calls)
        ]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
        made = helper.make_function("d", name, ["a"], [f"{len(calls)}"], nodes, imports)
        proto.functions.append(made)

    for i in range(40):
        function(f"F{i}", f"F{i + 1}", f"F{i + 1}")
    function("F40")
    assert "more than 300,000 nodes" in refusal(proto, tmp_path)
    del proto.functions[:]
    function("F0", "F1")
    function("F1", "F0")
    assert "calls itself" in refusal(proto, tmp_path)
    del proto.functions[:]
    function("F0", "F1", "F1")
    function("F1")
    gate.check_model_proto(proto)


def test_counting_nodes_ends_where_a_function_calls_itself() -> None:
    """Who builds a model in Python has passed no gate."""
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "d" : 1]> m (float[T] x) => (float[T] y)
        { y = d.F (x) }
        <domain: "d", opset_import: ["" : 17, "d" : 1]> F (a) => (b) { t = d.F (a) b = Neg (t) }"""
    )
    assert calls.count_inlined_nodes(ir.from_proto(proto)) == 3


def test_names_in_the_place_of_calls_are_those_of_onnx_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without trying all that are taken for each call."""
    body = " ".join(f"c{i + 1} = d.F (c{i})" for i in range(9))
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 17, "d" : 1]> m (float[T] x) => (float[T] y)
        {{ c0 = Relu (x) t_3 = Neg (c0) {body} y = Add (c9, t_3) }}
        <domain: "d", opset_import: ["" : 17]> F (a) => (b) {{ t = Relu (a) b = Neg (t) }}"""
    )
    ours, theirs = ir.from_proto(proto), ir.from_proto(proto)
    calls.inline_functions(ours)
    tried = calls.inliner._make_unique_name
    monkeypatch.setattr(calls, "_fast_unique_names", nullcontext)
    calls.inline_functions(theirs)
    assert calls.inliner._make_unique_name is tried, "theirs is rolled back"
    assert ir.to_proto(ours) == ir.to_proto(theirs)
    assert "t_10" in {x.name for node in ours.graph for x in node.outputs}


LOOP = """{{ y = Loop (m, c, x) <body = b (int64 i, bool go, float[T, 4] a)
    => (bool again, float[T, 4] out) {{ again = {again} out = Relu (a) }}> }}"""


@pytest.mark.parametrize(
    ("trips", "again", "ends"),
    [
        (2**62, "Identity (go)", False),
        (None, "Identity (go)", False),
        (10, "Identity (go)", True),
        (None, "IsNaN (out)", True),
    ],
)
def test_a_loop_that_never_ends_is_told(
    tmp_path: Path, trips: int | None, again: str, ends: bool
) -> None:
    body = LOOP.format(again=again)
    if trips is None:
        body = body.replace("(m, c, x)", '("", c, x)')
    proto = model(body)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    if trips is not None:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(trips), "m"))
    if ends:
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        io.load(tmp_path / "m.onnx")
    else:
        assert "the Loop of 'y' never ends" in refusal(proto, tmp_path)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("y = Cast <to = 99> (x)", "'to' of Cast is 99, which is no type of a tensor"),
        ("y = Cast <to = 0> (x)", "'to' of Cast is 0, which is no type of a tensor"),
        ("y = RandomUniformLike <dtype = -1> (x)", "is -1, which is no type of a tensor"),
        ("y = Softmax <axis = 99> (x)", "'axis' of Softmax names the axis 99; no tensor has"),
        ("y = ReduceMax <axes = [0, 2199023255552]> (x)", "names the axis 2199023255552"),
        ("y = ReverseSequence <time_axis = 4611686018427387904> (x, l)", "'time_axis' of"),
        ("y = Transpose <perm = [0, 0]> (x)", "'perm' of Transpose is no permutation: [0, 0]"),
        ("y = Transpose <perm = [1, 2]> (x)", "is no permutation: [1, 2]"),
        ("y = MaxPool <kernel_shape = [0]> (x)", "'kernel_shape' of MaxPool is 0, not at least 1"),
        (
            "y = SpaceToDepth <blocksize = -1> (x)",
            "'blocksize' of SpaceToDepth is -1, not at least",
        ),
        ("y = LRN <size = 2199023255552> (x)", "is 2199023255552, not a size that there can be"),
        ('y = Einsum <equation = "...i...->"> (x)', "is '...i...->', which is no equation"),
        ('y = Einsum <equation = "ij->["> (x)', "is 'ij->[', which is no equation"),
        ('y = Einsum <equation = "ij->j->i"> (x)', "is 'ij->j->i', which is no equation"),
        ("y = Constant ()", "the Constant of 'y' has no values; it takes one"),
        ("y = Constant <value_int = 1, value_float = 1.0> ()", "has 2 values; it takes one"),
        ("y = Gelu ()", "Gelu of 'y': Node with schema(::Gelu:20) has input size 0"),
    ],
)
def test_values_that_no_attribute_may_have(tmp_path: Path, body: str, says: str) -> None:
    proto = model(f"{{ l = Shape (x) {body} }}")
    assert says in refusal(proto, tmp_path)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("a = Softmax <axis = 1> (x) y = Softmax <axis = 99> (a)", "names the axis 99"),
        ("a = Cast <to = 1> (x) y = Cast <to = 99> (a)", "is 99, which is no type"),
        (
            'a = Einsum <equation = "ij->ij"> (x) y = Einsum <equation = "ij->["> (a)',
            "is 'ij->[', which is no equation",
        ),
    ],
)
def test_what_one_node_may_hold_the_next_may_not(tmp_path: Path, body: str, says: str) -> None:
    """That there is such an attribute is asked once for all nodes; its value of each."""
    assert says in refusal(model(f"{{ {body} }}"), tmp_path)


def test_each_tensor_and_each_text_is_looked_at(tmp_path: Path) -> None:
    proto = model("{ a = Constant <value = float {1.0}> () y = Add (x, a) }")
    second = proto.graph.node.add()
    second.CopyFrom(proto.graph.node[0])
    second.output[0], second.attribute[0].t.dims[:] = "b", [2]
    assert "has 1 value for the shape [2], which takes 2" in refusal(proto, tmp_path)
    second.attribute[0].ClearField("t")
    assert "has no value" in refusal(proto, tmp_path)
    proto = model('{ a = Gelu <approximate = "none"> (x) y = Gelu <approximate = "none"> (a) }')
    proto.opset_import[0].version = 20
    proto.graph.node[1].attribute[0].s = b"\xff"
    assert "is not in UTF-8" in refusal(proto, tmp_path)


def test_the_defaults_of_every_operator_are_permitted() -> None:
    limited = 0
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items() if not schema.domain else ():
            if attribute.default_value.type:
                assert (
                    attribute_values.attribute_refusal(schema.name, attribute.default_value) is None
                )
                limited += name in attribute_values.RULES
    assert limited > 100


def test_a_tensor_has_its_values_in_one_place(tmp_path: Path) -> None:
    """ONNX Runtime, too, does not look beside raw_data, empty as it may be."""
    proto = model("{ y = Relu (x) }")
    proto.graph.initializer.add(name="w", data_type=7, dims=[1], int64_data=[1], raw_data=b"")
    assert "'w' has 0 bytes for the shape [1], which takes 8" in refusal(proto, tmp_path)


def test_unsorted_nodes_are_sorted(tmp_path: Path) -> None:
    proto = model(
        """{ y = Add (d, a) d = If (c) <then_branch = t () => (float[T, 4] o) { o = Neg (a) },
        else_branch = e () => (float[T, 4] p) { p = Abs (b) }> b = Exp (a) a = Relu (x) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    loaded = io.load(tmp_path / "m.onnx")
    assert [x.op_type for x in loaded.graph] == ["Relu", "Exp", "If", "Add"]
    loaded.doc_string = "edited"
    io.save(loaded, tmp_path / "out.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_what_onnx_allows_passes() -> None:
    proto = model(
        """{ a, s = Split <axis = 1> (x) b = Clip (x, , ) l = Concat <axis = 0> (b, b)
        y = Identity (x) }"""
    )
    gate.check_model_proto(proto)
    proto.graph.initializer.add(name="e", data_type=1, dims=[0, 4])
    proto.graph.initializer.add(name="h", data_type=10, dims=[2], int32_data=[1, 2])
    proto.graph.initializer.add(name="q", data_type=22, dims=[3], raw_data=b"\x12\x03")
    proto.graph.initializer.add(name="t", data_type=8, dims=[1], string_data=[b"\xff"])
    gate.check_model_proto(proto)


SCHEMAS = sorted(
    {(x.domain, x.name) for x in onnx.defs.get_all_schemas() if x.domain == ""}
    | {("com.microsoft", x) for x in ("MultiHeadAttention", "FusedMatMul", "Attention")}
)
_VALUES = {
    "INT": st.sampled_from([-1, 0, 1, 99, 2**62]),
    "FLOAT": st.sampled_from([0.0, float("nan")]),
    "STRING": st.sampled_from(["", "NOTSET", "é"]),
    "INTS": st.lists(st.sampled_from([-1, 0, 1, 2**40]), max_size=5),
    "FLOATS": st.lists(st.just(1.0), max_size=3),
    "STRINGS": st.lists(st.just("a"), max_size=2),
    "TENSOR": st.builds(
        lambda dims, raw: onnx.TensorProto(data_type=1, dims=dims, raw_data=raw),
        st.lists(st.integers(0, 3), max_size=3),
        st.binary(max_size=16),
    ),
}


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """A node of any operator with any number of anything."""
    domain, name = draw(st.sampled_from(SCHEMAS))
    kind = draw(st.sampled_from([1, 7, 9, 10]))
    shape = draw(st.sampled_from([None, [], ["T", 4], [2], ["N", "C", "T"], [0]]))
    names = st.sampled_from(["x", "w", ""])
    node = helper.make_node(
        name,
        draw(st.lists(names, max_size=7)),
        draw(st.sampled_from([["y"], ["y", "z"], ["y", ""], [], ["y", "a", "b"]])),
        domain=domain,
    )
    known = onnx.defs.get_schema(name).attributes if domain == "" else {}
    for key, attribute in known.items():
        if attribute.required or draw(st.booleans()):
            wanted = str(attribute.type).rpartition(".")[2]
            if draw(st.integers(0, 9)) == 0:
                wanted = draw(st.sampled_from(sorted(_VALUES)))
            if wanted in _VALUES:
                number = getattr(onnx.AttributeProto, wanted)
                value = draw(_VALUES[wanted])
                node.attribute.append(helper.make_attribute(key, value, attr_type=number))
    weight = onnx.TensorProto(name="w", data_type=kind, dims=[2])
    size = {1: 4, 7: 8, 9: 1, 10: 2}[kind]
    weight.raw_data = bytes(2 * size - (draw(st.integers(0, 9)) == 0))
    end = helper.make_node("Identity", ["y"], ["out"])
    graph = helper.make_graph(
        draw(st.permutations([node, end])),
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_empty_tensor_value_info("out")],
        [weight],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(proto=graphs())
def test_any_graph_is_refused_or_gone_through(tmp_path: Path, proto: onnx.ModelProto) -> None:
    path = tmp_path / "any.onnx"
    path.write_bytes(proto.SerializeToString())
    asked = [
        registry.make_pass(x) for x in registry.pass_names() if x not in ("fix-dims", "keep-output")
    ]
    with suppress(GraphfixError):  # nothing else
        checking.check(io.load(path), checking.default_checks("dml"), ep="dml")
        pipeline.run(io.load(path), asked)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_change_of_a_byte_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    proto = model("{ a, s = Split <axis = 1> (x) b = Concat <axis = 1> (a, s) y = Relu (b) }")
    whole = bytearray(proto.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("byte") / "m.onnx"
    path.write_bytes(whole)
    with suppress(ModelError):  # nothing else
        io.load(path)


def test_a_function_that_is_given_a_graph_is_refused(tmp_path: Path) -> None:
    """A node in it has a name in the place of its body, which nothing here reads."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "d" : 1]> m (bool c, float[N] x) => (float[N] y) '
        "{ y = Relu (x) }"
    )
    node = helper.make_node("If", ["c"], ["y"])
    graph = onnx.AttributeProto.GRAPH
    for name in ("then_branch", "else_branch"):
        node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name="body", type=graph))
    imports = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("d", "F", ["c"], ["y"], [node], imports, ["body"]))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="'then_branch' of If is a graph that a function is given"):
        io.load(path)


@pytest.mark.parametrize(
    ("signature", "outputs", "fits"),
    [
        ("(float[2] a, float[2] b)", "(float[2] c)", True),
        ("(float[2] a)", "(float[2] c)", False),
        ("(float[2] a, float[2] b)", "(float[2] c, float[2] d)", False),
    ],
)
def test_the_body_of_a_sequence_map_has_its_inputs_and_outputs(
    signature: str, outputs: str, fits: bool, tmp_path: Path
) -> None:
    body = f"c = Relu (a) {'d = Neg (a)' if 'd' in outputs else ''}"
    proto = onnx.parser.parse_model(
        f"""{HEAD} m (float[2] x) => (seq(float[2]) y) {{
            s = SequenceConstruct (x, x)
            y = SequenceMap <body = g {signature} => {outputs} {{ {body} }}> (s, x) }}"""
    )
    if fits:
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        io.load(tmp_path / "m.onnx")
    else:
        assert "does not fit the 2 and 1 of the node" in refusal(proto, tmp_path)

"""Any name of a model can be written where one is asked for; what is printed is read back."""

from __future__ import annotations

from pathlib import Path

import click
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import graphfix
from graphfix.cli import main
from graphfix.cli._options import parse_sizes
from graphfix.cli._terminal import clean_text
from graphfix.engine import pipeline, registry
from graphfix.errors import UsageError
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.signature import Signature
from graphfix.shipping.container_spec import parse_containers
from graphfix.spec.quoting import (
    partition_outside_quotes,
    quote_name,
    split_outside_quotes,
    unquote_name,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["input:0.0", "a,b", "a=b", 'say "x"', "a\\b", " a ", "a\nb", "\u200b", "T", "batch size", '"']
)


@given(NAMES, NAMES)
def test_any_name_is_read_back(name: str, other: str) -> None:
    text = quote_name(name)
    assert unquote_name(text) == name
    assert unquote_name(clean_text(text)) == name  # as a terminal shows it
    assert split_outside_quotes(f"{text},{quote_name(other)}", ",") == [text, quote_name(other)]
    assert partition_outside_quotes(f"{text}=1,2", "=") == (text, "=", "1,2")


def test_what_needs_no_quotes_has_none() -> None:
    assert [quote_name(x) for x in ("T", "x.0", "batch size", "past + 1")] == [
        *("T", "x.0", "batch size", "past + 1")
    ]
    assert quote_name("input:0.0") == '"input:0.0"'


@given(NAMES.filter(bool), st.integers(1, 99), NAMES.filter(bool), st.integers(1, 99))
def test_a_pipeline_is_read_back(name: str, size: int, other: str, second: int) -> None:
    fixed = registry.get_pass("fix-dims", dims=tuple({name: size, other: second}.items()))
    told = registry.get_pass("fix-input", values=((name, "3+4"),))
    masked = registry.get_pass("ilens-mask", axis=f"{name}.1", from_=other)
    spec = pipeline.spec_of([fixed, told, masked])
    assert pipeline.parse_passes(spec) == [fixed, told, masked]


@given(NAMES.filter(str.strip))
def test_sizes_are_read_as_they_are_written(name: str) -> None:
    option = click.Option(["--dims"])
    context = click.Context(click.Command("run"))
    assert parse_sizes(context, option, (f"{quote_name(name)}=7,40",)) == {name: [7, 40]}
    assert parse_containers([f"{quote_name(name)}=7,40"]).sizes == {name: (7, 40)}


@pytest.mark.parametrize(
    ("spec", "dims"),
    [
        # The shell has taken the quotes away.
        ("fix-dims:input:0.0=1", {"input:0.0": 1}),
        ("fix-dims:T=5:input:0.0=1", {"T": 5, "input:0.0": 1}),
        ('fix-dims:"input:0".0=1,T=5', {"input:0.0": 1, "T": 5}),
        ('fix-dims:T=5,"a,b=c"=2', {"T": 5, "a,b=c": 2}),
    ],
)
def test_spellings(spec: str, dims: dict[str, int]) -> None:
    (made,) = pipeline.parse_passes(spec)
    assert made == registry.get_pass("fix-dims", dims=tuple(dims.items()))


@pytest.mark.parametrize("spec", ['fix-dims:"T=1', 'fix-dims:T"=1', r'fix-dims:"\q"=1'])
def test_a_quote_that_is_none_is_an_error(spec: str) -> None:
    with pytest.raises(UsageError, match="close the quotes"):
        pipeline.parse_passes(spec)


def named(path: Path, name: str, dim: str | None) -> Path:
    """A model with an input of that name, whose first dim is ``dim``, and a flag beside it."""
    nodes = [
        helper.make_node("Where", ["is:on", name, "zero"], ["kept"]),
        helper.make_node("ReduceMean", ["kept"], ["y"], axes=[1], keepdims=0),
    ]
    x = helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, "T:0", 4])
    flag = helper.make_tensor_value_info("is:on", TensorProto.BOOL, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4])
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    graph = helper.make_graph(nodes, "named", [x, flag], [y], [zero])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.mark.parametrize("name", ["input:0", "a,b", "x=y", 'say "x"'])
@pytest.mark.parametrize("dim", [None, "n:1,2"])
def test_what_is_printed_is_taken(tmp_path: Path, name: str, dim: str | None) -> None:
    path = named(tmp_path / "m.onnx", name, dim)
    model = ir.load(path)
    (skip,) = registry.get_pass("fix-dims").sites(model)
    example = skip.reason.partition("; ")[2].partition(" would")[0]
    spec = f'{example.replace("SIZE", "3")},fix-input:"is:on"=1'
    report = graphfix.repair_file(path, tmp_path / "o.onnx", spec)
    assert report.ok
    fixed = onnx.load(tmp_path / "o.onnx").graph.input
    assert [[d.dim_value for d in x.type.tensor_type.shape.dim] for x in fixed] == [[3, 3, 4]]
    # And by the place of the dim; what the metadata says is read back, too.
    place = quote_name(f"{name}.0")
    report = graphfix.repair_file(path, tmp_path / "p.onnx", f"fix-dims:{place}=3")
    assert report.ok
    made = ir.load(tmp_path / "p.onnx")
    kept = pipeline.parse_passes(made.metadata_props[pipeline.PIPELINE_KEY])
    assert not graphfix.run(made, kept).changed
    assert not graphfix.run(made, f'fix-dims:"T:0"=3:{place}=3').passes[0].skips


def test_what_run_prints_of_sizes_dims_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = named(tmp_path / "m.onnx", "input:0", "n,1")
    assert main(["verify", str(path), str(path), "--dims", '"n,1"=2', "--dims", "T:0=5"]) == 0
    shown = capsys.readouterr().out
    assert '"n,1" 2' in shown
    assert '"T:0" 5' in shown
    maker = CaseMaker(Signature(ir.load(path)), 0)
    assert maker.describe_sizes({"n_1": 2, "T_0": 5}) == '"n,1"=2 "T:0"=5'


def test_check_writes_dims_as_run_takes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = named(tmp_path / "m.onnx", "input:0", None)
    main(["check", str(path), "-v"])
    shown = " ".join(capsys.readouterr().out.split())
    assert 'fix-dims:"input:0.0"=SIZE gives it a size' in shown

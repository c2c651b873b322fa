"""What shipping reads of a model: its padded axis, its sizes, and why some have no container."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError, UsageError
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role
from graphfix.feeds.signature import Signature
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.model_facts import (
    ModelFacts,
    _size_containers,
    input_port_of,
    read_facts,
    require_sizes,
    sizes_by_group,
)
from tests.feeds.small_models import HEAD
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

MEAN = "mean (float[B, T, 4] x) => (float[B, 1, 4] y) { y = ReduceMean <axes = [1]> (x) }"
# A window of three frames.
CONV = """conv (float[B, 1, T] x) => (float[B, 1, F] y) <float[1, 1, 3] w = {1, 2, 3}> {
    y = Conv (x, w) }"""
BATCH = "rows ({dtype}[{name}, 4] x) => ({dtype}[{name}, 4] y) {{ y = Neg (x) }}"


def facts_of(
    text: str, containers: str, folder: Path, axis: str = "", rate: float | None = None
) -> ModelFacts:
    path = saved(HEAD + text, folder / "m.onnx")
    spec = parse_containers(containers.split(), rate)
    return read_facts(ir.load(path), str(path), spec, axis)


def test_the_facts_of_a_model(tmp_path: Path) -> None:
    facts = facts_of(MEAN, "T=8,20 B=2", tmp_path)
    assert (facts.axis.dim, facts.axis.input, facts.axis.axis) == ("T", "x", 1)
    assert (facts.axis.rate, facts.axis.shortest) == (None, 1)
    assert facts.batch == "B"
    assert facts.containers == ({"B": 2, "T": 8}, {"B": 2, "T": 20})
    assert facts.names == {"B": ("B",), "T": ("T",)}
    assert (facts.validity_input, facts.dropped, facts.forced) == ("", (), {})
    (port,) = facts.inputs
    assert (port.name, port.type, port.dims, port.rows) == ("x", "tensor(float)", ("B", "T", 4), 0)
    # Each clip is of a row of its own; both container sizes are among them, and one less.
    lengths = [x.length for x in facts.clips]
    assert lengths == sorted(lengths)
    assert {8, 20, 7, 19} <= {*lengths}
    assert all(x.feeds["x"].shape == (1, x.length, 4) for x in facts.clips)
    assert facts.clips[0].outputs["y"].shape == (1, 1, 4)


def test_the_batch_is_one_unless_it_is_given(tmp_path: Path) -> None:
    assert facts_of(MEAN, "T=8", tmp_path, rate=2.0).containers == ({"B": 1, "T": 8},)
    assert facts_of(MEAN, "T=4s", tmp_path, rate=2.0).axis.rate == 2


def test_the_shortest_clip_fills_a_window(tmp_path: Path) -> None:
    facts = facts_of(CONV, "T=60", tmp_path)
    assert facts.axis.shortest == 3
    assert facts.clips[0].length == 3


def test_the_shortest_clip_that_runs(tmp_path: Path) -> None:
    """A longer clip has four frames to cut off; of a shorter one only a run tells."""
    text = """late (float[B, T] x) => (float[B, 4] y) <int64[1] zero = {0}, int64[1] four = {4},
        int64[1] one = {1}, int64[2] shape = {1, 4}> {
        c = Slice (x, zero, four, one)  y = Reshape (c, shape) }"""
    facts = facts_of(text, "T=40", tmp_path)
    assert facts.axis.shortest == 4
    assert all(x.length >= 4 for x in facts.clips)
    assert all(x.startswith("T=") for x in facts.dropped)


def test_a_model_that_runs_at_no_length_is_refused(tmp_path: Path) -> None:
    text = """never (float[B, T] x) => (float[B, T] y) <int64[2] none = {7, 7}> {
        s = Reshape (x, none)  m = ReduceSum (s)  y = Mul (x, m) }"""
    with pytest.raises(FeedError, match=r"runs at none of the lengths \(T=3: .*; T=.*; T=") as told:
        facts_of(text, "T=40", tmp_path)
    assert str(told.value).count("T=") == 3


def test_a_container_at_which_the_model_does_not_run_is_refused(tmp_path: Path) -> None:
    text = """even (float[B, T] x) => (float[B, H, 2] y) <int64[3] shape = {0, -1, 2}> {
        y = Reshape (x, shape) }"""
    with pytest.raises(UsageError, match="--container T=7: the model as given does not run at"):
        facts_of(text, "T=7,8", tmp_path)


# Sizes


@pytest.mark.parametrize(
    ("text", "containers", "axis", "said"),
    [
        (MEAN, "Q=8", "", "no input has a dim 'Q'; there are: B, T"),
        (MEAN, "B=2", "", "a container has a size for each dim, and T has none; say --container "
         "T=500,3000 or in seconds, with --rate"),
        (MEAN, "T=8 B=1,2", "", "--container B: only T has several"),
        (
            "two (float[T, 4] x, float[U, 4] z) => (float[T, 4] y) {"
            " m = ReduceMean <axes = [0]> (z)  y = Add (x, m) }",
            "T=8", "T", "U has none; say --container U=SIZE$",
        ),
        (MEAN.replace("B, T", "2, 5").replace("B, 1", "2, 1"), "T=8", "",
         "no input has a dim 'T'; there are: |the model has no symbolic dim, so nothing can be"),
        (MEAN.replace("B, T", "2, 5").replace("B, 1", "2, 1"), "", "",
         "no symbolic dim, so nothing can be padded: it is one size"),
        (
            "forced (float[T, 4] x) => (float[5, 4] y) <float[5, 4] z> { y = Add (x, z) }",
            "T=5", "", "no dim may vary, so nothing can be padded: T = 5, .*fix-dims:T=5$",
        ),
        (BATCH.format(dtype="float", name="batch"), "", "",
         "only batch, the batch, may vary, so .*fix-dims:batch=1 .*say --axis batch"),
        (BATCH.format(dtype="float", name="batch"), "batch=3", "", "fix-dims:batch=3 "),
        ("hidden (float[B, 4] x, int64[B, T] mask) => (float[B, T] y) <float low = {-10000.0}, "
         "float one = {1.0}, float[4, 1] w = {1.0, 2.0, 3.0, 4.0}> { h = MatMul (x, w) "
         "m = Cast <to = 1> (mask) rest = Sub (one, m) minus = Mul (rest, low) "
         "s = Add (h, minus) y = Softmax <axis = -1> (s) }", "T=8", "",
         r"has the dim T by itself \('mask' has it, and is of the kind mask\)"),
        ("words (string[B, T] x, float[B, T] z) => (float[B, T] y) { y = Neg (z) }", "T=8", "",
         "the input 'x' cannot be put into a container: its type is"),
    ],
)  # fmt: skip
def test_what_has_no_container_is_told(
    text: str, containers: str, axis: str, said: str, tmp_path: Path
) -> None:
    if "float[5, 4] z>" in text:
        numbers = ", ".join("1" * 20)
        text = text.replace("float[5, 4] z", f"float[5, 4] z = {{{numbers}}}")
    with pytest.raises(UsageError, match=said):
        facts_of(text, containers, tmp_path, axis)


def test_another_size_than_the_graph_dictates_is_refused(tmp_path: Path) -> None:
    numbers = ", ".join("1" * 20)
    text = f"""forced (float[T, 4] x) => (float[5, 4] y) <float[5, 4] z = {{{numbers}}}> {{
        y = Add (x, z) }}"""
    with pytest.raises(FeedError, match="T is 5, as z wants it: the model seldom runs at"):
        facts_of(text, "T=6", tmp_path)


@pytest.mark.parametrize(
    ("name", "containers", "axis"), [("batch", "batch=8", "batch"), ("rows", "rows=8", "")]
)
def test_a_batch_may_be_what_is_padded(name: str, containers: str, axis: str) -> None:
    """It is named as the axis, or given a size by a name that says no batch."""
    text = "pictures (float[{0}, 3, 8, 8] x) => (float[{0}, 3, 8, 8] y) {{ y = Neg (x) }}"
    signature, spec = signature_of(text.format(name)), parse_containers([containers])
    assert signature.batch == name
    assert _size_containers(signature, spec, axis).time == name


def test_a_cache_that_grows_has_no_container(tmp_path: Path) -> None:
    text = """cached (float[B, S, 4] x, float[B, P, 4] past_key)
        => (float[B, S, 4] y, float[B, Q, 4] present_key) {
        present_key = Concat <axis = 1> (past_key, x)
        m = ReduceMean <axes = [1]> (present_key)  y = Add (x, m) }"""
    said = r"continues a cache \(P grows from run to run\).*fix-dims:B=SIZE:.*SIZE$"
    with pytest.raises(UsageError, match=said):
        facts_of(text, "S=8", tmp_path)


def signature_of(text: str) -> Signature:
    return Signature(ir.from_onnx_text(HEAD + text))


def test_sizes_are_asked_for_by_names_that_stand_for_dims() -> None:
    signature, spec = signature_of(MEAN), parse_containers(["B=2", "T=8"])
    assert sizes_by_group(signature, spec, {}) == {"B": (2,), "T": (8,)}
    # By its place, and by a name that a caller knows.
    assert sizes_by_group(signature, parse_containers(["x.1=8"]), {}) == {"B": (1,), "T": (8,)}
    spec = parse_containers(["frames=8"])
    assert sizes_by_group(signature, spec, {"FRAMES": lambda: "T"})["T"] == (8,)
    with pytest.raises(UsageError, match="no input has a dim 'frames'; there are: B, T"):
        sizes_by_group(signature, spec, {"S": lambda: "T"})


@pytest.mark.parametrize("name", ["b", "B", "batch", "BATCH"])
def test_a_batch_is_asked_for_by_its_letter(name: str) -> None:
    spec = parse_containers([f"{name}=2", "T=8"])
    signature = signature_of(MEAN.replace("B,", "rows,"))
    assert signature.batch == "rows"
    assert sizes_by_group(signature, spec, {}) == {"rows": (2,), "T": (8,)}
    # A model of one row has it, whatever is asked for.
    assert sizes_by_group(signature_of(MEAN.replace("B,", "1,")), spec, {}) == {"T": (8,)}


def test_a_size_that_the_graph_dictates_may_be_said() -> None:
    numbers = ", ".join("1" * 20)
    text = f"""forced (float[N, T, 4] x) => (float[N, 5, 4] y)
        <float[5, 4] z = {{{numbers}}}> {{ y = Add (x, z) }}"""
    signature = signature_of(text)
    assert sizes_by_group(signature, parse_containers(["T=5", "N=2"]), {}) == {"N": (2,)}


def test_each_dim_has_a_size_and_one_may_have_several() -> None:
    signature = signature_of(MEAN)
    example = "{}=9".format
    require_sizes(signature, {"B": (1,), "T": (8, 9)}, ["B", "T"], "T", example)
    require_sizes(signature, {"B": (1,), "T": (8,)}, ["B", "T"], "B", example)
    require_sizes(signature, {"T": (8, 9)}, ["T"], "T", example)
    with pytest.raises(UsageError, match="and B has none; say --container B=9"):
        require_sizes(signature, {"T": (8,)}, ["B", "T"], "T", example)
    with pytest.raises(UsageError, match="--container T: only B has several"):
        require_sizes(signature, {"B": (1,), "T": (8, 9)}, ["B", "T"], "B", example)


# Inputs


def port_of(role: Role, problem: str = "", dtype: str = "int64") -> object:
    item = Input("extra", np.dtype(dtype), (ir.SymbolicDim("B"), 3), role, problem=problem)
    return input_port_of(signature_of(MEAN), item, {"B": "rows"})


@pytest.mark.parametrize(
    ("role", "pad"),
    [
        (Role("mask", "", padded=2.0, low=5), 2.0),
        (Role("tokens", "", low=5), 5.0),
        (Role("positions", "", low=3), 3.0),
        (Role("data", "", low=5), 0.0),
    ],
)
def test_the_padding_of_an_input_is_that_of_its_role(role: Role, pad: float) -> None:
    port = port_of(role)
    assert (port.kind, port.pad, port.dims) == (role.kind, pad, ("rows", 3))  # type: ignore[attr-defined]
    assert (port.type, port.rows) == ("tensor(int64)", 0)  # type: ignore[attr-defined]


def test_an_input_that_cannot_be_filled_up_is_refused() -> None:
    with pytest.raises(UsageError, match="'extra': it says where joined clips begin and end"):
        port_of(Role("cu-lengths", ""))
    with pytest.raises(UsageError, match="'extra' cannot be put into a container: no rank"):
        port_of(Role("data", ""), problem="no rank")


MASKED = """masked (float[B, T, 4] x, {mask}) => (float[B, T, 4] y) <int64[1] two = {{2}}> {{
    f = Cast <to = 1> (mask)  u = Unsqueeze (f, two)  y = Mul (x, u) }}"""


@pytest.mark.parametrize(
    ("text", "validity"),
    [
        (MASKED.format(mask="int64[B, T] mask"), "mask"),
        (MEAN, ""),
        # Lengths of another time are none of it.
        (
            """two (float[B, T, 4] x, float[B, U, 4] z, int64[B, U] mask) => (float[B, T, 4] y)
            <int64[1] two = {2}> { f = Cast <to = 1> (mask)  u = Unsqueeze (f, two)
            v = Mul (z, u)  m = ReduceMean <axes = [1]> (v)  y = Add (x, m) }""",
            "",
        ),
    ],
)
def test_a_mask_of_the_padded_axis_says_what_is_valid(
    text: str, validity: str, tmp_path: Path
) -> None:
    containers = "T=8 U=5" if "U" in text.split("=>")[0] else "T=8"
    axis = "T" if "U=5" in containers else ""
    assert facts_of(text, containers, tmp_path, axis).validity_input == validity


def test_a_mask_for_each_pair_says_nothing_of_lengths(tmp_path: Path) -> None:
    text = """pairs (float[B, T, 4] x, int64[B, T, T] mask) => (float[B, T, 4] y) {
        f = Cast <to = 1> (mask)  y = MatMul (f, x) }"""
    assert facts_of(text, "T=8", tmp_path).validity_input == ""


def test_a_mask_of_what_is_padding_has_no_sum_that_is_the_length(tmp_path: Path) -> None:
    text = """gone (float[B, T, 4] x, bool[B, T] gone) => (float[B, T, 4] y)
        <int64[1] two = {2}> { h = Not (gone)  f = Cast <to = 1> (h)  u = Unsqueeze (f, two)
        y = Mul (x, u) }"""
    facts = facts_of(text, "T=8", tmp_path)
    assert {x.name: x.pad for x in facts.inputs} == {"x": 0.0, "gone": 1.0}
    assert facts.validity_input == ""

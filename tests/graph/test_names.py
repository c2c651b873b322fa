"""What passes make has a name of its own, whoever has named something before."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.core import Change, Pass
from graphfix.engine import pipeline
from graphfix.graph import names
from graphfix.graph.text import node_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.core import Match, Skip

BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N] x, bool c) => (float[N] y) {
        [gf_fold_1] a = Neg (x)
        y = If (c) <
            then_branch = t () => (float[N] gf_fold_0) { gf_fold_0 = Neg (a) },
            else_branch = e () => (float[N] o) <float[1] gf_fold_2 = {1}> { o = Add (a, gf_fold_2) }
        > }"""
ROWS = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[R, 4] table, int32[N] ids) => (float[N, 4] y) { y = Gather (table, ids) }"""


def test_a_new_name_is_that_of_no_value_and_no_node_in_any_graph() -> None:
    model = ir.from_onnx_text(BRANCHES)
    assert names.name_maker_of(model).new_name("fold") == "gf_fold_3"
    assert names.name_maker_of(model).new_name("slice-start") == "gf_slice_start_0"


def test_what_is_kept_is_given_once_until_it_is_let_go() -> None:
    model = ir.from_onnx_text(ROWS)
    names.share_name_maker(model)
    assert [names.name_maker_of(model).new_name("fold") for _ in range(2)] == [
        "gf_fold_0",
        "gf_fold_1",
    ]
    names.unshare_name_maker(model)
    assert names.name_maker_of(model).new_name("fold") == "gf_fold_0"


class AnotherGather(Pass):
    """Gathers once more, and calls it what another pass would."""

    name: ClassVar[str] = "another-gather"

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """At the end of the graph."""
        node = ir.node("Gather", list(model.graph.inputs), name="gf_gather_int64_2")
        node.outputs[0].name = node.name
        model.graph.append(node)
        model.graph.outputs.append(node.outputs[0])
        yield Change(self.name, node_label(node), node.name or "", (), ())

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """It has its turn, and no other."""
        yield from ()


def test_a_name_that_a_pass_gives_by_itself_is_not_given_again() -> None:
    model = ir.from_onnx_text(ROWS)
    pipeline.apply_passes(
        model, [*pipeline.parse_passes("gather-int64:convert=yes"), AnotherGather()]
    )
    made = [x.outputs[0].name for x in model.graph if x.op_type == "Cast"]
    assert made == ["gf_gather_int64_0", "gf_gather_int64_3"]

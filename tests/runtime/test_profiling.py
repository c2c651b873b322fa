"""Which provider ran each node, from a profile."""

from __future__ import annotations

from graphfix.runtime.profiling import NodePlacement, PlacedNode, read_placement


def event(name: str, op: str, provider: str = "CPU") -> dict[str, object]:
    return {"name": f"{name}_kernel_time", "args": {"op_name": op, "provider": provider}}


def test_each_node_counts_once_where_it_ran() -> None:
    placement = read_placement(
        [
            event("a", "Relu"),
            event("f", "DmlFusedNode_0_1", "DML"),
            event("g", "DmlRuntimeFusedNode_3", "DML"),
            event("c", "MemcpyFromHost", "DML"),
            event("d", "MemcpyToHost", "DML"),
            event("a", "Relu"),
            {"name": "a_fence_before", "args": {"op_name": "Relu", "provider": "CPU"}},
            {"name": "b_kernel_time", "args": {"op_name": "Neg", "provider": ""}},
            {"name": "session_initialization"},
        ]
    )
    assert [x.name for x in placement.nodes] == ["a", "f", "g", "c", "d"]
    assert placement.provider_counts == {"CPU": 1, "DML": 2}
    assert (placement.fused_count, placement.copy_count) == (2, 2)
    assert placement.to_json() == {
        "counts": {"CPU": 1, "DML": 2},
        "fused_graphs": 2,
        "copies": 2,
        "nodes": [{"name": x.name, "op": x.op, "provider": x.provider} for x in placement.nodes],
    }
    assert NodePlacement((PlacedNode("a", "Relu", "CPU"),)).fused_count == 0

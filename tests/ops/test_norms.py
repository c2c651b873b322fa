"""Norms: the epsilon of their schemas, and the axes of their scales."""

import onnx
import onnx_ir as ir
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphfix import ops
from graphfix.ops.norms import epsilon_of, scaled_axes
from tests.ops.nodes import node_in_text

_SCHEMAS = {
    (f"{x.domain}." if x.domain else "") + x.name: x
    for x in sorted(state.get_all_operator_schema(), key=lambda x: x.since_version)
}


@pytest.mark.parametrize("operator", sorted(ops.NORMS))
def test_epsilon_is_the_default_of_the_schema(operator: str) -> None:
    schema = _SCHEMAS[operator]
    domain, _, op_type = operator.rpartition(".")
    found = epsilon_of(ir.Node(domain, op_type, [ir.Value(name="x")]))
    if "epsilon" in schema.attributes:
        default = schema.attributes["epsilon"]._default_value
        assert found == pytest.approx(_float_of(default))


def _float_of(serialized: bytes) -> float:
    return onnx.AttributeProto.FromString(serialized).f


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("LayerNormalization (x, w)", (2,)),
        ("LayerNormalization <axis = 1> (x, w)", (1, 2)),
        ("com.microsoft.SkipLayerNormalization (x, x, w)", (2,)),
        ("InstanceNormalization (x, w, v)", (1,)),
        ("GroupNormalization <num_groups = 2> (x, w, v)", (1,)),
        ("LpNormalization (x)", None),
        ("MeanVarianceNormalization (x)", None),
    ],
)
def test_the_axes_that_a_scale_lies_along(text: str, axes: tuple[int, ...] | None) -> None:
    assert scaled_axes(node_in_text(text), 3, 21) == axes

"""The weights of recurrences."""

from graphfix.ops.recurrent import feature_axis_of_weight
from tests.ops.nodes import node_in_text


def test_the_features_of_a_weight() -> None:
    assert feature_axis_of_weight(node_in_text("GRU <hidden_size = 4> (x, w, v)")) == 2
    assert feature_axis_of_weight(node_in_text("com.microsoft.DynamicQuantizeLSTM (x, w, v)")) == 1

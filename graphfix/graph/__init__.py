"""The graph in hand: nodes, walks, constants, names, text. It knows no operator and no shape.

These names are public, for passes of one's own; see docs/own-pass.md.
"""

from graphfix.graph.constants import const_of, ints_of, scalar_of
from graphfix.graph.nodes import attr_float, attr_int, attr_ints, attr_text, input_at, is_op
from graphfix.graph.walks import all_nodes, nodes_of, opset_of

__all__ = ["all_nodes", "attr_float", "attr_int", "attr_ints", "attr_text", "const_of"]
__all__ += ["input_at", "ints_of", "is_op", "nodes_of", "opset_of", "scalar_of"]

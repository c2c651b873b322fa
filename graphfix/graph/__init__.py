"""The graph in hand: nodes, walks, constants, names, text. It knows no operator and no shape."""

"""Sizes: fixed, restored, computed once, or taken out of the graph."""

"""Edits of a graph: the Builder, new names, dead nodes, exclusions."""

"""Edits of a graph: the Builder, orphans, local functions, snapshots, exclusions."""

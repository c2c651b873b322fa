"""Passes by name, in a pipeline, until nothing changes; and the report."""

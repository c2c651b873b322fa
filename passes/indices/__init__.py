"""Indices: how they are counted, gathered and looked up."""

"""Passes that repair nodes which a provider refuses or computes wrongly."""

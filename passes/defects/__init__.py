"""Repairs of what a provider refuses or computes wrongly."""

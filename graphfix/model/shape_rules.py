"""Rules that onnx_shape_inference does not have (yet), added through its own registry."""

from __future__ import annotations


def register() -> None:
    """Add the rules to the registry of onnx_shape_inference; a second call does nothing."""

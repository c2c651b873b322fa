"""Abilities of ONNX Runtime's DirectML provider, as data and as rules."""

"""Abilities of ONNX Runtime's WebGPU provider, as data and as rules."""

"""What ONNX Runtime's DirectML provider can do, as data and as rules."""

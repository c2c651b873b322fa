"""What ONNX Runtime's CUDA execution provider does: which kernels it has, and what it refuses."""

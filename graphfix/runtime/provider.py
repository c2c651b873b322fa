"""The execution providers that ``--ep`` names."""

from typing import Literal

Ep = Literal["cpu", "dml", "cuda"]

PROVIDERS: dict[Ep, str] = {
    "cpu": "CPUExecutionProvider",
    "dml": "DmlExecutionProvider",
    "cuda": "CUDAExecutionProvider",
}
"""What ONNX Runtime calls them."""

DML = PROVIDERS["dml"]

LABELS: dict[Ep, str] = {"cpu": "the CPU", "dml": "DirectML", "cuda": "CUDA"}
"""What a provider is called in a sentence."""


def available_providers() -> list[str]:
    """Return the execution providers of this Python's ONNX Runtime, by its own names."""
    import onnxruntime

    names: list[str] = onnxruntime.get_available_providers()
    return names

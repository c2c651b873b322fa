"""The execution providers that a session of containers asks for, where its user names none."""

from __future__ import annotations

from typing import Any

import onnxruntime

DIRECTML = "DmlExecutionProvider"
_CPU = "CPUExecutionProvider"


def default_providers() -> list[Any]:
    """DirectML where there is one, and the CPU for what it does not run."""
    known = onnxruntime.get_available_providers()
    # The device that the containers were proved on. Without one ONNX Runtime asks DXCore, which
    # older Windows has not, and falls back to the CPU with a line on standard output.
    return [(x, {"device_id": 0}) if x == DIRECTML else x for x in (DIRECTML, _CPU) if x in known]

"""Run one model on WebGPU, for the Python of ``make webgpu``: an error if no device opens."""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime

_PROVIDER = "WebGpuExecutionProvider"
# y = Relu(x) of a vector, as bytes: that Python has no onnx.
_MODEL = bytes.fromhex(
    "08083a350a0e0a0178120179220452656c753a001201675a0f0a0178120a0a08080112040a020802"
    "620f0a0179120a0a08080112040a02080242040a001011"
)


def main() -> int:
    """Return 0 if the model runs there."""
    session = onnxruntime.InferenceSession(_MODEL, providers=[_PROVIDER])
    if session.get_providers()[0] != _PROVIDER:
        return 1
    (y,) = session.run(None, {"x": np.array([-1, 2], np.float32)})
    return int(y.tolist() != [0, 2])


if __name__ == "__main__":
    sys.exit(main())

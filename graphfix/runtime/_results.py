"""ONNX Runtime's results as arrays by name; also used by the worker, without graphfix."""

from typing import Any

import numpy as np


def flatten_output(name: str, result: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return an output as arrays by name.

    Args:
        name: Its name.
        result: An array; a list for a sequence; a dict for a map; None for an absent optional.

    Returns:
        An array as it is; ``y.length``, ``y[0]``, ... of a sequence; ``y.keys``, ``y[key]``, ... of
        a map; ``y.present``, false, of what is absent. Nothing of a type that is unknown here.
    """
    if isinstance(result, np.ndarray):
        return {name: result}
    if result is None:
        return {f"{name}.present": np.array(False)}
    if isinstance(result, (list, tuple)):
        arrays: dict[str, Any] = {f"{name}.length": np.array(len(result))}
        for i, element in enumerate(result):
            arrays |= flatten_output(f"{name}[{i}]", element)
        return arrays
    if isinstance(result, dict):
        keys = sorted(result)
        arrays = {f"{name}.keys": np.array(keys, object)}
        for key in keys:
            arrays |= flatten_output(f"{name}[{key!r}]", result[key])
        return arrays
    if isinstance(result, (bool, int, float, str, np.generic)):
        array = np.asarray(result)
        return {name: array.astype(object) if array.dtype.kind == "U" else array}
    return {}

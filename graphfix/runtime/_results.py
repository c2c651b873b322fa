"""What ONNX Runtime returns, as arrays by name; also used by the worker, which stands alone."""

from typing import Any

import numpy as np


def flattened(name: str, result: Any) -> dict[str, Any]:  # noqa: ANN401
    """An output as arrays.

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
        found: dict[str, Any] = {f"{name}.length": np.array(len(result))}
        for i, one in enumerate(result):
            found |= flattened(f"{name}[{i}]", one)
        return found
    if isinstance(result, dict):
        keys = sorted(result)
        found = {f"{name}.keys": np.array(keys, object)}
        for key in keys:
            found |= flattened(f"{name}[{key!r}]", result[key])
        return found
    if isinstance(result, (bool, int, float, str, np.generic)):
        array = np.asarray(result)
        return {name: array.astype(object) if array.dtype.kind == "U" else array}
    return {}

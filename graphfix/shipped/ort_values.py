"""Inputs as people feed onnxruntime: arrays, what becomes one, and OrtValues."""

from typing import Any

import numpy as np
from onnxruntime import OrtValue

from graphfix.errors import FeedError
from graphfix.runtime.port import Array


def as_array(name: str, value: object) -> Array:
    """Return what is fed to an input as an array on the host.

    Raises:
        FeedError: It is none: lists of different lengths, None, or a tensor on another device.
    """
    try:
        array: Array = np.asarray(value.numpy() if isinstance(value, OrtValue) else value)
    except Exception as error:  # each library of tensors raises errors of its own
        raise FeedError(f"the input {name!r} is no array: {error}") from error
    if array.dtype == object and not all(isinstance(x, str) for x in array.flat):
        kind: Any = type(value)
        raise FeedError(f"the input {name!r} is {kind.__name__}, and not an array of numbers")
    return array

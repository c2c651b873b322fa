"""Transport of arrays between two processes, through a file that both have open.

The file has no name where the system allows that, so nothing of it is left by a process that is
killed. Also used by the worker, without graphfix.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# What took more than this is given back to the system as soon as it is read.
_LARGEST_KEPT = 1 << 24


def put(file: io.FileIO, arrays: Mapping[str, Any]) -> list[list[Any]]:
    """Write arrays into a file, over what was there.

    Args:
        file: Open to read and write, without a buffer.
        arrays: Arrays of any shape, by name; texts are arrays of objects.

    Returns:
        For each array its name, its dtype and its shape; of texts also what they are. As JSON.

    Raises:
        OSError: There is no room.
    """
    file.seek(0)
    table: list[list[Any]] = []
    for name, value in arrays.items():
        array = np.asarray(value)
        shape = [*array.shape]
        if array.dtype.kind in "OSU":
            table.append([name, "text", shape, [_as_text(x) for x in array.ravel().tolist()]])
            continue
        table.append([name, array.dtype.str, shape])
        remaining = _memory_of(np.ascontiguousarray(array))
        while remaining:
            remaining = remaining[file.write(remaining) :]
    return table


def take(file: io.FileIO, table: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Read what :func:`put` has written.

    Args:
        file: The same file.
        table: What it returned.
    """
    file.seek(0)
    arrays: dict[str, Any] = {}
    for name, dtype, shape, *texts in table:
        if texts:
            array = np.empty(len(texts[0]), dtype=object)
            array[:] = texts[0]
            arrays[name] = array.reshape(shape)
            continue
        arrays[name] = np.empty(shape, np.dtype(dtype))
        remaining = _memory_of(arrays[name])
        while remaining:
            count = file.readinto(remaining)
            if not count:
                raise EOFError(f"of the array {name!r}, {len(remaining)} bytes have not come")
            remaining = remaining[count:]
    if file.tell() > _LARGEST_KEPT:
        file.truncate(0)
    return arrays


def _memory_of(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of an array, of any dtype and also if it is empty."""
    return array.reshape(-1).view(np.uint8).data


def _as_text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)

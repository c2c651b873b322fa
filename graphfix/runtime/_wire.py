"""How arrays travel between two processes: one after the other in a file that both have open.

The file has no name where the system allows that, so nothing of it is left by a process that is
killed. Also used by the worker, which stands alone.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# What took more than this is given back to the system as soon as it is read.
_KEPT = 1 << 24


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
    for name, given in arrays.items():
        array = np.asarray(given)
        shape = [*array.shape]
        if array.dtype.kind in "OSU":
            table.append([name, "text", shape, [_text(x) for x in array.ravel().tolist()]])
            continue
        table.append([name, array.dtype.str, shape])
        rest = _bytes(np.ascontiguousarray(array))
        while rest:
            rest = rest[file.write(rest) :]
    return table


def take(file: io.FileIO, table: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Read what :func:`put` has written.

    Args:
        file: The same file.
        table: What it returned.
    """
    file.seek(0)
    found: dict[str, Any] = {}
    for name, dtype, shape, *texts in table:
        if texts:
            array = np.empty(len(texts[0]), dtype=object)
            array[:] = texts[0]
            found[name] = array.reshape(shape)
            continue
        found[name] = np.empty(shape, np.dtype(dtype))
        rest = _bytes(found[name])
        while rest:
            count = file.readinto(rest)
            if not count:
                raise EOFError(f"of the array {name!r}, {len(rest)} bytes have not come")
            rest = rest[count:]
    if file.tell() > _KEPT:
        file.truncate(0)
    return found


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The memory of an array; a cast of Python's own knows neither complex numbers nor none."""
    return array.reshape(-1).view(np.uint8).data


def _text(one: object) -> str:
    return one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else str(one)

"""ONNX's Slice in Python's terms."""


def python_slice(start: int, end: int, step: int, size: int) -> slice:
    """Return the Python slice that takes what ONNX's ``start:end:step`` takes of an axis.

    Backwards, one that begins before the first begins there, where Python has nothing. ONNX Runtime
    takes the greatest integers as an end that is not given, backwards too.
    """
    open_end = step < 0 and end in (2**31 - 1, 2**63 - 1)
    return slice(max(start, -size), None if open_end else end, step)


def sliced_length(start: int, end: int, step: int, size: int) -> int:
    """Return how many elements ONNX's ``start:end:step`` takes of an axis."""
    return len(range(*python_slice(start, end, step, size).indices(size)))

"""What a Slice takes, in Python's terms."""


def slice_of(start: int, end: int, step: int, size: int) -> slice:
    """The slice of a list that takes what ONNX's ``start:end:step`` takes of an axis.

    Backwards, one that begins before the first begins there, where Python has nothing. ONNX Runtime
    takes the greatest integers as an end that is not given, backwards too.
    """
    open_end = step < 0 and end in (2**31 - 1, 2**63 - 1)
    return slice(max(start, -size), None if open_end else end, step)


def length_in(start: int, end: int, step: int, size: int) -> int:
    """How many elements that is."""
    return len(range(*slice_of(start, end, step, size).indices(size)))

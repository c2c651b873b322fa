"""Checks masks and lengths from which containers take how long a clip is."""

import numpy as np

from graphfix.errors import FeedError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.manifest import InputPort, Manifest


def require_countable(manifest: Manifest, feeds: Feeds, length: int) -> None:
    """Raise FeedError where a container would take another length from an input than is meant.

    Args:
        manifest: What is known of the model.
        feeds: The inputs of a clip, or of a batch of clips of one length, of the right ranks.
        length: The size of the padded axis.
    """
    shortest = manifest.axis.shortest
    for port in manifest.inputs:
        array = feeds.get(port.name)
        if array is None or not port.counted:
            continue
        if port.kind == "mask":
            _require_valid_first(port, array, shortest)
        else:
            _require_lengths(port, array, shortest, length)


def _require_valid_first(port: InputPort, mask: Array, shortest: int) -> None:
    rows = mask.reshape(mask.shape[0] if mask.ndim > 1 else 1, -1)
    is_valid = rows == port.valid
    if is_valid.all():
        return
    is_known = is_valid | (rows == port.pad)
    if not is_known.all():
        row, at = np.argwhere(~is_known)[0]
        raise FeedError(
            f"the mask {port.name!r} has {rows[row, at]} in row {row} at {at}, and containers "
            f"count in it: it has to be {port.valid:g} for what is valid, then {port.pad:g}"
        )
    comes_late = is_valid[:, 1:] & ~is_valid[:, :-1]
    if comes_late.any():
        row, at = np.argwhere(comes_late)[0]
        raise FeedError(
            f"the mask {port.name!r} hides what is before {at + 1} in row {row}, and containers "
            f"count in it: it has to be {port.valid:g} for what is valid, then {port.pad:g}. Cut "
            "what is hidden in front, or run the original with such masks"
        )
    counts = is_valid.sum(1)
    if counts.min() < shortest:
        raise FeedError(
            f"the mask {port.name!r} has {counts.min()} valid in row {counts.argmin()}, and the "
            f"shortest clip that the model takes has {shortest}"
        )


def _require_lengths(port: InputPort, lengths: Array, shortest: int, length: int) -> None:
    is_length = (lengths >= shortest) & (lengths <= length)
    if not is_length.all():
        raise FeedError(
            f"the input {port.name!r} has {lengths[~is_length].flat[0]}, and containers take the "
            f"length of the clip from it: it has to be {shortest} to {length}"
        )

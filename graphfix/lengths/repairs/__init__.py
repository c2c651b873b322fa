"""The repairs: each closes one leak, at one node, with nodes of its own."""

from graphfix.lengths.repairs.base import Leak, Picks, Repair, zeroed
from graphfix.lengths.repairs.counts import (
    LengthData,
    MaskedGroupNorm,
    MaskedMean,
    MaskedNorm,
    MaskedPool,
    SequenceLens,
)
from graphfix.lengths.repairs.frames import (
    Append,
    ClampedFrames,
    CopiedTail,
    FillUp,
    LastFrames,
    OwnPads,
    PadFrames,
    TurnedFrames,
)
from graphfix.lengths.repairs.tails import Hide, PoisonedInput, Zero

__all__ = [
    "Append",
    "ClampedFrames",
    "CopiedTail",
    "FillUp",
    "Hide",
    "LastFrames",
    "Leak",
    "LengthData",
    "MaskedGroupNorm",
    "MaskedMean",
    "MaskedNorm",
    "MaskedPool",
    "OwnPads",
    "PadFrames",
    "Picks",
    "PoisonedInput",
    "Repair",
    "SequenceLens",
    "TurnedFrames",
    "Zero",
    "zeroed",
]

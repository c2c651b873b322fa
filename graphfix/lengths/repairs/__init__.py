"""The repairs: each closes one leak, at one node, with nodes of its own."""

from graphfix.lengths.repairs.fill_tail import (
    MASK_FILTER,
    Hide,
    HideKeys,
    PoisonedInput,
    Slots,
    Zero,
)
from graphfix.lengths.repairs.frames import (
    Append,
    FillUp,
    LastFrames,
    PadFrames,
)
from graphfix.lengths.repairs.repair import FrameRepair, Leak, Repair, zeroed
from graphfix.lengths.repairs.statistics import (
    LengthData,
    MaskedGroupNorm,
    MaskedMean,
    MaskedNorm,
    SequenceLens,
)

__all__ = [
    "MASK_FILTER",
    "Append",
    "FillUp",
    "FrameRepair",
    "Hide",
    "HideKeys",
    "LastFrames",
    "Leak",
    "LengthData",
    "MaskedGroupNorm",
    "MaskedMean",
    "MaskedNorm",
    "PadFrames",
    "PoisonedInput",
    "Repair",
    "SequenceLens",
    "Slots",
    "Zero",
    "zeroed",
]

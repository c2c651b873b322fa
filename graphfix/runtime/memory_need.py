"""Memory and work that a verification needs, predicted before it is tried."""

import logging
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
import psutil

from graphfix.errors import UsageError
from graphfix.files import weights

log = logging.getLogger(__name__)

# Smaller models get no warning.
WORTH_TELLING = 1_000_000_000
# Python, ONNX Runtime and the graphs of 10,000 nodes: measured 0.16 GB, with some to spare.
_BASE = 300_000_000
# What the cases of verification are, of a model whose sizes are free (counted on models/): so many
# runs, so many rows times lengths. Most weights are float32.
_RUNS, _FRAMES, _BYTES = 25, 2000, 4


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that verification needs, as far as it is known in advance.

    Attributes:
        weights: Bytes of weights of one model.
        needed: Bytes of memory, without what is computed at the sizes that are tried.
        available: Bytes that the machine has left.
    """

    weights: int
    needed: int
    available: int

    def __str__(self) -> str:
        return (
            f"verifying takes about {_format_gb(self.needed)} of memory, of "
            f"{_format_gb(self.available)} that are free ({_format_gb(self.weights)} of weights, "
            "one model at a time), and what is computed at the sizes that are tried: some "
            f"{_RUNS} runs of each model, {self.multiplications / 1e12:.1f} trillion "
            "multiplications"
        )

    @property
    def multiplications(self) -> float:
        """Return the predicted multiplications in all, if each weight meets each frame once."""
        return 2 * _FRAMES * self.weights / _BYTES

    def refuse_if_short(self, instead: str) -> None:
        """Raise UsageError if too little memory is free; ``instead`` is the advice in it."""
        if self.needed > self.available:
            raise UsageError(
                f"verifying takes about {_format_gb(self.needed)} of memory "
                f"({_format_gb(self.weights)} of weights), and {_format_gb(self.available)} are "
                f"free: close something else, or {instead}"
            )

    def to_json(self) -> dict[str, int | None]:
        """Return the need as plain data, in bytes."""
        return {"weights": self.weights, "needed": self.needed, "available": self.available}


def check_memory(*models: ir.Model, instead: str) -> MemoryNeed:
    """Warn what verifying big models will take, or refuse if too little memory is free.

    Args:
        models: The model, or the original and the repaired one, which are run one after the other.
        instead: What a user may do if there is too little.

    Raises:
        UsageError: The machine has not so much memory left.
    """
    need = need_of(*models)
    if need.weights > WORTH_TELLING:
        need.refuse_if_short(instead)
        log.warning("%s", need)
    return need


def need_of(*models: ir.Model) -> MemoryNeed:
    """Return what verifying a model takes; of several, the largest, as they run one by one."""
    # ONNX Runtime holds each weight once (measured on 0.9 GB: 0.95 to 1.0 times their size,
    # external or inline), and the two models are never in memory at the same time.
    size = max(map(weights.weight_bytes, models))
    return MemoryNeed(size, size + _BASE, available_memory())


def available_memory() -> int:
    """Return the bytes of memory that a process may still take."""
    free: int = psutil.virtual_memory().available
    group = _free_in_cgroup()
    return free if group is None else min(free, group)


def _free_in_cgroup() -> int | None:
    """Return the bytes that a container's limit leaves, cached files not counted, or None."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        stat = dict(x.split() for x in (folder / "memory.stat").read_text().splitlines())
        return limit - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # no group of version 2, or "max"
        return None


def _format_gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"

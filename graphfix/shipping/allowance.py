"""How far a shipped folder may differ from its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphfix.files import io
from graphfix.job.comparing import passes_between
from graphfix.job.rounding_search import rounding_tolerance
from graphfix.proof.compare import Tolerance
from graphfix.proof.half_outputs import computes_in_half
from graphfix.shipped.manifest import Manifest


@dataclass(frozen=True)
class Allowance:
    """How far a folder may differ.

    Attributes:
        tolerance: The tolerance of the proof.
        usual: The tolerance where nothing is rounded.
        own_rounding: Whether a quantized model may differ as far as it does from itself.
    """

    tolerance: Tolerance
    usual: Tolerance
    own_rounding: bool

    @classmethod
    def of_folder(
        cls, source: Path, folder: Path, manifest: Manifest, tolerance: Tolerance | None = None
    ) -> Allowance:
        """Return what a user allows, or else what the passes that the containers went through do.

        Args:
            source: The model.
            folder: The folder.
            manifest: Its manifest.
            tolerance: What the user says.
        """
        original = io.load(source)
        usual = Tolerance().for_half() if computes_in_half(original) else Tolerance()
        container = io.load(folder / manifest.containers[0].file)
        rounds = rounding_tolerance(passes_between(original, container))
        own_rounding = tolerance is None and rounds is None
        return cls(tolerance or rounds or usual, usual, own_rounding)

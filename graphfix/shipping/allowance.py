"""How far a shipped folder may differ from its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphfix.files import io
from graphfix.job.comparing import passes_between
from graphfix.job.rounding_search import rounding_tolerance
from graphfix.proof.by_channel import ChannelRule
from graphfix.proof.compare import Tolerance
from graphfix.shipped.manifest import Manifest


@dataclass(frozen=True)
class Allowance:
    """How far a folder may differ.

    Attributes:
        rule: What may differ in each output, noise aside.
        own_rounding: Whether a quantized model may differ as far as it does from itself.
    """

    rule: ChannelRule
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
        rule = ChannelRule.between([original], tolerance)
        container = io.load(folder / manifest.containers[0].file)
        rounds = rounding_tolerance(passes_between(original, container))
        if tolerance is None and rounds is not None:
            return cls(rule.with_tolerance(rounds), own_rounding=False)
        return cls(rule, own_rounding=tolerance is None)

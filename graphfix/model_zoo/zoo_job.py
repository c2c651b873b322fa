"""The work on one model of the zoo, and one step of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from graphfix.engine.report import Report
from graphfix.model_zoo.figures import Json
from graphfix.model_zoo.recipe import Recipe
from graphfix.proof.compare import Tolerance
from graphfix.providers.table import Ep


@dataclass
class ZooJob:
    """The work on one model.

    Attributes:
        recipe: What to do.
        ep: Where the repaired model is to run.
        after: Where the repaired model goes; it is there if it was repaired and verified.
        results: What the stages before have found, by name.
        tell: Called with a short text at each step.
    """

    recipe: Recipe
    ep: Ep
    after: Path
    results: dict[str, Json] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _: None

    @property
    def before(self) -> Path:
        """Return the path of the model as exported."""
        return self.recipe.model

    @property
    def tolerance(self) -> Tolerance | None:
        """Return the tolerance of the recipe; None for the usual one."""
        return Tolerance(**self.recipe.tolerance) if self.recipe.tolerance else None

    def repair_into(self, target: Path, ep: Ep = "cpu") -> Report:
        """Repair the model for its provider, and verify it on ``ep``, as ``graphfix run`` does."""
        from graphfix.engine.pipeline import resolve_passes
        from graphfix.job import repair_file

        recipe = self.recipe
        return repair_file(
            self.before,
            target,
            resolve_passes(recipe.passes, self.ep),
            dims=recipe.dims or None,
            feeds=recipe.feeds,
            tolerance=self.tolerance,
            ep=ep,
            progress=self.tell,
        )


@dataclass(frozen=True)
class Stage:
    """One stage of the work on a model.

    Attributes:
        name: What its result is called in the JSON.
        work: Does it.
        measures: The figures that it measures, so that their lack has a reason.
        needs_after: Whether it needs the repaired model.
        on_device: Whether it is about a provider other than the CPU.
    """

    name: str
    work: Callable[[ZooJob], Json]
    measures: tuple[str, ...] = ()
    needs_after: bool = True
    on_device: bool = False

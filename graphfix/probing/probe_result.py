"""What a probe has found: where two runs part, in words and as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from graphfix.json_types import plain
from graphfix.wording import Proof

if TYPE_CHECKING:
    from graphfix.probing.compared import ComparedTensor, PartingNode


@dataclass(frozen=True, repr=False)
class Probe(Proof):
    """Where two runs part.

    Attributes:
        ok: Whether every output agrees.
        case: What was fed.
        outputs: What is wrong with each output that does not agree.
        sites: Where the runs part, in the order of the graph; the first is where to look.
        places: Every tensor that was looked at, in the order of the graph.
        skipped: How many tensors could not be compared, by reason.
        healed: Tensors that part inside without harm to an output.
        runs: How often each model was run.
        peak_bytes: The most bytes of tensors that were held at once.
        notes: What a reader should know.
    """

    ok: bool
    case: str
    outputs: dict[str, str]
    sites: tuple[PartingNode, ...]
    places: tuple[ComparedTensor, ...]
    skipped: dict[str, int]
    healed: tuple[str, ...]
    runs: int
    peak_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> PartingNode | None:
        """The first tensor to part, with its node; None if the outputs agree."""
        return self.sites[0] if self.sites else None

    def to_json(self) -> dict[str, object]:
        """The result as plain data that ``json`` can write; NaN and infinity become text."""
        compared = sum(x.inner.state != "skipped" for x in self.places)
        data = plain(
            {
                "ok": self.ok,
                "summary": str(self),
                "case": self.case,
                "first": None if self.first is None else asdict(self.first),
                "sites": [asdict(site) for site in self.sites],
                "outputs": [{"name": n, "reason": r} for n, r in self.outputs.items()],
                "compared": compared,
                "skipped": self.skipped,
                "healed": self.healed,
                "runs": self.runs,
                "peak_bytes": self.peak_bytes,
                "notes": self.notes,
                "tensors": [_plain(x) for x in self.places],
            }
        )
        assert isinstance(data, dict)
        return data

    def __str__(self) -> str:
        compared = sum(x.inner.state != "skipped" for x in self.places)
        if self.ok:
            return f"the outputs agree, {self.case}; {compared:,} tensors were compared"
        if self.first is None:
            name, reason = next(iter(self.outputs.items()))
            return f"output {name!r} {reason}, {self.case}"
        first = self.first
        return (
            f"the first tensor to part is {first.tensor!r} ({first.op} {first.node!r}), {self.case}"
        )


def _plain(place: ComparedTensor) -> dict[str, object]:
    inner = place.inner
    return {
        "tensor": inner.tensor,
        "node": place.node,
        "op": place.op,
        "module": "/".join(place.module),
        "state": inner.state,
        "reason": inner.reason,
        "max_abs": inner.max_abs,
        "cosine": inner.cosine,
        "scale": inner.scale,
        "relative": inner.relative,
        "allowed": inner.allowed,
        "leads_out": place.reached,
    }

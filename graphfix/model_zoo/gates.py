"""What a model's results are held to: what always holds, what its recipe expects, its gates."""

from collections.abc import Iterator, Mapping

from graphfix.model_zoo.figures import FIGURES, Figure, Json
from graphfix.model_zoo.recipe import Counts, Recipe
from graphfix.runtime.provider import Ep
from graphfix.wording import grouped

_VERDICTS = (
    ("repair", "verdict", "verified", "on the CPU"),
    ("directml", "after", "directml", "on DirectML"),
    ("padding", "after", "padded", "in containers"),
)
"""The verdicts that must be good: stage and key, and what the gate is called."""


def judge(
    recipe: Recipe, ep: Ep, stages: Mapping[str, Json], figures: Mapping[str, Figure]
) -> list[Json]:
    """Each gate with what it found: ``ok`` is None where there is nothing to judge by."""
    found = [*_always(ep, stages), *_expected(recipe, stages)]
    for name, most in recipe.gates.items():
        value, title = figures[name]["after"], FIGURES[name]
        if value is None:
            found.append(_gate(name, None, f"{title}: not known, {figures[name]['why']}"))
        else:
            low, high = figures[name].get("interval", (value, value))
            noise = f" ({low:.3g} to {high:.3g})" if low != high else ""
            text = f"{title}: {value:.3g}{noise}, at most {most:g} is allowed"
            found.append(_gate(name, low <= most, text))  # noise fails no gate
    return found


def _always(ep: Ep, stages: Mapping[str, Json]) -> Iterator[Json]:
    said = grouped((x["error"], name) for name, x in stages.items() if x.get("error"))
    for error, names in said.items():  # a model that nobody can read is told of once
        yield _gate(names[0], False, f"{', '.join(names)}: {error}")
    for stage, part, name, where in _VERDICTS:
        if (verdict := stages.get(stage, {}).get(part)) is not None:
            yield _gate(name, bool(verdict["ok"]), f"{where}: {verdict['summary']}")
    timed = stages.get("bench", {}).get("models")
    if timed is not None:
        bad = [x["reason"] for x in timed[1]["outputs"] if not x["ok"]]
        text = timed[1]["error"] or (f"an output {bad[0]}" if bad else "the outputs are the same")
        where = "DirectML" if ep == "dml" else "the CPU"
        yield _gate("bench", bool(timed[1]["ok"]), f"while timed on {where}: {text}")


def _expected(recipe: Recipe, stages: Mapping[str, Json]) -> Iterator[Json]:
    passes = stages["repair"].get("passes")
    if passes is None:
        return
    repairs = {p["name"]: len(p["changes"]) for p in passes}
    misses = {p["name"]: len(p["skips"]) for p in passes}
    yield from _same("repairs", recipe.repairs, repairs)
    yield from _same("near-misses", recipe.near_misses, misses)
    left = stages.get("check", {}).get("after", {}).get("left")
    if left is not None:
        yield from _same("findings", recipe.findings, left)


def _same(what: str, expected: Counts | None, found: Mapping[str, int]) -> Iterator[Json]:
    if expected is None:
        return
    names = {*expected, *(name for name, count in found.items() if count)}
    counts = ((name, found.get(name, 0), expected.get(name, 0)) for name in sorted(names))
    wrong = [f"{name}: {made} instead of {said}" for name, made, said in counts if made != said]
    text = "; ".join(wrong) if wrong else "as expected"
    yield _gate(f"expect.{what}", not wrong, f"{what}: {text}")


def _gate(name: str, ok: bool | None, text: str) -> Json:
    return {"gate": name, "ok": ok, "text": text}

"""What a model's results must meet: the general gates, its recipe's counts, its own gates."""

from collections.abc import Iterator, Mapping

from graphfix.model_zoo.figures import FIGURES, Figure, Json
from graphfix.model_zoo.recipe import Counts, Recipe
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.wording import group_pairs

_VERDICTS = (
    ("repair", "verdict", "verified", "on the CPU"),
    ("device", "after", "device", ""),
    ("padding", "after", "padded", "in containers"),
)
"""The verdicts that must be good: stage and key, what the gate is called, and where, if not there
where the models run."""


def judge_gates(
    recipe: Recipe, ep: Ep, stages: Mapping[str, Json], figures: Mapping[str, Figure]
) -> list[Json]:
    """Return each gate with its result: ``ok`` is None where there is nothing to judge by."""
    results = [*_general_gates(ep, stages), *_expected_counts(recipe, stages)]
    for name, most in recipe.gates.items():
        value, title = figures[name]["after"], FIGURES[name]
        if value is None:
            results.append(_gate_result(name, None, f"{title}: not known, {figures[name]['why']}"))
        else:
            low, high = figures[name].get("interval", (value, value))
            noise = f" ({low:.3g} to {high:.3g})" if low != high else ""
            text = f"{title}: {value:.3g}{noise}, at most {most:g} is allowed"
            results.append(_gate_result(name, low <= most, text))  # noise fails no gate
    return results


def _general_gates(ep: Ep, stages: Mapping[str, Json]) -> Iterator[Json]:
    names_by_error = group_pairs((x["error"], name) for name, x in stages.items() if x.get("error"))
    for error, names in names_by_error.items():  # an unreadable model is reported once
        yield _gate_result(names[0], False, f"{', '.join(names)}: {error}")
    for stage, part, name, where in _VERDICTS:
        if (verdict := stages.get(stage, {}).get(part)) is not None:
            place = where or f"on {PROVIDERS[ep].label}"
            yield _gate_result(name, bool(verdict["ok"]), f"{place}: {verdict['summary']}")
    timed = stages.get("bench", {}).get("models")
    if timed is not None:
        bad = [x["reason"] for x in timed[1]["outputs"] if not x["ok"]]
        text = timed[1]["error"] or (f"an output {bad[0]}" if bad else "the outputs are the same")
        where = PROVIDERS[ep].label
        yield _gate_result("bench", bool(timed[1]["ok"]), f"while timed on {where}: {text}")


def _expected_counts(recipe: Recipe, stages: Mapping[str, Json]) -> Iterator[Json]:
    passes = stages["repair"].get("passes")
    if passes is None:
        return
    repairs = {p["name"]: len(p["changes"]) for p in passes}
    misses = {p["name"]: len(p["skips"]) for p in passes}
    yield from _compare_counts("repairs", recipe.repairs, repairs)
    yield from _compare_counts("near-misses", recipe.near_misses, misses)
    remaining = stages.get("check", {}).get("after", {}).get("left")
    if remaining is not None:
        yield from _compare_counts("findings", recipe.findings, remaining)


def _compare_counts(
    kind: str, expected: Counts | None, actual: Mapping[str, int]
) -> Iterator[Json]:
    if expected is None:
        return
    names = {*expected, *(name for name, count in actual.items() if count)}
    counts = ((name, actual.get(name, 0), expected.get(name, 0)) for name in sorted(names))
    wrong = [
        f"{name}: {actual_count} instead of {expected_count}"
        for name, actual_count, expected_count in counts
        if actual_count != expected_count
    ]
    text = "; ".join(wrong) if wrong else "as expected"
    yield _gate_result(f"expect.{kind}", not wrong, f"{kind}: {text}")


def _gate_result(name: str, ok: bool | None, text: str) -> Json:
    return {"gate": name, "ok": ok, "text": text}

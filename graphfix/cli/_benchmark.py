"""Prints a benchmark: phases as rows, models as columns; of several providers a row for each."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

import click

from graphfix.benchmark.bench_result import (
    FIGURES,
    MEMORY,
    PHASES,
    STEADY,
    Benchmark,
    Result,
    Setup,
)
from graphfix.benchmark.timing import Claim, Ratio, Timing
from graphfix.cli import _terminal
from graphfix.providers.read_back import read_back_text
from graphfix.providers.table import PROVIDERS
from graphfix.spec.quoting import quote_name
from graphfix.wording import plural, terminal_width

_CELL, _WIDE_CELL, _LABEL = 26, 17, 11
_MIB = 1 << 20


def print_benchmark(benchmark: Benchmark, *, verbose: bool) -> None:
    """Print a benchmark."""
    names = model_letters(benchmark)
    for name, model in zip(names, benchmark.models, strict=True):
        _terminal.print_row(name, benchmark.name_of(model))
    _print_claims(benchmark, names)
    for name, model in zip(names, benchmark.models, strict=True):
        for note in model.notes:
            _terminal.print_row(name, note)
    if benchmark.note:
        _terminal.print_remark(benchmark.note)
    for ep, reason in benchmark.missing.items():
        _terminal.print_remark(f"without {PROVIDERS[ep].label}: {reason}")
    for setup in benchmark.setups:
        click.echo()
        _print_setup(benchmark, setup, names, verbose=verbose)
    if len(names) > 1:
        click.echo()
        text = f"times as long as {names[0]}; ~1: no difference was seen; ?: unknown"
        _terminal.print_row("x", text)
    click.echo()
    if all(x.ok for x in benchmark.models):
        worst = max((d.max_abs for x in benchmark.models for d in x.diffs), default=0.0)
        text = f"the same as {names[0]} on the CPU; largest difference {worst:.3g}"
        _terminal.print_row("outputs", text, colour="green")
    _print_machines(benchmark)


def _print_machines(benchmark: Benchmark) -> None:
    """Print what ran the models, for each provider."""
    for ep, about in ((benchmark.ep, benchmark.about), *benchmark.also.items()):
        place = f"{PROVIDERS[ep].short_label}: " if benchmark.also else ""
        runtime = _about_text(about, "onnxruntime", "DirectML.dll", "Python")
        _terminal.print_row("runtime", place + runtime)
        _terminal.print_row("machine", _about_text(about, "processor", "system", "Wine"))
        for name in ("adapter", "clock"):
            if name in about:
                _terminal.print_row(name, about[name])


def _print_claims(benchmark: Benchmark, names: Sequence[str]) -> None:
    """Print the answer: how the steady runs of each model compare with those of the first."""
    for name, model in zip(names[1:], benchmark.models[1:], strict=True):
        label = PROVIDERS[model.ep].short_label
        for setup, result in model.results.items():
            if (claim := result.claims.get(STEADY)) is not None:
                text = f"{label}, {setup}, steady: {_claim_text(claim)}"
                _terminal.print_row(f"{name} / {names[0]}", text)


def model_letters(benchmark: Benchmark) -> list[str]:
    """Return the letters of the models: A, B, ..."""
    return [f"{ascii_uppercase[i % 26]}{i // 26 or ''}" for i in range(len(benchmark.models))]


def _about_text(about: dict[str, str], *names: str) -> str:
    """Return what is known of these, each after its name where that helps."""
    plain = ("processor", "system")
    return ", ".join(about[x] if x in plain else f"{x} {about[x]}" for x in names if about.get(x))


def _print_setup(
    benchmark: Benchmark, setup: Setup, names: Sequence[str], *, verbose: bool
) -> None:
    models = [x for x in zip(names, benchmark.models, strict=True) if setup.name in x[1].results]
    results = {name: x.results[setup.name] for name, x in models}
    labels = {name: PROVIDERS[x.ep].short_label for name, x in models}
    _terminal.print_paragraph(_setup_title(setup), later="  ")
    if benchmark.also:
        _print_figures(results, labels)
    if not benchmark.also or verbose:
        _print_blocks(results, "" if benchmark.also else PROVIDERS[benchmark.ep].short_label)
    for name, result in results.items():
        _print_facts(name, result, labels[name], verbose=verbose)
    first, base = next(iter(results.items()))
    if (copy_ratio := base.copy.get(STEADY)) is not None:
        text = f"{labels[first]}, steady, the copy of {first}: {_ratio_text(copy_ratio)}"
        _terminal.print_row(f"{first} / {first}", text)


def _print_figures(results: Mapping[str, Result], labels: Mapping[str, str]) -> None:
    """Print a row of figures for each model on each provider, and its ratios below."""
    first = next(iter(results))
    rows = [("", [*FIGURES])]
    for name, result in results.items():
        rows.append((f"{name} {labels[name]}", [_figure_text(result, x) for x in FIGURES]))
        if result.claims:
            ratios = [_interval_text(result.claims.get(x)) for x in FIGURES]
            rows.append((f"{'':<{len(name)}} of {first}", ratios))
    for label, cells in rows:
        text = "".join(f"{x:<{_WIDE_CELL}}" for x in cells)
        click.echo(f"  {label:<{_LABEL}}{text}".rstrip())


def _figure_text(result: Result, figure: str) -> str:
    if figure == MEMORY:
        return "-" if result.peak_memory is None else f"{result.peak_memory / _MIB:.0f} MiB"
    timing = result.timing_of(figure)
    return f"{_milliseconds_text(timing.median)} ms" if timing.processes else "-"


def _interval_text(claim: Claim | None) -> str:
    """Return a ratio with its interval, in 16 characters."""
    if claim is None or claim.ratio is None:
        return "" if claim is None else "?"
    ratio = claim.ratio
    value = "~1" if ratio.contains(1.0) else _two_digits(ratio.value)
    return f"{value} ({_two_digits(ratio.low)}-{_two_digits(ratio.high)})"


def _two_digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 0}f}"


def _print_blocks(results: Mapping[str, Result], label: str) -> None:
    """Print the phases, as many models beside each other as there is room for."""
    shown = list(results.items())
    beside = max(1, (terminal_width() - len(label) - 14) // _CELL)
    for i in range(0, len(shown), beside):
        _print_phases(shown[i : i + beside], label)


def _setup_title(setup: Setup) -> str:
    text = f"{setup.name}, {_sizes_text(setup.dims)}"
    if setup.other:
        changed = {k: v for k, v in setup.other.items() if setup.dims.get(k) != v}
        text += f", other shape {_sizes_text(changed)}"
    return text


def _print_phases(shown: Sequence[tuple[str, Result]], label: str) -> None:
    # Not wrapped as text: that would close the gaps that align the numbers.
    head = "".join(f"{name:>7}   {'iqr':>5}".ljust(_CELL) for name, _ in shown)
    click.echo(f"  {'':<{len(label)}}  {'':<11}{head}".rstrip())
    for phase in PHASES:
        if any(result.timing_of(phase).processes for _, result in shown):
            cells = "".join(_timing_cell(r.timing_of(phase), r.claims.get(phase)) for _, r in shown)
            click.echo(f"  {label}  {phase:<11}{cells}".rstrip())
        if phase == STEADY and any(result.memory for _, result in shown):
            cells = "".join(_memory_cell(r, r.claims.get(MEMORY)) for _, r in shown)
            click.echo(f"  {label}  {MEMORY:<11}{cells}".rstrip())


def _timing_cell(timing: Timing, claim: Claim | None) -> str:
    if not timing.processes:
        return f"{'-':>10}" + " " * (_CELL - 10)
    text = f"{_milliseconds_text(timing.median):>7} ms{timing.spread:>5.0%}"
    times = "" if claim is None else f" {_short_ratio(claim)}"
    return f"{text}{times:<{_CELL - len(text)}}"


def _memory_cell(result: Result, claim: Claim | None) -> str:
    if result.peak_memory is None:
        return f"{'-':>10}" + " " * (_CELL - 10)
    text = f"{result.peak_memory / _MIB:>6.0f} MiB     "
    times = "" if claim is None else f" {_short_ratio(claim)}"
    return f"{text}{times:<{_CELL - len(text)}}"


def _short_ratio(claim: Claim) -> str:
    """Return the ratio as text if a difference was seen, else ~1 or ?."""
    if claim.ratio is None:
        return "?"
    return "~1" if claim.ratio.contains(1.0) else f"x{_two_digits(claim.ratio.value)}"


def _milliseconds_text(seconds: float) -> str:
    """Return milliseconds with three digits."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}" if value < 1000 else f"{value:.0f}"


def _print_facts(name: str, result: Result, label: str, *, verbose: bool) -> None:
    if result.failure:
        _terminal.print_row(name, f"{label}: failed: {result.failure}", colour="red")
        return
    nodes = [f"{count} on {ep}" for ep, count in result.seen.placed.provider_counts.items()]
    if result.seen.placed.fused_count:
        nodes.append(plural(result.seen.placed.fused_count, "fused graph") + " among them")
    nodes.append(plural(result.seen.placed.copy_count, "copy", "copies"))
    _terminal.print_row(name, f"nodes: {', '.join(nodes)}")
    if verbose:
        for node in result.seen.placed.nodes:
            _terminal.print_row("", f"{node.provider}  {node.op}  {node.name}")
    _terminal.print_row("", f"read back: {read_back_text(result.seen.read_back)} of outputs")


def _claim_text(claim: Claim) -> str:
    if claim.ratio is None:
        return f"cannot tell: {claim.why}"
    return ("no difference seen: " if claim.ratio.contains(1.0) else "") + _ratio_text(claim.ratio)


def _ratio_text(ratio: Ratio) -> str:
    each = plural(ratio.turns, "process", "processes")
    return (
        f"{ratio.value:.3f} of the time ({ratio.low:.3f} to {ratio.high:.3f}, with "
        f"{ratio.confidence:.0%} confidence, from {each} each)"
    )


def _sizes_text(dims: dict[str, int]) -> str:
    return (
        " ".join(f"{quote_name(name)}={size}" for name, size in dims.items())
        or "no dim is symbolic"
    )

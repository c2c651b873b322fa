"""A benchmark on a terminal: phases as rows, models as columns."""

from collections.abc import Sequence
from string import ascii_uppercase

import click

from graphfix.benchmark.bench_result import PHASES, STEADY, Benchmark, Result, Setup
from graphfix.benchmark.timing import Claim, Ratio, Timing
from graphfix.cli import _terminal
from graphfix.spec.quoting import quoted
from graphfix.wording import plural, width

_SHORT = {"cpu": "CPU", "dml": "DirectML", "cuda": "CUDA"}
_CELL = 26
_MIB = 1 << 20


def show(done: Benchmark, *, verbose: bool) -> None:
    """Print all of it."""
    if done.note:
        _terminal.remark(done.note)
    names = letters(done)
    for name, one in zip(names, done.models, strict=True):
        _terminal.row(name, one.model)
        for note in one.notes:
            _terminal.row("", note)
    for setup in done.setups:
        click.echo()
        _table(done, setup, names, verbose=verbose)
    if len(names) > 1:
        click.echo()
        text = f"times as long as {names[0]}; ~1: no difference was seen; ?: unknown"
        _terminal.row("x", text)
    click.echo()
    if all(x.ok for x in done.models):
        worst = max((d.max_abs for x in done.models for d in x.diffs), default=0.0)
        text = f"the same as {names[0]} on the CPU; largest difference {worst:.3g}"
        _terminal.row("outputs", text, colour="green")
    about = done.about
    _terminal.row("runtime", _said(about, "onnxruntime", "DirectML.dll", "Python"))
    _terminal.row("machine", _said(about, "processor", "system", "Wine"))
    for name in ("adapter", "clock"):
        if name in about:
            _terminal.row(name, about[name])


def letters(done: Benchmark) -> list[str]:
    """What the models are called: A, B, ..."""
    return [f"{ascii_uppercase[i % 26]}{i // 26 or ''}" for i in range(len(done.models))]


def _said(about: dict[str, str], *names: str) -> str:
    """What is known of these, each after its name where that says something."""
    plain = ("processor", "system")
    return ", ".join(about[x] if x in plain else f"{x} {about[x]}" for x in names if about.get(x))


def _table(done: Benchmark, setup: Setup, names: Sequence[str], *, verbose: bool) -> None:
    models = zip(names, done.models, strict=True)
    results = {name: x.results[setup.name] for name, x in models if setup.name in x.results}
    _terminal.paragraph(_title(done, setup), later="  ")
    label = _SHORT[done.ep]
    shown = list(results.items())
    # As many models beside each other as there is room for.
    beside = max(1, (width() - len(label) - 14) // _CELL)
    for i in range(0, len(shown), beside):
        _phases(shown[i : i + beside], label)
    for name, result in shown:
        _facts(name, result, label, verbose=verbose)
    first, base = shown[0]
    if (same := base.copy.get(STEADY)) is not None:
        _terminal.row(f"{first} / {first}", f"{label}, steady, the copy of {first}: {_ratio(same)}")
    for name, result in shown[1:]:
        if (found := result.claims.get(STEADY)) is not None:
            _terminal.row(f"{name} / {first}", f"{label}, steady: {_claim(found)}")


def _title(done: Benchmark, setup: Setup) -> str:
    text = f"{setup.name}, {_sizes(setup.dims)}"
    if setup.other:
        changed = {k: v for k, v in setup.other.items() if setup.dims.get(k) != v}
        text += f", other shape {_sizes(changed)}"
    return text


def _phases(shown: Sequence[tuple[str, Result]], label: str) -> None:
    # Not wrapped as text: that would close the gaps that align the numbers.
    head = "".join(f"{name:>7}   {'iqr':>5}".ljust(_CELL) for name, _ in shown)
    click.echo(f"  {'':<{len(label)}}  {'':<11}{head}".rstrip())
    for phase in PHASES:
        if any(result.timing(phase).processes for _, result in shown):
            cells = "".join(_cell(r.timing(phase), r.claims.get(phase)) for _, r in shown)
            click.echo(f"  {label}  {phase:<11}{cells}".rstrip())


def _cell(timing: Timing, found: Claim | None) -> str:
    if not timing.processes:
        return f"{'-':>10}" + " " * (_CELL - 10)
    text = f"{_ms(timing.median):>7} ms{timing.spread:>5.0%}"
    times = "" if found is None else f" {_short(found)}"
    return f"{text}{times:<{_CELL - len(text)}}"


def _short(found: Claim) -> str:
    """A ratio if a difference was seen."""
    if found.ratio is None:
        return "?"
    value = found.ratio.value
    return "~1" if found.ratio.holds(1.0) else f"x{value:.{2 if value < 10 else 0}f}"


def _ms(seconds: float) -> str:
    """Three digits of milliseconds."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}" if value < 1000 else f"{value:.0f}"


def _facts(name: str, result: Result, label: str, *, verbose: bool) -> None:
    if result.failure:
        _terminal.row(name, f"{label}: failed: {result.failure}", colour="red")
        return
    nodes = [f"{count} on {ep}" for ep, count in result.seen.placed.counts.items()]
    if result.seen.placed.fused:
        nodes.append(plural(result.seen.placed.fused, "fused graph") + " among them")
    nodes.append(plural(result.seen.placed.copies, "copy", "copies"))
    _terminal.row(name, f"nodes: {', '.join(nodes)}")
    if verbose:
        for node in result.seen.placed.nodes:
            _terminal.row("", f"{node.provider}  {node.op}  {node.name}")
    if result.seen.peak_memory is not None:
        _terminal.row("", f"memory: {result.seen.peak_memory / _MIB:.0f} MiB at the peak")


def _claim(found: Claim) -> str:
    if found.ratio is None:
        return f"cannot tell: {found.why}"
    return ("no difference seen: " if found.ratio.holds(1.0) else "") + _ratio(found.ratio)


def _ratio(found: Ratio) -> str:
    each = plural(found.turns, "process", "processes")
    return (
        f"{found.value:.3f} of the time ({found.low:.3f} to {found.high:.3f}, with "
        f"{found.confidence:.0%} confidence, from {each} each)"
    )


def _sizes(dims: dict[str, int]) -> str:
    return " ".join(f"{quoted(name)}={size}" for name, size in dims.items()) or "no dim is symbolic"

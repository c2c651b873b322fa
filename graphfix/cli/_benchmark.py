"""A benchmark on a terminal: phases as rows, models as columns."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

import click

from graphfix.benchmark.outcome import PHASES
from graphfix.cli import _terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.benchmark.outcome import Benchmark, Result, Setup
    from graphfix.benchmark.timing import Ratio, Timing

_SHORT = {"cpu": "CPU", "dml": "DirectML", "cuda": "CUDA"}
_CELL = 26
_MIB = 1 << 20


def show(done: Benchmark, *, verbose: bool) -> None:
    """Print all of it."""
    if done.note:
        _terminal.remark(done.note)
    names = [f"{ascii_uppercase[i % 26]}{i // 26 or ''}" for i in range(len(done.models))]
    for name, one in zip(names, done.models, strict=True):
        _terminal.row(name, one.model)
        for note in one.notes:
            _terminal.row("", note)
    for setup in done.setups:
        click.echo()
        _table(done, setup, names, verbose=verbose)
    click.echo()
    failed = [x for x in done.models if not x.ok]
    if not failed:
        worst = max((d.max_abs for x in done.models for d in x.diffs), default=0.0)
        text = f"the same as {names[0]} on the CPU; largest difference {worst:.3g}"
        _terminal.row("outputs", text, colour="green")
    about = done.about
    _terminal.row("runtime", _said(about, "onnxruntime", "DirectML.dll", "Python"))
    _terminal.row("machine", _said(about, "processor", "system", "Wine"))
    for name in ("adapter", "clock"):
        if name in about:
            _terminal.row(name, about[name])
    unknown = {r.gpu_reason for x in done.models for r in x.results.values() if r.gpu_reason}
    for reason in sorted(unknown):
        _terminal.row("unknown", f"memory on the device: {reason}")


def _said(about: dict[str, str], *names: str) -> str:
    """What is known of these, each after its name where that says something."""
    plain = ("processor", "system")
    return ", ".join(about[x] if x in plain else f"{x} {about[x]}" for x in names if about.get(x))


def _table(done: Benchmark, setup: Setup, names: Sequence[str], *, verbose: bool) -> None:
    results = {
        name: one.results[setup.name]
        for name, one in zip(names, done.models, strict=True)
        if setup.name in one.results
    }
    _terminal.paragraph(_title(done, setup), later="  ")
    label = _SHORT[done.ep]
    shown = list(results.items())
    # As many models beside each other as there is room for.
    beside = max(1, (_terminal.width() - len(label) - 14) // _CELL)
    for i in range(0, len(shown), beside):
        _phases(shown[i : i + beside], label)
    for name, result in shown:
        _facts(name, result, label, verbose=verbose)
    for name, result in shown[1:]:
        if (found := result.ratios.get("steady")) is not None:
            _terminal.row(f"{name} / {shown[0][0]}", f"{label}, steady: {_ratio(found)}")


def _title(done: Benchmark, setup: Setup) -> str:
    text = f"{setup.name}, {_sizes(setup.dims)}"
    if setup.other:
        changed = {k: v for k, v in setup.other.items() if setup.dims.get(k) != v}
        text += f", other shape {_sizes(changed)}"
    return text + (", I/O bound to the device" if done.bound else "")


def _phases(shown: Sequence[tuple[str, Result]], label: str) -> None:
    # Not wrapped as text: that would close the gaps that align the numbers.
    heads = (f"{name:>7}   {'p95':>7}{'iqr':>5}" for name, _ in shown)
    head = "".join(f"{text:<{_CELL}}" for text in heads)
    click.echo(f"  {'':<{len(label)}}  {'':<11}{head}".rstrip())
    for phase in PHASES:
        if any(result.phases[phase].seconds for _, result in shown):
            cells = "".join(_cell(r.phases[phase], r.ratios.get(phase)) for _, r in shown)
            click.echo(f"  {label}  {phase:<11}{cells}".rstrip())


def _cell(timing: Timing, found: Ratio | None) -> str:
    if not timing.seconds:
        return f"{'-':>10}" + " " * (_CELL - 10)
    text = f"{_ms(timing.median):>7} ms{_ms(timing.p95):>7}{timing.spread:>5.0%}"
    times = "" if found is None else f" x{found.value:.{2 if found.value < 10 else 0}f}"
    return f"{text}{times:<{_CELL - len(text)}}"


def _ms(seconds: float) -> str:
    """Three digits of milliseconds."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}" if value < 1000 else f"{value:.0f}"


def _facts(name: str, result: Result, label: str, *, verbose: bool) -> None:
    if result.failure:
        _terminal.row(name, f"{label}: failed: {result.failure}", colour="red")
        return
    nodes = [f"{count} on {ep}" for ep, count in result.placed.counts.items()]
    if result.placed.fused:
        nodes.append(_terminal.plural(result.placed.fused, "fused graph") + " among them")
    nodes.append(_terminal.plural(result.placed.copies, "copy", "copies"))
    _terminal.row(name, f"nodes: {', '.join(nodes)}")
    if verbose:
        for node in result.placed.nodes:
            _terminal.row("", f"{node.provider}  {node.op}  {node.name}")
    memory = []
    if result.peak_memory is not None:
        memory.append(f"{result.peak_memory / _MIB:.0f} MiB at the peak")
    if result.gpu_memory is not None:
        memory.append(f"{result.gpu_memory / _MIB:.0f} MiB on the device")
    if memory:
        _terminal.row("", f"memory: {', '.join(memory)}")


def _ratio(found: Ratio) -> str:
    return (
        f"{found.value:.3f} of the time ({found.low:.3f} to {found.high:.3f}, with "
        f"{found.confidence:.0%} confidence, from {_terminal.plural(found.turns, 'turn')})"
    )


def _sizes(dims: dict[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in dims.items()) or "no dim is symbolic"

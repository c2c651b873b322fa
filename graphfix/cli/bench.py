"""``graphfix bench``: how long models take, side by side, and whether they compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal

if TYPE_CHECKING:
    from graphfix.measure.bench import Benchmark, Timed, Wanted


@click.command()
@click.argument("models", metavar="A.onnx [B.onnx ...]", nargs=-1, required=True)
@click.option(
    "--ep",
    type=click.Choice(["cpu", "dml", "auto"]),
    default="auto",
    help="Where to run. auto (default): DirectML, or the CPU where there is none, and each line "
    "says so. dml: DirectML or exit code 2.",
)
@click.option(
    "--dims",
    multiple=True,
    metavar="T=500",
    help="The size of a symbolic dim to time at; may be given for several dims.",
)
@click.option(
    "--other", multiple=True, metavar="T=480", help="The same for the other shape, timed too."
)
@click.option("--runs", type=int, default=10, help="How many steady runs; 10 by default.")
@click.option(
    "--atol",
    type=float,
    metavar="X",
    help="Largest difference from the first model on the CPU; of outputs over 1, a share.",
)
@_options.json_flag
def bench(
    models: tuple[str, ...],
    ep: Wanted,
    dims: tuple[str, ...],
    other: tuple[str, ...],
    runs: int,
    atol: float | None,
    as_json: bool,
) -> int:
    """Time models in turns: making the session, first run, steady, another shape, and back.

    Exit code 1 if one does not run, or does not compute what the first one does on the CPU.
    """
    sizes, others = _one_size("--dims", dims), _one_size("--other", other)
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.measure.bench import bench as measure

        done = measure(
            models,
            ep=ep,
            dims=sizes,
            other=others,
            runs=runs,
            tolerance=_options.tolerance(atol),
            progress=tell,
        )
    if as_json:
        _terminal.print_json(done.to_json())
    else:
        _print(done)
    if done.ok:
        return 0
    bad = next(x for x in done.models if not x.ok)
    reason = bad.error or next(f"output {d.output!r} {d.reason}" for d in bad.diffs if not d.ok)
    _terminal.remark(f"error: {bad.model}: {reason}")
    return 1


def _one_size(option: str, given: tuple[str, ...]) -> dict[str, int] | None:
    sizes = _terminal.sizes(given)
    for name, values in (sizes or {}).items():
        if len(values) != 1:
            raise click.UsageError(f"{option} {name}: one size, not {len(values)}.")
    return {name: values[0] for name, values in sizes.items()} if sizes else None


def _print(done: Benchmark) -> None:
    label = "DirectML" if done.ep == "dml" else "CPU"
    if done.note:
        _terminal.remark(done.note)
    for one in done.models:
        _terminal.paragraph(one.model)
        for name, timing in one.phases.items():
            if timing.seconds:
                text = f"{label}  {timing.median * 1e3:9.2f} ms"
                if len(timing.seconds) > 1:
                    text += f"  p95 {timing.p95 * 1e3:.2f}, spread {timing.spread:.0%}"
                    text += f", {len(timing.seconds)} runs"
                # Not a row: its wrapping would close the gaps that align the numbers.
                click.echo(f"  {name:<12}{text}")
        _results(one, label)
        click.echo()
    _terminal.row("dims", _sizes(done.dims))
    if done.other:
        _terminal.row("other", _sizes(done.other))
    _terminal.row("with", ", ".join(f"{k} {v}" for k, v in done.about.items()))


def _results(one: Timed, label: str) -> None:
    if one.error:
        _terminal.row("failed", f"{label}: {one.error}", colour="red")
        return
    if one.placement:
        nodes = (f"{count} on {ep}" for ep, count in one.placement.items())
        _terminal.row("nodes", ", ".join(nodes))
    if one.ratio is not None and one.interval is not None:
        low, high = one.interval
        text = f"{label}: {one.ratio:.3f} of the first model's time ({low:.3f} to {high:.3f})"
        _terminal.row("ratio", text)
    if one.diffs:
        bad = [d for d in one.diffs if not d.ok]
        if bad:
            reason = f"output {bad[0].output!r} {bad[0].reason}, at {bad[0].case}"
            _terminal.row("failed", reason, colour="red")
        else:
            worst = max(d.max_abs for d in one.diffs)
            _terminal.row("outputs", f"the same; largest difference {worst:.3g}", colour="green")


def _sizes(dims: dict[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in dims.items()) or "none is symbolic"

"""``graphfix bench --ship``: a stream of clips or steps, on the original and in containers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphfix.cli import _terminal
from graphfix.errors import UsageError
from graphfix.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.runtime.python import Wanted
    from graphfix.shipping.stream_cost import StreamBenchmark, StreamSide

_MIB = 1 << 20


def run_stream_bench(
    folder: str,
    against: str,
    ep: Wanted,
    *,
    clips: int,
    lengths: str | None,
    processes: int | None,
    as_json: bool,
) -> int:
    """Time the stream, print the result, and return the exit code."""
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.shipping.stream_bench import bench_stream

        result = bench_stream(
            folder,
            against,
            ep=ep,
            lengths=None if lengths is None else _read_lengths(lengths),
            clips=clips,
            processes=processes,
            progress=tell,
        )
    if as_json:
        _terminal.print_json(result.to_json())
    else:
        _print_result(result)
    for side in (result.original, result.shipped):
        if side.error:
            _terminal.print_remark(f"error: {side.name}: {side.error}")
    if not result.proof.ok:
        _terminal.print_remark(
            f"error: {folder} does not give what {against} gives: {result.proof}; its times mean "
            f"nothing. graphfix verify {against} {folder} proves it again"
        )
    return int(not result.ok)


def _read_lengths(file: str) -> Sequence[int]:
    try:
        lengths = [int(x) for x in Path(file).read_text(encoding="utf-8").split()]
    except OSError as error:
        raise UsageError(f"--lengths {file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"--lengths {file}: holds something else than lengths: {error}") from error
    if not lengths:
        raise UsageError(f"--lengths {file}: is empty; write the length of each clip, one a line")
    return lengths


def _print_result(result: StreamBenchmark) -> None:
    from graphfix.shipping.stream_cost import total_phase

    if result.note:
        _terminal.print_remark(result.note)
    lengths = sorted(result.lengths)
    sizes = f"{lengths[0]} to {lengths[-1]}"
    description = (
        f"of {sizes}" if result.of == "clip" else f"that add {sizes}, {sum(lengths)} in all"
    )
    _terminal.print_paragraph(f"{plural(len(lengths), result.of)} {description}, on {result.ep}")
    click.echo()
    colour = "green" if result.proof.ok else "red"
    _terminal.print_row("outputs", str(result.proof), colour=colour)
    click.echo()
    for side in (result.original, result.shipped):
        _terminal.print_paragraph(side.name, "  ")
        _terminal.print_row("kernels", _kernels_text(side))
        peak = "" if side.count.peak is None else f"; {side.count.peak / _MIB:.0f} MiB at the peak"
        traffic = f"{side.count.moved / _MIB:.2f} MiB of inputs and outputs"
        if side.count.copies is not None:
            traffic += f"; {plural(side.count.copies, 'copy', 'copies')} within the runs"
        _terminal.print_row("moved", traffic + peak)
        for phase, timing in side.phases.items():
            description = f"{timing.median * 1e3:.1f} ms"
            if phase == total_phase(result.of):
                description += f", {timing.median / len(lengths) * 1e3:.2f} ms a {result.of}"
            _terminal.print_row("time", f"{phase} {description}")
        click.echo()
    for phase, claim in result.claims.items():
        if claim.ratio is None:
            _terminal.print_row("ratio", f"{phase}: cannot tell: {claim.why}", colour="yellow")
        else:
            ratio = claim.ratio
            text = f"{phase}: {ratio.value:.2f} of the time ({ratio.low:.2f} to {ratio.high:.2f})"
            _terminal.print_row("ratio", text)
    for note in result.notes:
        _terminal.print_row("note", note)


def _kernels_text(side: StreamSide) -> str:
    count = side.count
    if count.launched is None:
        return "unknown: ONNX Runtime does not load it here"
    return (
        f"{count.launched:,} on DirectML, {count.recompiled:,} of them recompiled; "
        f"{count.on_cpu:,} on the CPU; predicted"
    )

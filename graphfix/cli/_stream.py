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
    from graphfix.shipping.stream_cost import Stream, StreamSide

_MIB = 1 << 20


def show_stream(
    folder: str,
    against: str,
    ep: Wanted,
    *,
    clips: int,
    lengths: str | None,
    processes: int | None,
    as_json: bool,
) -> int:
    """Run the stream and print what came of it; the exit code."""
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.shipping.stream_bench import stream

        done = stream(
            folder,
            against,
            ep=ep,
            lengths=None if lengths is None else _lengths(lengths),
            clips=clips,
            processes=processes,
            progress=tell,
        )
    if as_json:
        _terminal.print_json(done.to_json())
    else:
        _print(done)
    for side in (done.original, done.shipped):
        if side.error:
            _terminal.remark(f"error: {side.name}: {side.error}")
    return int(not done.ok)


def _lengths(file: str) -> Sequence[int]:
    try:
        found = [int(x) for x in Path(file).read_text(encoding="utf-8").split()]
    except OSError as error:
        raise UsageError(f"--lengths {file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"--lengths {file}: holds something else than lengths: {error}") from error
    if not found:
        raise UsageError(f"--lengths {file}: is empty; write the length of each clip, one a line")
    return found


def _print(done: Stream) -> None:
    from graphfix.shipping.stream_cost import all_of

    if done.note:
        _terminal.remark(done.note)
    lengths = sorted(done.lengths)
    sizes = f"{lengths[0]} to {lengths[-1]}"
    told = f"of {sizes}" if done.of == "clip" else f"that add {sizes}, {sum(lengths)} in all"
    _terminal.paragraph(f"{plural(len(lengths), done.of)} {told}, on {done.ep}")
    click.echo()
    for side in (done.original, done.shipped):
        _terminal.paragraph(side.name, "  ")
        _terminal.row("kernels", _kernels(side))
        peak = "" if side.count.peak is None else f"; {side.count.peak / _MIB:.0f} MiB at the peak"
        moved = f"{side.count.moved / _MIB:.2f} MiB of inputs and outputs"
        if side.count.copies is not None:
            moved += f"; {plural(side.count.copies, 'copy', 'copies')} within the runs"
        _terminal.row("moved", moved + peak)
        for phase, timing in side.phases.items():
            told = f"{timing.median * 1e3:.1f} ms"
            if phase == all_of(done.of):
                told += f", {timing.median / len(lengths) * 1e3:.2f} ms a {done.of}"
            _terminal.row("time", f"{phase} {told}")
        click.echo()
    for phase, found in done.claims.items():
        if found.ratio is None:
            _terminal.row("ratio", f"{phase}: cannot tell: {found.why}", colour="yellow")
        else:
            ratio = found.ratio
            text = f"{phase}: {ratio.value:.2f} of the time ({ratio.low:.2f} to {ratio.high:.2f})"
            _terminal.row("ratio", text)
    for note in done.notes:
        _terminal.row("note", note)


def _kernels(side: StreamSide) -> str:
    count = side.count
    if count.launched is None:
        return "unknown: ONNX Runtime does not load it here"
    return (
        f"{count.launched:,} on DirectML, {count.remade:,} of them recompiled; "
        f"{count.on_cpu:,} on the CPU; predicted"
    )

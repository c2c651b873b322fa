"""``graphfix verify MODEL FOLDER``: does a shipped folder give what the model gives?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.cli import _options, _terminal, _verdict

if TYPE_CHECKING:
    from graphfix.providers.table import Ep
    from graphfix.shipping.verify_folder import FolderProof


def run_folder_verify(
    source: str,
    folder: str,
    ep: Ep,
    *,
    atol: float | None,
    rtol: float | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Prove the folder, print the result, and return the exit code."""
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.shipping.verify_folder import verify_folder

        result = verify_folder(
            source, folder, ep=ep, tolerance=_options.build_tolerance(atol, rtol), progress=tell
        )
    if as_json:
        _terminal.print_json(result.to_json())
    else:
        _print_result(result, verbose=verbose)
    if result.ok:
        return 0
    return _terminal.report_failure(f"{folder} does not give what {source} gives: {result.reason}")


def _print_result(result: FolderProof, *, verbose: bool) -> None:
    for remark in result.remarks:
        _terminal.print_row("note", remark, colour="yellow")
    for proof in result.padding:
        _verdict.print_padding(f"{proof.file} {proof}", proof.verdict, verbose=verbose)
    colour = "green" if result.session.ok else "red"
    _terminal.print_row("session", str(result.session), colour=colour)

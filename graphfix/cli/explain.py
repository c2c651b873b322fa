"""``graphfix explain``: the manual of a pass or a rule, or what an error means and comes from."""

from functools import partial

import click

from graphfix.cli import _options, _terminal
from graphfix.cli.check import print_findings
from graphfix.providers.table import EVERYWHERE, Ep


# A signed code, such as -2147024809, is no option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="NAME")
@click.argument("model", metavar="[MODEL]", required=False)
@_options.ep_option(
    EVERYWHERE,
    "dml",
    "Where MODEL is to run: on DirectML (default), on the CPU, WebGPU or CUDA.",
)
@_options.json_flag
@_options.plugin
def explain(name: str, model: str | None, ep: Ep, as_json: bool) -> None:
    """Explain a pass, a profile, a rule or an error.

    An error is a code such as 8007023E, or the line that was printed, in quotes. With MODEL, the
    nodes are listed that cause it, and the pass that repairs them.
    """
    _options.load_plugins()
    from graphfix.job.explaining import explain as explained

    explanation = explained(name, model, ep=ep)
    if as_json:
        _terminal.print_json({**explanation.to_json(), "model": model})
        return
    bold = partial(click.style, bold=True)
    _terminal.print_lines(explanation.lines(bold, partial(click.style, fg="cyan")))
    if explanation.findings is None:
        return
    click.echo(f"\n{bold('In this model')}")
    where = "" if ep == "dml" else f" --ep {ep}"
    print_findings(explanation.findings, verbose=False)
    if fixes := dict.fromkeys(x.fix for x in explanation.findings if x.fix is not None):
        _terminal.print_paragraph(
            f"To repair it: graphfix run {model} -p {','.join(fixes)}{where}", "  "
        )
    elif not explanation.findings:
        _terminal.print_paragraph(
            "nothing that is known to cause it was found; graphfix check says what else there is",
            "  ",
        )

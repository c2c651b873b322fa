"""``graphfix explain``: the manual of a pass or a rule, or what an error means and comes from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.cli.check import show_findings
from graphfix.errors import PluginError, UsageError
from graphfix.wording import clean, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from graphfix.core import Finding
    from graphfix.directml.hresult import Code
    from graphfix.spec.manual import Manual, RuleManual

    Part = tuple[str, Callable[[str], None], str]


# A signed code, such as -2147024809, is no option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="NAME")
@click.argument("model", metavar="[MODEL]", required=False)
@_options.json_flag
@_options.plugin
def explain(name: str, model: str | None, as_json: bool) -> int:
    """Explain a pass, a profile, a rule or an error.

    An error is a code such as 8007023E, or the line that was printed, in quotes. With MODEL, the
    nodes are listed that cause it, and the pass that repairs them.
    """
    from graphfix.directml import hresult
    from graphfix.engine import registry

    _options.load_plugins()
    if (code := hresult.find(name)) is not None:
        return _explain(code, name, model, as_json=as_json)
    if hresult.is_number(name):
        known = ", ".join(x.key for x in hresult.CODES)
        raise UsageError(f"nothing is known of the error {name}; known are {known}")
    if model is not None or as_json:
        raise UsageError(f"{name!r} is no error that is known; MODEL and --json are for errors")
    if name in registry.PROFILES:
        click.echo(f"{name} is a profile: a named list of passes, in this order.\n")
        for member in registry.PROFILES[name]:
            click.echo(f"  {member}")
        click.echo("\nMore about one: graphfix explain NAME")
        return 0
    try:
        cls = registry.pass_class(name)
    except UsageError as error:
        raise UsageError(f"{error}, and an error is a code such as 8007023E") from error
    from graphfix.rules import Rule
    from graphfix.spec.manual import manual_of, rule_manual_of

    try:
        _print_rule(rule_manual_of(cls)) if issubclass(cls, Rule) else _print(manual_of(cls))
    except PluginError as error:
        # Only passes in the folder owe a manual; of others, what there is is shown.
        _terminal.remark(str(error))
        click.echo(clean((cls.__doc__ or "").strip()))
    return 0


def _explain(code: Code, text: str, path: str | None, *, as_json: bool) -> int:
    from graphfix.directml import hresult

    found: list[Finding] = []
    ports: list[str] = []
    line = ""
    named = hresult.node_in(text)
    if path is not None:
        from graphfix.job import checking
        from graphfix.model import io

        loaded = io.load(path)
        line = _line(loaded, named) if named is not None else ""
        names = dict.fromkeys(rule for cause in code.causes for rule in cause.rules)
        if names:
            looked = checking.check(loaded, ",".join(names))
            found = [x for x in looked if x.fix is not None or x.severity == "error"]
        else:
            ports = list(map(_port, loaded.graph.inputs))
    if as_json:
        _terminal.print_json(
            {
                "schema": 1,
                **dataclasses.asdict(code),
                "node": named,
                "model": path,
                "findings": [dataclasses.asdict(x) for x in found],
            }
        )
        return 0
    click.echo(f"{click.style(code.key, bold=True)} ({code.title})")
    _prose(code.meaning, "")
    _head("Known causes")
    for cause in code.causes:
        by = f" Found by: {', '.join(cause.rules)}." if cause.rules else ""
        _terminal.paragraph(f"- {cause.text} ({cause.source}).{by}", "  ", "    ")
    if code.advice:
        _head("What to do")
        _prose(code.advice)
    if path is None:
        click.echo(f"\nWhat it is in a model: graphfix explain {code.key!r} MODEL")
        return 0
    if line:
        _head("The node that it names")
        _terminal.paragraph(line, "  ", "    ")
    if ports:
        _head("The inputs of this model")
    for port in ports:
        click.echo(f"  {one_line(port)}")
    _head("In this model")
    _print_found(found, path, by_rules=not ports)
    return 0


def _port(value: ir.Value) -> str:
    """An input, its type as ONNX Runtime writes it in that error, and its shape."""
    name = value.dtype.name.lower() if value.dtype is not None else "?"
    return f"{value.name}: tensor({name}), shape {value.shape}"


def _line(model: ir.Model, name: str) -> str:
    from graphfix.model.text import line_of, module_path

    for node in model.graph.all_nodes():
        if node.name == name:
            module = ".".join(module_path(node))
            return line_of(node) + (f"  (of the module {module})" if module else "")
    return f"this model has no node {name!r}: ONNX Runtime may have made it of others"


def _print_found(found: list[Finding], path: str, *, by_rules: bool) -> None:
    show_findings(sorted(found, key=lambda x: x.severity != "error"), verbose=False)
    fixes = dict.fromkeys(x.fix for x in found if x.fix is not None)
    if fixes:
        _terminal.paragraph(f"To repair it: graphfix run {path} -p {','.join(fixes)}", "  ")
    elif not found:
        none = "nothing that is known to cause it was found; graphfix check says what else there is"
        _terminal.paragraph(none if by_rules else "nothing: the array is at fault", "  ")


def _print_rule(rule: RuleManual) -> None:
    _print_page(
        rule,
        f"rule of check, holds on {', '.join(rule.providers)}",
        ("Why", _prose, rule.why),
        ("Flagged", _code, rule.flagged),
        ("Clean", _code, rule.clean),
    )


def _print(manual: Manual) -> None:
    _print_page(
        manual,
        manual.promise,
        ("Why", _prose, manual.why),
        ("Run as", _prose, f"-p {manual.spec}" if manual.spec is not None else ""),
        ("Before", _code, manual.before),
        ("After", _code, manual.after),
        ("Safety", _prose, manual.safety),
    )
    if manual.options:
        _head("Options")
    for option in manual.options:
        click.echo(f"  {option.name}={option.default} ({option.type})")
        _prose(option.text, "      ")


def _print_page(manual: Manual | RuleManual, about: str, *parts: Part) -> None:
    click.echo(f"{click.style(manual.name, bold=True)} ({about})")
    _prose(manual.summary, "")
    if manual.body:
        click.echo()
        _prose(manual.body, "")
    for title, show, text in parts:
        if text:
            _head(title)
            show(text)


def _head(title: str) -> None:
    click.echo(f"\n{click.style(title, bold=True)}")


def _prose(text: str, indent: str = "  ") -> None:
    """Paragraphs, wrapped again; one with indented lines or a list keeps its lines."""
    # A terminal needs no markup to show what is code.
    for number, paragraph in enumerate(text.replace("``", "`").split("\n\n")):
        if number:
            click.echo()
        lines = paragraph.splitlines()
        if any(line.startswith((" ", "-", "*")) for line in lines):
            for line in lines:
                click.echo(indent + one_line(line))
        else:
            _terminal.paragraph(" ".join(lines), indent)


def _code(text: str) -> None:
    # Not wrapped: it is there to be copied.
    for line in clean(text).splitlines():
        click.secho(f"  {line}", fg="cyan")

"""``graphfix completion``: click's scripts for its shells, and one for PowerShell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click import shell_completion as shells


@shells.add_completion_class
class PowerShell(shells.ShellComplete):
    """Completion in PowerShell."""

    name = "powershell"
    source_template = Path(__file__).with_name("completion.ps1").read_text("utf-8")

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words of the line, and the one that is completed."""
        words, last = shells.split_arg_string(os.environ["COMP_WORDS"]), os.environ["COMP_WORD"]
        return words[1 : -1 if last else None], last

    def format_completion(self, item: shells.CompletionItem[Any]) -> str:
        """Return the type, the text and its help, separated by tabs."""
        return f"{item.type}\t{item.value}\t{' '.join((item.help or item.value).split())}"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes verbs, options and files in a shell.

    For bash, this line in ~/.bashrc: eval "$(graphfix completion bash)"
    """
    if shell_class := shells.get_completion_class(shell):
        program = context.find_root().command
        click.echo(shell_class(program, {}, "graphfix", "_GRAPHFIX_COMPLETE").source())

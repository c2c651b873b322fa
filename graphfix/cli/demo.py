"""``graphfix demo``: a small model from the package, to try the other verbs with."""

from importlib import resources
from pathlib import Path

import click

from graphfix.cli import _options
from graphfix.errors import UsageError


@click.command()
@click.option("-o", "--output", default="demo.onnx", metavar="FILE", help="Default: demo.onnx.")
def demo(output: str) -> None:
    """Write a small model to try graphfix with.

    It is a SenseVoice encoder (speech to text) with random weights, as PyTorch exports it.
    """
    _options.require_name(output)
    if Path(output).exists():
        raise UsageError(f"{output}: is there already; name another file with -o")
    from graphfix.files import io

    with resources.as_file(resources.files("graphfix.models") / "sensevoice/model.onnx") as file:
        io.save(io.load(file), output)
    click.echo(f"{output}: a small SenseVoice encoder with random weights, as PyTorch exports it")
    click.echo(f"next: graphfix run {output}")

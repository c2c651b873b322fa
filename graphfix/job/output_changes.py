"""Proofs of a model whose outputs are others than those of its original."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypedDict

import onnx_ir as ir

from graphfix.core import Check, Pass, Readings, changes_outputs, read_outputs
from graphfix.engine import pipeline
from graphfix.files import io
from graphfix.files.model_input import PathOrModel


class OutputOptions(TypedDict, total=False):
    """Those options of verification, see :class:`graphfix.proof.verify.Options`."""

    read_outputs: Callable[[Readings, Readings], Readings]
    add_references: Callable[[ir.Model], None]


def output_options(passes: Iterable[Check]) -> OutputOptions:
    """Return what verification must know of passes that change which outputs there are."""
    changing = [x for x in passes if changes_outputs(x)]
    if not changing:
        return {}
    return {
        "read_outputs": partial(read_outputs, changing),
        "add_references": partial(_add_references, changing),
    }


def with_new_outputs(source: Path, passes: Iterable[Check]) -> PathOrModel:
    """Return the original with the outputs of the repaired model, to compare padding with.

    That these tell what the original's outputs do is proved by verification.
    """
    changing = [x for x in passes if changes_outputs(x)]
    if not changing:
        return source
    model = io.load(source)
    pipeline.apply_passes(model, changing)
    return model


def _add_references(passes: Iterable[Check], model: ir.Model) -> None:
    for check in passes:
        if isinstance(check, Pass):
            check.add_references(model)

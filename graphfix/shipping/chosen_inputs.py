"""Inputs that shipping makes constants: they are no inputs of the shipped model."""

from pathlib import Path

import onnx_ir as ir

from graphfix.engine import pipeline
from graphfix.facts.fixed_inputs import fixed_input_arrays, fixed_input_texts
from graphfix.files import io
from graphfix.runtime.port import Feeds
from graphfix.shipping.container_repair import INPUT


def fix_inputs(model: ir.Model, spec: str) -> ir.Model:
    """Make the inputs constants that ``spec`` fixes, and return the model."""
    for item in pipeline.split_spec(spec):
        if item[0] == INPUT:
            pipeline.run(model, ":".join(item))
    return model


def fix_and_fold_inputs(model: ir.Model, spec: str) -> ir.Model:
    """Make the inputs constants that ``spec`` fixes, and fold what they decide, as an If."""
    model = fix_inputs(model, spec)
    if fixed_input_texts(model):
        pipeline.run(model, "fold")
    return model


def constants_of(source: Path, model: ir.Model) -> Feeds:
    """Return the feeds of the file's inputs that are constants in ``model``."""
    return fixed_input_arrays(io.load(source), model) if fixed_input_texts(model) else {}

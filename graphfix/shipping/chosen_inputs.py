"""Inputs that are the same in every run of what is shipped, and no inputs of it any more."""

from pathlib import Path

import onnx_ir as ir

from graphfix.engine import pipeline
from graphfix.facts.fixed_inputs import arrays_since, texts_of
from graphfix.files import io
from graphfix.runtime.port import Feeds
from graphfix.shipping.container_repair import INPUT


def with_constants(model: ir.Model, spec: str) -> ir.Model:
    """The model without the inputs that ``spec`` makes constants: those who use it feed none."""
    for item in pipeline.split(spec):
        if item[0] == INPUT:
            pipeline.run(model, ":".join(item))
    return model


def decided(model: ir.Model, spec: str) -> ir.Model:
    """The same, and without what those inputs decide, such as the branch of an If."""
    model = with_constants(model, spec)
    if texts_of(model):
        pipeline.run(model, "fold")
    return model


def constants_of(source: Path, model: ir.Model) -> Feeds:
    """What the file is fed where ``model`` has constants."""
    return arrays_since(io.load(source), model) if texts_of(model) else {}

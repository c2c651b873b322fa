"""ONNX's schemas of operators."""

import functools

import onnx

OPS_WITH_BODIES = frozenset({"If", "Loop", "Scan"})
"""The operators of the standard whose graphs have inputs and outputs that match the node's."""


ONNX_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})


@functools.cache
def schema_of(op_type: str, opset: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """Return ONNX's schema of an operator as of an opset; None if it has none."""
    try:
        return onnx.defs.get_schema(op_type, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def schema_version(op_type: str, domain: str, version: int) -> int | None:
    """Return the operator set version whose schema checks an operator; None if there is none.

    ONNX Runtime has some before ONNX does: LayerNormalization, since opset 1.
    """
    if domain not in ONNX_DOMAINS:
        return None
    for candidate in (version, onnx.defs.onnx_opset_version() if not domain else version):
        if (schema := schema_of(op_type, candidate, domain)) is not None:
            return None if schema.deprecated else candidate
    return None

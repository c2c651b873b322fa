"""ONNX's schemas of operators."""

import functools

import onnx

BODIES = frozenset({"If", "Loop", "Scan"})
"""The operators of the standard whose graphs have inputs and outputs that match the node's."""


STANDARD = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})


@functools.cache
def schema_of(op_type: str, opset: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """ONNX's schema of an operator as of an opset; None if it has none."""
    try:
        return onnx.defs.get_schema(op_type, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def version_of(op_type: str, domain: str, version: int) -> int | None:
    """The version of an operator set whose schema an operator is checked by; None if it has none.

    ONNX Runtime has some before ONNX does: LayerNormalization, since opset 1.
    """
    if domain not in STANDARD:
        return None
    for one in (version, onnx.defs.onnx_opset_version() if not domain else version):
        if (schema := schema_of(op_type, one, domain)) is not None:
            return None if schema.deprecated else one
    return None

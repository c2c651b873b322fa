"""Inference of a whole model, in which no rule is asked twice for the same."""

import onnx_ir as ir
from onnx_shape_inference import OpUsageError, ShapeInferenceError, infer_symbolic_shapes, registry

from graphfix.facts.symbolic.expressions import symbols_of
from graphfix.facts.symbolic.inferred import Facts
from graphfix.facts.symbolic.rule_cache import CachingContext, Rule, RuleCache


def infer_shapes(model: ir.Model, facts: Facts, *, bodies: bool) -> None:
    """Give every value the shape that the rules say.

    Args:
        model: The model, of whose shapes only those of its inputs are believed.
        facts: What is being learned of it.
        bodies: Whether there are graphs inside its main graph.

    Raises:
        ValueError: A node is malformed; those before it have their shapes.
    """
    rules = None if bodies else _rules_by_operator(model)
    if rules is None:
        # The names that outputs declare are not adopted: they need not be true.
        infer_symbolic_shapes(model, warn_on_missing=False, adopt_declared_symbols=False)
    else:
        _infer_nodes(model, facts, rules)


def _rules_by_operator(model: ir.Model) -> dict[tuple[str, str], Rule] | None:
    """Return the rules of the model's operators; None if one has none, or is a function."""
    registry.collect()
    rules: dict[tuple[str, str], Rule] = {}
    context = CachingContext(model.opset_imports)
    for node in model.graph:
        kind = (node.domain, node.op_type)
        if kind not in rules:
            rule = registry.get(*kind, version=context.get_opset_version(node.domain))
            if rule is None:
                return None
            rules[kind] = rule
    return rules


def _infer_nodes(model: ir.Model, facts: Facts, rules: dict[tuple[str, str], Rule]) -> None:
    """Infer a graph without bodies as the library does, but ask no rule twice for the same."""
    graph = model.graph
    ctx = CachingContext(model.opset_imports)
    sources = [*graph.inputs, *graph.initializers.values()]
    dims = {dim for x in sources if x.shape is not None for dim in x.shape}
    ctx.reserve_symbol_names(name for dim in dims for name in symbols_of(dim))
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and value.shape != tensor.shape:
            value.shape = ir.Shape(tensor.shape.numpy())
    for value in graph.inputs:
        ctx.name_anonymous_dims(value)
    memory = RuleCache(facts, ctx)
    for node in graph:
        try:
            memory.infer_node(node, rules[node.domain, node.op_type])
        except (OpUsageError, ShapeInferenceError):
            raise
        except Exception as error:
            raise ShapeInferenceError(
                node_name=node.name,
                op_type=node.op_type,
                domain=node.domain,
                message=f"Shape inference failed for {node.domain}::{node.op_type}",
            ) from error

"""Dims of inputs that follow from other dims: a second input that is twice as long as the first."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.facts.shapes import drop_shapes
from graphfix.facts.symbolic.expressions import replace_symbols, symbols_of
from graphfix.feeds.signature import Signature
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.dim_expression import size_of
from graphfix.spec.quoting import quote_name


def find_derived_dims(signature: Signature) -> dict[str, str]:
    """Return the expression of each dim that follows from others, in the model's own names.

    One with a name that is no word, such as ``batch size``, is left out.
    """
    own_names = {s: signature.user_name(s) for s in signature.symbols()}
    derived: dict[str, str] = {}
    for symbol, dim in signature.derived.items():
        names = [own_names[x] for x in symbols_of(dim)]
        if all(x.isidentifier() for x in (*names, own_names[symbol])):
            renamed = replace_symbols(dim, {s: ir.SymbolicDim(x) for s, x in own_names.items()})
            derived[own_names[symbol]] = str(renamed)
    return derived


def write_derived_dims(model: ir.Model, derived: Mapping[str, str]) -> None:
    """Write expressions into the shapes of the inputs, in place of the names of dims."""
    if not derived:
        return
    for value in model.graph.inputs:
        if value.shape is not None:
            dims = (x if isinstance(x, int) else x.value for x in value.shape)
            value.shape = ir.Shape([derived.get(x, x) if isinstance(x, str) else x for x in dims])
    drop_shapes(model)


def drop_derived_sizes(spec: ContainerSpec, derived: Mapping[str, str]) -> ContainerSpec:
    """Return the sizes without those that follow from others.

    Raises:
        UsageError: A size is not what follows, or that of which it follows has none.
    """
    for name, wanted in spec.sizes.items():
        if name not in derived:
            continue
        dim = derived[name]
        sources = sorted(symbols_of(ir.SymbolicDim(dim)))
        missing = [quote_name(x) for x in sources if x not in spec.sizes]
        if missing:
            raise UsageError(
                f"--container {quote_name(name)}: it is {dim} in each run, so it needs no size; "
                f"say --container {' --container '.join(f'{x}=SIZE' for x in missing)}"
            )
        combinations = itertools.product(*(spec.sizes[x] for x in sources))
        follows = {size_of(dim, dict(zip(sources, x, strict=True))) for x in combinations}
        if not follows.issuperset(wanted):
            sizes = ", ".join(map(str, sorted(follows)))
            raise UsageError(
                f"--container {quote_name(name)}={','.join(map(str, wanted))}: the graph wants "
                f"{dim} there, which is {sizes}; leave it out"
            )
    return replace(spec, sizes={k: x for k, x in spec.sizes.items() if k not in derived})

"""Whether a node means the same under an older opset, by the schemas of both versions."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

import onnx
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.graph.walks import all_graphs
from graphfix.ops.schemas import schema_of
from graphfix.ops.signatures import IN_ONNX

Schema = onnx.defs.OpSchema

# Whose revisions were read, one by one, for what their schemas do not say.
READ_UP_TO = 28

_DTYPES = ("to", "dtype", "output_dtype", "precision", "softmax_precision", "stash_type")
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
# What operators make out of nothing: a Shape, a comparison, a fill, a quantizer.
_ORDINARY = (
    *(ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.STRING, ir.DataType.BOOL),
    *(ir.DataType.INT64, ir.DataType.INT32, ir.DataType.INT8, ir.DataType.UINT8),
)


class Meanings:
    """The nodes of one model, as they would be read under opset ``to``."""

    def __init__(self, view: View, to: int) -> None:
        self._view = view
        self._to = to

    def changed(self, node: ir.Node, opset: int) -> str | None:
        """Why ``node``, of the standard domain, would not mean the same; None if it would."""
        newest = onnx.defs.onnx_opset_version()
        if opset > newest:
            return f"onnx {onnx.__version__} knows opsets up to {newest} only; update it"
        new = schema_of(node.op_type, opset)
        if new is None and node.op_type in IN_ONNX:
            return None
        if new is None:
            return f"onnx {onnx.__version__} knows no operator {node.op_type} in opset {opset}"
        if new.since_version <= self._to:
            return None
        name = f"{node.op_type}-{new.since_version}"
        if new.since_version > READ_UP_TO:
            return f"{name} is newer than opset {READ_UP_TO}, the last that this pass knows"
        old = schema_of(node.op_type, self._to)
        if old is None:
            return (
                f"{node.op_type} is new in opset {_first(node.op_type)}: "
                f"opset {self._to} has no such operator"
            )
        return (
            _signature(node, old, new)
            or self._types(node, old, new)
            or self._rereadings(node, old.since_version, new.since_version)
        )

    def _rereadings(self, node: ir.Node, old: int, new: int) -> str | None:
        for version, reread in _REREAD.get(node.op_type, ()):
            if old < version <= new and (why := reread(node, self._view)) is not None:
                return f"{why} (changed in {node.op_type}-{version})"
        return None

    def _types(self, node: ir.Node, old: Schema, new: Schema) -> str | None:
        bound: dict[str, str] = {}
        for value, before, after in _pairs(node, old, new):
            took, takes = _allowed(old, before.type_str), _allowed(new, after.type_str)
            text = self._type_of(value)
            if text is None:
                doubtful = {x for x in takes - took if _holds(x, self._used)}
                if doubtful or before.type_str != after.type_str:
                    which = ", ".join(sorted(doubtful)) or f"what {before.name} may be"
                    return f"the type of {value.name!r} is not known, and {which} is new"
                continue
            if text not in took:
                since = f"{node.op_type}-{old.since_version}"
                return f"{value.name!r} is {text}, which {since} does not allow"
            other = bound.setdefault(before.type_str, text)
            if before.is_homogeneous and other != text:
                since = f"{node.op_type}-{old.since_version}"
                return f"{value.name!r} is {text} beside {other}, and {since} wants one type"
        return None

    def _type_of(self, value: ir.Value) -> str | None:
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            return _spelled(value.type)
        dtype = self._view.shapes.dtype(value)
        if dtype is None or dtype == ir.DataType.UNDEFINED:
            return None
        return f"tensor({_word(dtype)})"

    @cached_property
    def _used(self) -> frozenset[str]:
        """The element types that a tensor of the model may have whose own is not known."""
        found: set[ir.DataType | None] = set(_ORDINARY)
        for graph in all_graphs(self._view.model):
            found.update(x.dtype for x in (*graph.inputs, *graph.initializers.values()))
            for node in graph:
                found.update(_named_by(node))
                found.update(self._view.shapes.dtype(x) for x in node.outputs)
        return frozenset(_word(x) for x in found if x is not None)


@lru_cache(maxsize=256)
def _first(op_type: str) -> int:
    return min(v for v in range(1, READ_UP_TO + 1) if schema_of(op_type, v) is not None)


def _signature(node: ir.Node, old: Schema, new: Schema) -> str | None:
    """Why the attributes, inputs and outputs of ``node`` do not fit the older schema."""
    was = f"{node.op_type}-{old.since_version}"
    for name in node.attributes:
        if name not in old.attributes:
            return f"its attribute {name!r} is unknown to {was}"
    for name, attribute in new.attributes.items():
        if name in node.attributes or name not in old.attributes:
            continue
        before, after = old.attributes[name].default_value, attribute.default_value
        if before.SerializeToString() != after.SerializeToString():
            return f"its attribute {name!r} is not given, and {was} has another default"
    for kind, given, most in (
        ("inputs", node.inputs, old.max_input),
        ("outputs", node.outputs, old.max_output),
    ):
        if (count := _last(given)) > most:
            return f"it has {count} {kind}, and {was} has at most {most}"
    return None


def _last(values: Sequence[ir.Value | None]) -> int:
    """How many values there are, without absent ones at the end."""
    return max((i + 1 for i, x in enumerate(values) if x is not None and x.name != ""), default=0)


def _pairs(
    node: ir.Node, old: Schema, new: Schema
) -> Iterator[tuple[ir.Value, Schema.FormalParameter, Schema.FormalParameter]]:
    """Each value beside its parameter in both schemas; a variadic one takes all that follow."""
    for values, before, after in (
        (node.inputs, old.inputs, new.inputs),
        (node.outputs, old.outputs, new.outputs),
    ):
        for i, value in enumerate(values):
            if value is not None and value.name != "" and before:
                yield value, before[min(i, len(before) - 1)], after[min(i, len(after) - 1)]


def _allowed(schema: Schema, type_str: str) -> frozenset[str]:
    allowed = {x.type_param_str: x.allowed_type_strs for x in schema.type_constraints}
    return frozenset(allowed.get(type_str, [type_str]))


def _holds(type_str: str, words: frozenset[str]) -> bool:
    return type_str[type_str.rfind("(") + 1 :].rstrip(")") in words


def _word(dtype: ir.DataType) -> str:
    """An element type as schemas write it."""
    return str(ir.DataType(dtype).name).lower()


def _spelled(kind: ir.TypeProtocol) -> str | None:
    if isinstance(kind, ir.TensorType):
        return f"tensor({_word(kind.dtype)})"
    if isinstance(kind, ir.SequenceType):
        return f"seq({_spelled(kind.elem_type)})"
    return f"optional({_spelled(kind.elem_type)})" if isinstance(kind, ir.OptionalType) else None


def _named_by(node: ir.Node) -> Iterator[ir.DataType]:
    """The types that the attributes of a node name."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            if attribute.name in _DTYPES:
                yield from ir.DataType  # whatever the caller says
        elif attribute.type == ir.AttributeType.TENSOR:
            yield attribute.as_tensor().dtype
        elif attribute.name in _DTYPES and attribute.type == ir.AttributeType.INT:
            yield ir.DataType(attribute.as_int())


# What schemas do not say -------------------------------------------------------------------------


def _rounds_windows_up(node: ir.Node, view: View) -> str | None:
    if attr_int(node, "ceil_mode", 0) == 0 and not _is_ref(node, "ceil_mode"):
        return None
    return "with ceil_mode=1, windows that start in the padding are no longer counted"


def _casts_float8(node: ir.Node, view: View) -> str | None:
    dtypes = [view.shapes.dtype(x) for x in (*node.inputs, *node.outputs)]
    if any(x is None or x.name.startswith("FLOAT8") for x in dtypes):
        return "infinity and what is too large become other float8 numbers"
    return None


def _divides_otherwise(node: ir.Node, view: View) -> str | None:
    dtype = view.shapes.dtype(node.outputs[0])
    if dtype is None or _is_ref(node, "fmod"):
        return "whether it divides integers is not known"
    if (attr_int(node, "fmod", 0) == 1) == (dtype in _FLOATS):
        return None
    return f"fmod={attr_int(node, 'fmod', 0)} was not defined for {_word(dtype)}"


def _is_ref(node: ir.Node, name: str) -> bool:
    return name in node.attributes and node.attributes[name].is_ref()


# Operators by name: the version that rereads some nodes, and which. Every other revision from 22
# to READ_UP_TO adds types, attributes or inputs, or words its text better, and nothing else.
_REREAD: dict[str, tuple[tuple[int, Callable[[ir.Node, View], str | None]], ...]] = {
    "AveragePool": ((22, _rounds_windows_up),),
    "MaxPool": ((22, _rounds_windows_up),),
    "Cast": ((24, _casts_float8),),
    "CastLike": ((24, _casts_float8),),
    "Mod": ((28, _divides_otherwise),),
    "BitShift": ((28, lambda *_: "a shift by as many bits as the type has was not defined"),),
}

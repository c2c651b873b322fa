"""Whether a node means the same under an older opset, by the schemas of both versions."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

import onnx
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.graph.walks import all_graphs
from graphfix.ops.schemas import schema_of
from graphfix.ops.signatures import CONTRIB_IN_ONNX_DOMAIN

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


class OlderMeaning:
    """What the nodes of one model would mean under opset ``to``."""

    def __init__(self, view: View, to: int) -> None:
        self._view = view
        self._to = to

    def why_changed(self, node: ir.Node, opset: int) -> str | None:
        """Return why ``node``, of the standard domain, would mean something else, or None."""
        newest = onnx.defs.onnx_opset_version()
        if opset > newest:
            return f"onnx {onnx.__version__} knows opsets up to {newest} only; update it"
        new = schema_of(node.op_type, opset)
        if new is None and node.op_type in CONTRIB_IN_ONNX_DOMAIN:
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
                f"{node.op_type} is new in opset {_first_opset(node.op_type)}: "
                f"opset {self._to} has no such operator"
            )
        return (
            _signature_reason(node, old, new)
            or self._type_reason(node, old, new)
            or self._reread_reason(node, old.since_version, new.since_version)
        )

    def _reread_reason(self, node: ir.Node, old: int, new: int) -> str | None:
        for version, reread in _REREAD.get(node.op_type, ()):
            if old < version <= new and (reason := reread(node, self._view)) is not None:
                return f"{reason} (changed in {node.op_type}-{version})"
        return None

    def _type_reason(self, node: ir.Node, old: Schema, new: Schema) -> str | None:
        bound: dict[str, str] = {}
        for value, before, after in _parameter_pairs(node, old, new):
            old_types, new_types = (
                _allowed_types(old, before.type_str),
                _allowed_types(new, after.type_str),
            )
            type_text = self._type_text(value)
            if type_text is None:
                possible = {
                    x for x in new_types - old_types if _has_element_type(x, self._possible_types)
                }
                if possible or before.type_str != after.type_str:
                    added_types = ", ".join(sorted(possible)) or f"what {before.name} may be"
                    return f"the type of {value.name!r} is not known, and {added_types} is new"
                continue
            if type_text not in old_types:
                since = f"{node.op_type}-{old.since_version}"
                return f"{value.name!r} is {type_text}, which {since} does not allow"
            bound_type = bound.setdefault(before.type_str, type_text)
            if before.is_homogeneous and bound_type != type_text:
                since = f"{node.op_type}-{old.since_version}"
                return (
                    f"{value.name!r} is {type_text} beside {bound_type}, and {since} wants one type"
                )
        return None

    def _type_text(self, value: ir.Value) -> str | None:
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            return _spell_type(value.type)
        dtype = self._view.shapes.dtype(value)
        if dtype is None or dtype == ir.DataType.UNDEFINED:
            return None
        return f"tensor({_dtype_word(dtype)})"

    @cached_property
    def _possible_types(self) -> frozenset[str]:
        """Return the element types that a tensor of unknown type may have."""
        dtypes: set[ir.DataType | None] = set(_ORDINARY)
        for graph in all_graphs(self._view.model):
            dtypes.update(x.dtype for x in (*graph.inputs, *graph.initializers.values()))
            for node in graph:
                dtypes.update(_attribute_dtypes(node))
                dtypes.update(self._view.shapes.dtype(x) for x in node.outputs)
        return frozenset(_dtype_word(x) for x in dtypes if x is not None)


@lru_cache(maxsize=256)
def _first_opset(op_type: str) -> int:
    return min(v for v in range(1, READ_UP_TO + 1) if schema_of(op_type, v) is not None)


def _signature_reason(node: ir.Node, old: Schema, new: Schema) -> str | None:
    """Return why attributes, inputs or outputs of ``node`` do not fit the older schema."""
    old_name = f"{node.op_type}-{old.since_version}"
    for name in node.attributes:
        if name not in old.attributes:
            return f"its attribute {name!r} is unknown to {old_name}"
    for name, attribute in new.attributes.items():
        if name in node.attributes or name not in old.attributes:
            continue
        before, after = old.attributes[name].default_value, attribute.default_value
        if before.SerializeToString() != after.SerializeToString():
            return f"its attribute {name!r} is not given, and {old_name} has another default"
    for kind, values, most in (
        ("inputs", node.inputs, old.max_input),
        ("outputs", node.outputs, old.max_output),
    ):
        if (count := _count_present(values)) > most:
            return f"it has {count} {kind}, and {old_name} has at most {most}"
    return None


def _count_present(values: Sequence[ir.Value | None]) -> int:
    """Return the number of values, without absent ones at the end."""
    return max((i + 1 for i, x in enumerate(values) if x is not None and x.name != ""), default=0)


def _parameter_pairs(
    node: ir.Node, old: Schema, new: Schema
) -> Iterator[tuple[ir.Value, Schema.FormalParameter, Schema.FormalParameter]]:
    """Yield each value with its parameter in both schemas; a variadic one covers the rest."""
    for values, before, after in (
        (node.inputs, old.inputs, new.inputs),
        (node.outputs, old.outputs, new.outputs),
    ):
        for i, value in enumerate(values):
            if value is not None and value.name != "" and before:
                yield value, before[min(i, len(before) - 1)], after[min(i, len(after) - 1)]


def _allowed_types(schema: Schema, type_str: str) -> frozenset[str]:
    allowed = {x.type_param_str: x.allowed_type_strs for x in schema.type_constraints}
    return frozenset(allowed.get(type_str, [type_str]))


def _has_element_type(type_str: str, type_words: frozenset[str]) -> bool:
    return type_str[type_str.rfind("(") + 1 :].rstrip(")") in type_words


def _dtype_word(dtype: ir.DataType) -> str:
    """Return an element type as schemas write it."""
    return str(ir.DataType(dtype).name).lower()


def _spell_type(kind: ir.TypeProtocol) -> str | None:
    if isinstance(kind, ir.TensorType):
        return f"tensor({_dtype_word(kind.dtype)})"
    if isinstance(kind, ir.SequenceType):
        return f"seq({_spell_type(kind.elem_type)})"
    return f"optional({_spell_type(kind.elem_type)})" if isinstance(kind, ir.OptionalType) else None


def _attribute_dtypes(node: ir.Node) -> Iterator[ir.DataType]:
    """Yield the types that the attributes of a node name."""
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
    return f"fmod={attr_int(node, 'fmod', 0)} was not defined for {_dtype_word(dtype)}"


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

"""Fields of a file that onnx-ir does not know, restored when its model is saved.

onnx-ir has no place for training info, device configurations, fields of a
newer ONNX, checksums of external data and the like, and it writes some things in another way than
they were. So what it makes of a file is compared with the file, and
:meth:`Original.restore` is a three-way merge: where no pass has changed what onnx-ir wrote then,
the file's own words are written again; where one has, its edit is written, and what onnx-ir never
knew is kept beside it.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import cast

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

# A repeated field of messages, as protobuf's Python hands it out.
Items = Sequence[Message]


def _node_key(node: onnx.NodeProto) -> str:
    """Return the key of a node: its outputs and its operator.

    A node that a repair put in the place of another makes the same with another operator.
    One text takes half the memory of a tuple, and there are as many as nodes.
    """
    return "\0".join((*node.output, _plain_domain(node), node.op_type))


# What tells the elements of a repeated field apart, by the type of the elements.
_KEYS: dict[str, Callable[..., Hashable]] = {
    "NodeProto": _node_key,
    **dict.fromkeys(("AttributeProto", "TensorProto", "ValueInfoProto"), lambda x: x.name),
    "TensorAnnotation": lambda x: x.tensor_name,
    "FunctionProto": lambda x: (_plain_domain(x), x.name, x.overload),
    "OperatorSetIdProto": lambda x: _plain_domain(x),
    "StringStringEntryProto": lambda x: x.key,
}


class OriginalFile:
    """A file as it was parsed, and how it became a model.

    What onnx-ir writes for the file is asked only when an edited model is saved.

    Args:
        proto: The file.
        read: What makes a model of it, before any edit.
    """

    def __init__(
        self, proto: onnx.ModelProto, build_model: Callable[[onnx.ModelProto], ir.Model]
    ) -> None:
        self._proto = proto
        self._build_model = build_model

    def restore(self, new: onnx.ModelProto) -> bool:
        """Restore in ``new`` what onnx-ir lost; return whether ``new`` now equals the file."""
        written = ir.to_proto(self._build_model(self._proto))
        for proto in (new, written):
            self._drop_undeclared(proto)
        _merge_fields(new, written, self._proto)
        return bool(new == self._proto)

    def _drop_undeclared(self, proto: onnx.ModelProto) -> None:
        """Drop value_info that the file lacks: onnx-ir writes it for each initializer."""
        names = {x.name for x in self._proto.graph.value_info}
        names |= {x for node in proto.graph.node for x in node.output}
        declared = [x for x in proto.graph.value_info if x.name in names]
        if len(declared) < len(proto.graph.value_info):
            _replace_items(proto.graph.value_info, declared)


def _merge_message(new: Message, written: Message, old: Message) -> None:
    if new == written:
        new.CopyFrom(old)
    else:
        _merge_fields(new, written, old)


def _merge_fields(new: Message, written: Message, old: Message) -> None:
    for field in new.DESCRIPTOR.fields:
        name = field.name
        repeated = hasattr(getattr(old, name), "extend")
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            _merge_plain_field(name, new, written, old, many=repeated)
        elif repeated:
            new_items, written_items, old_items = (getattr(x, name) for x in (new, written, old))
            _merge_repeated_field(
                new_items, written_items, old_items, ordered=name in ("node", "input", "output")
            )
        elif old.HasField(name) and new.HasField(name):
            _merge_message(getattr(new, name), getattr(written, name), getattr(old, name))
        elif old.HasField(name) and not written.HasField(name):
            getattr(new, name).CopyFrom(getattr(old, name))
        elif not old.HasField(name) and getattr(new, name) == getattr(written, name):
            new.ClearField(name)
    unknown = _unknown_fields(old)
    if unknown:
        new.MergeFromString(unknown)


def _merge_plain_field(
    name: str, new: Message, written: Message, old: Message, *, many: bool
) -> None:
    """Merge a number, a text, or a list of them, as a whole."""
    if getattr(new, name) != getattr(written, name):
        return
    if many:
        del getattr(new, name)[:]
        getattr(new, name).extend(getattr(old, name))
    elif old.HasField(name):
        setattr(new, name, getattr(old, name))
    else:
        new.ClearField(name)


def _merge_repeated_field(new: Items, written: Items, old: Items, *, ordered: bool) -> None:
    """Merge a list of messages: each by its key, or as a whole where they have none.

    Args:
        new: What is to be written.
        written: What onnx-ir wrote before any edit.
        old: What the file has.
        ordered: Whether the order means something, and is that of ``new``.
    """
    new_by_key, written_by_key, old_by_key = map(_items_by_key, (new, written, old))
    if new_by_key is None or written_by_key is None or old_by_key is None:
        if list(new) == list(written):
            _replace_items(new, old)
        return
    is_node = bool(new) and isinstance(new[0], onnx.NodeProto)  # none is ever lost or made up
    result: dict[Hashable, Message] = {}
    for key, item in new_by_key.items():
        if key in written_by_key and key in old_by_key:
            _merge_message(item, written_by_key[key], old_by_key[key])
        elif key in written_by_key and item == written_by_key[key] and not is_node:
            continue  # onnx-ir made it up
        result[key] = item
    if not is_node:
        result |= {
            k: x for k, x in old_by_key.items() if k not in new_by_key and k not in written_by_key
        }
    order = [*result]
    if not ordered:
        order = [
            *(k for k in old_by_key if k in result),
            *(k for k in order if k not in old_by_key),
        ]
    if order != [*new_by_key]:
        _replace_items(new, [result[key] for key in order])


def _replace_items(items: Items, replacements: Iterable[Message]) -> None:
    copies = [copy.deepcopy(item) for item in replacements]
    del items[:]  # type: ignore[attr-defined]
    items.extend(copies)  # type: ignore[attr-defined]


def _plain_domain(x: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    return "" if x.domain == "ai.onnx" else x.domain


def _items_by_key(items: Items) -> dict[Hashable, Message] | None:
    """Return messages by what tells them apart, in order; None if nothing does."""
    if not items:
        return {}
    key = _KEYS.get(type(items[0]).__name__)
    if key is None:
        return None
    by_key = {key(x): x for x in items}
    return by_key if len(by_key) == len(items) else None


def _unknown_fields(message: Message) -> bytes:
    """Return the fields of a message that this version of ONNX does not know, as bytes."""
    remainder = copy.deepcopy(message)
    for field, _ in message.ListFields():
        remainder.ClearField(field.name)
    return cast("bytes", remainder.SerializeToString())

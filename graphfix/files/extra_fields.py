"""What a file says beyond what onnx-ir knows of it, rolled back when its model is saved.

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
    """A node that a repair put in the place of another makes the same with another operator.

    One text takes half the memory of a tuple, and there are as many as nodes.
    """
    return "\0".join((*node.output, _domain(node), node.op_type))


# What tells the elements of a repeated field apart, by the type of the elements.
_KEYS: dict[str, Callable[..., Hashable]] = {
    "NodeProto": _node_key,
    **dict.fromkeys(("AttributeProto", "TensorProto", "ValueInfoProto"), lambda x: x.name),
    "TensorAnnotation": lambda x: x.tensor_name,
    "FunctionProto": lambda x: (_domain(x), x.name, x.overload),
    "OperatorSetIdProto": lambda x: _domain(x),
    "StringStringEntryProto": lambda x: x.key,
}


class Original:
    """A file as it was parsed, and how it became a model.

    What onnx-ir writes for the file is asked only when an edited model is saved.

    Args:
        proto: The file.
        read: What makes a model of it, before any edit.
    """

    def __init__(self, proto: onnx.ModelProto, read: Callable[[onnx.ModelProto], ir.Model]) -> None:
        self._old = proto
        self._read = read

    def restore(self, new: onnx.ModelProto) -> bool:
        """Put back into ``new`` what onnx-ir lost on the way; whether ``new`` is now the file."""
        written = ir.to_proto(self._read(self._old))
        for proto in (new, written):
            self._drop_undeclared(proto)
        _restore_fields(new, written, self._old)
        return bool(new == self._old)

    def _drop_undeclared(self, proto: onnx.ModelProto) -> None:
        """Drop value_info that the file does not have: onnx-ir writes it for each initializer."""
        names = {x.name for x in self._old.graph.value_info}
        names |= {x for node in proto.graph.node for x in node.output}
        declared = [x for x in proto.graph.value_info if x.name in names]
        if len(declared) < len(proto.graph.value_info):
            _replace(proto.graph.value_info, declared)


def _restore(new: Message, written: Message, old: Message) -> None:
    if new == written:
        new.CopyFrom(old)
    else:
        _restore_fields(new, written, old)


def _restore_fields(new: Message, written: Message, old: Message) -> None:
    for field in new.DESCRIPTOR.fields:
        name = field.name
        repeated = hasattr(getattr(old, name), "extend")
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            _restore_plain(name, new, written, old, many=repeated)
        elif repeated:
            mine, theirs, given = (getattr(x, name) for x in (new, written, old))
            _restore_items(mine, theirs, given, ordered=name in ("node", "input", "output"))
        elif old.HasField(name) and new.HasField(name):
            _restore(getattr(new, name), getattr(written, name), getattr(old, name))
        elif old.HasField(name) and not written.HasField(name):
            getattr(new, name).CopyFrom(getattr(old, name))
        elif not old.HasField(name) and getattr(new, name) == getattr(written, name):
            new.ClearField(name)
    unknown = _unknown(old)
    if unknown:
        new.MergeFromString(unknown)


def _restore_plain(name: str, new: Message, written: Message, old: Message, *, many: bool) -> None:
    """A number, a text, or a list of them: as a whole."""
    if getattr(new, name) != getattr(written, name):
        return
    if many:
        del getattr(new, name)[:]
        getattr(new, name).extend(getattr(old, name))
    elif old.HasField(name):
        setattr(new, name, getattr(old, name))
    else:
        new.ClearField(name)


def _restore_items(new: Items, written: Items, old: Items, *, ordered: bool) -> None:
    """Messages in a list: each by its key, or as a whole where they have none.

    Args:
        new: What is to be written.
        written: What onnx-ir wrote before any edit.
        old: What the file has.
        ordered: Whether the order means something, and is that of ``new``.
    """
    mine, theirs, given = map(_by_key, (new, written, old))
    if mine is None or theirs is None or given is None:
        if list(new) == list(written):
            _replace(new, old)
        return
    is_node = bool(new) and isinstance(new[0], onnx.NodeProto)  # none is ever lost or made up
    result: dict[Hashable, Message] = {}
    for key, item in mine.items():
        if key in theirs and key in given:
            _restore(item, theirs[key], given[key])
        elif key in theirs and item == theirs[key] and not is_node:
            continue  # onnx-ir made it up
        result[key] = item
    if not is_node:
        result |= {k: x for k, x in given.items() if k not in mine and k not in theirs}
    order = [*result]
    if not ordered:
        order = [*(k for k in given if k in result), *(k for k in order if k not in given)]
    if order != [*mine]:
        _replace(new, [result[key] for key in order])


def _replace(items: Items, by: Iterable[Message]) -> None:
    copies = [copy.deepcopy(item) for item in by]
    del items[:]  # type: ignore[attr-defined]
    items.extend(copies)  # type: ignore[attr-defined]


def _domain(x: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    return "" if x.domain == "ai.onnx" else x.domain


def _by_key(items: Items) -> dict[Hashable, Message] | None:
    """Messages by what tells them apart, in order; None if nothing does."""
    if not items:
        return {}
    key = _KEYS.get(type(items[0]).__name__)
    if key is None:
        return None
    found = {key(x): x for x in items}
    return found if len(found) == len(items) else None


def _unknown(message: Message) -> bytes:
    """The fields of a message that this version of ONNX does not know, as they were."""
    rest = copy.deepcopy(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return cast("bytes", rest.SerializeToString())

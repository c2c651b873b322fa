"""Which axis of which input is padded: the one that is named, or the only one that it can be."""

import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.nodes import is_op
from graphfix.lengths.same_size import OneSize, plain
from graphfix.spec.quoting import quoted

Place = tuple[ir.Value, int]
# The symbol of a dim, the input, and the axis.
NamedPlace = tuple[str, ir.Value, int]

_SPEC = "-p ilens-mask:axis="


def chosen(model: ir.Model, shapes: Shapes, given: ir.Value | None, one: OneSize) -> Place:
    """The only axis that can be time.

    Raises:
        UsageError: There is none, or several may be; the message says how to name it.
    """
    places = list(symbolic(model, shapes, given))
    if not places:
        raise UsageError(
            "ilens-mask: every dim of every input is fixed, so nothing can be padded. Export the "
            "model with a dynamic time axis, or try -p thaw first"
        )
    # A matrix with one symbolic dim is frames by features; a batch comes with more axes.
    most = 2 if len({name for name, _, _ in places}) == 1 else 1
    batch = {name for name, x, i in places if i == 0 and (shapes.rank(x) or 0) > most}
    left: dict[str, Place] = {}
    for name, value, i in places:
        lengths = i == 0 and shapes.rank(value) == 1 and any(one.are_one(name, x) for x in batch)
        if name not in batch and not lengths:
            left.setdefault(name, (value, i))
    image = _image(shapes, places, list(left.values()))
    if image is not None:
        raise UsageError(image)
    if not left:
        raise UsageError(_only_batch(shapes, places))
    first = next(iter(left))
    if all(one.are_one(first, name) for name in left):
        return left[first]
    raise UsageError(_several(shapes, left, one))


def named(model: ir.Model, text: str) -> list[Place]:
    """The axes that ``audio.2`` or ``audio.2+mask.1`` names: the first, and others of its size.

    Raises:
        UsageError: There is no such input, or no such axis of it.
    """
    names = [x.name for x in model.graph.inputs]
    whole = [text] if text.rpartition(".")[0] in names else text.split("+")
    return [_place(model, x) for x in whole]


def symbolic(model: ir.Model, shapes: Shapes, given: ir.Value | None) -> Iterator[NamedPlace]:
    """The symbol of each dim of an input that is one, the input, and the axis."""
    for value in model.graph.inputs:
        # A mask or a length follows the input that it speaks of.
        if value is given or value.is_initializer():
            continue
        for i, dim in enumerate(shapes.dims(value) or ()):
            if name := plain(dim):
                yield name, value, i


def input_named(model: ir.Model, name: str, option: str) -> ir.Value:
    """The input of that name.

    Raises:
        UsageError: There is none.
    """
    found = next((x for x in model.graph.inputs if x.name == name), None)
    if found is None:
        have = ", ".join(repr(x.name) for x in model.graph.inputs)
        raise UsageError(f"ilens-mask: {option}={name}: the model has no such input; it has {have}")
    return found


def _place(model: ir.Model, text: str) -> Place:
    name, dot, number = text.rpartition(".")
    if not dot or not number.lstrip("-").isdigit():
        raise UsageError(f"ilens-mask: axis={text} names no axis; write INPUT.AXIS, as in audio.2")
    value = input_named(model, name, "axis")
    rank = len(value.shape) if value.shape is not None else 0
    if not -rank <= int(number) < rank:
        raise UsageError(f"ilens-mask: input {name!r} has {rank} axes, there is no axis {number}")
    return value, int(number) % rank


def _several(shapes: Shapes, left: dict[str, Place], one: OneSize) -> str:
    """That several names may be time, and each way in which a user can say which is."""
    firsts: list[NamedPlace] = []
    for name, place in left.items():
        if not any(one.are_one(first, name) for first, _, _ in firsts):
            firsts.append((name, *place))
    told = ", ".join(_placed(f"{_SPEC}{_text(value, i)}", value, i) for _, value, i in firsts)
    ways = [f"if one is padded alone, name it: {told}"]
    if len({value for _, value, _ in firsts}) == len(firsts):
        same = "+".join(_bare(value, i) for _, value, i in firsts)
        ways.insert(0, f"if they are of one size, name them together: {_SPEC}{quoted(same)}")
    for (_, x, i), (_, other, j) in itertools.permutations(firsts, 2):
        means = _meaning(other, j, shapes) if (shapes.rank(x) or 0) > 1 and x is not other else None
        if means is not None:
            says = f"{_SPEC}{_text(x, i)}:from={quoted(other.name or '')}"
            ways.append(f"if {other.name} {means}: {says}")
            break
    return (
        "ilens-mask: several dims may be time; nothing in the graph says that they are of one "
        f"size: {_listed(firsts)}; " + "; ".join(ways)
    )


def _image(shapes: Shapes, places: Sequence[NamedPlace], left: Sequence[Place]) -> str | None:
    """What to say of images, of which none but the batch, or both sides, may vary."""
    value = left[0][0] if left else places[0][1]
    dims = shapes.dims(value) or ()
    sides = _sides(dims)
    if sides is None:
        return None
    told = ", ".join(_own_name(value, i) or "?" if plain(x) else str(x) for i, x in enumerate(dims))
    is_ = f"ilens-mask: {value.name} is [{told}], as images are"
    vary = [plain(dims[i]) for i in sides]
    if not left and not any(vary) and all(x is value for _, x, _ in places):
        return (
            f"{is_}: only the batch may vary, and rows of a batch are no time, so there is nothing "
            "to pad. Of a clip, export the model with a dynamic time axis, or try -p thaw first"
        )
    if all(vary) and left == [(value, i) for i in sides]:
        fixed = quoted(_own_name(value, sides[0]) or _bare(value, sides[0]))
        return (
            f"{is_}: both sides may vary, and what is padded here is a clip, along one axis of "
            "time. Where the width is time, as in a line of text, fix the height, at 48 for "
            f"example: -p fix-dims:{fixed}=48,ilens-mask:axis={_text(value, sides[1])}"
        )
    return None


def _sides(dims: Sequence[Dim]) -> tuple[int, int] | None:
    """Where the height and the width of an image are: behind the channels, or before them."""
    if len(dims) == 4 and dims[3] in (1, 3, 4) and dims[1] not in (1, 3, 4):
        return 1, 2
    if len(dims) == 4 and dims[1] in (1, 3, 4):
        return 2, 3
    return (1, 2) if len(dims) == 3 and dims[0] in (3, 4) else None


def _own_name(value: ir.Value, axis: int) -> str:
    """What the model calls a dim; "" where it has no name of its own."""
    dim = value.shape[axis] if value.shape is not None else None
    return "" if dim is None or isinstance(dim, int) else str(dim.value or "")


def _meaning(value: ir.Value, axis: int, shapes: Shapes) -> str | None:
    """What an input may say of another one's rows."""
    rank, dtype = shapes.rank(value), shapes.dtype(value)
    if rank == 2 and axis == 1 and _may_be_mask(value, shapes):
        return "is 1 for what is valid and 0 behind it"
    if rank == 1 and dtype is not None and dtype.is_integer():
        return "is how much is valid of each row"
    return None


def _may_be_mask(value: ir.Value, shapes: Shapes) -> bool:
    """Whether an input could say what is valid: no tokens, which are looked up, and no curve."""
    if "mask" in (value.name or "").lower():
        return True
    dtype = shapes.dtype(value)
    looked_up = any(is_op(use.node, "Gather") and use.idx == 1 for use in value.uses())
    return dtype is not None and not dtype.is_floating_point() and not looked_up


def _placed(place: str, value: ir.Value, axis: int) -> str:
    """``place``, with the name that the model gives the dim; a symbol of ours says nothing."""
    name = _own_name(value, axis)
    return f"{place} ({name})" if name else place


def _only_batch(shapes: Shapes, places: Sequence[NamedPlace]) -> str:
    told = _listed(places)
    inputs = dict.fromkeys(value for _, value, _ in places)
    dims = ((value, i, x) for value in inputs for i, x in enumerate(shapes.dims(value) or ()))
    fixed = ", ".join(f"{_bare(value, i)} is {x}" for value, i, x in dims if isinstance(x, int))
    name = _text(places[0][1], places[0][2])
    return (
        f"ilens-mask: no dim besides the batch, {told}, may vary"
        + (f" ({fixed})" if fixed else "")
        + ", so no clip is padded. Export the model with a dynamic time axis, or try -p thaw "
        f"first; if that is no batch but time, name it: {_SPEC}{name}"
    )


def _listed(firsts: Sequence[NamedPlace]) -> str:
    return ", ".join(_placed(_bare(value, i), value, i) for _, value, i in firsts)


def _bare(value: ir.Value, axis: int) -> str:
    return f"{value.name}.{axis}"


def _text(value: ir.Value, axis: int) -> str:
    return quoted(_bare(value, axis))

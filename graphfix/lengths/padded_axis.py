"""Choice of the padded axis: the one that a user names, or the only possible one."""

import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.nodes import is_op
from graphfix.lengths.dim_aliases import DimAliases, single_symbol
from graphfix.spec.quoting import quote_name

Place = tuple[ir.Value, int]
# The symbol of a dim, the input, and the axis.
NamedPlace = tuple[str, ir.Value, int]

_SPEC = "-p ilens-mask:axis="


def find_time_axis(
    model: ir.Model, shapes: Shapes, length_input: ir.Value | None, aliases: DimAliases
) -> Place:
    """Return the only axis that can be time.

    Raises:
        UsageError: There is none, or several may be; the message says how to name it.
    """
    places = list(symbolic_axes(model, shapes, length_input))
    if not places:
        raise UsageError(
            "ilens-mask: every dim of every input is fixed, so nothing can be padded. Export the "
            "model with a dynamic time axis, or try -p thaw first"
        )
    candidates = _time_candidates(shapes, places, aliases)
    image = _image_message(shapes, places, list(candidates.values()))
    if image is not None:
        raise UsageError(image)
    if not candidates:
        raise UsageError(_only_batch_message(shapes, places))
    first = next(iter(candidates))
    if all(aliases.are_equal(first, name) for name in candidates):
        return candidates[first]
    raise UsageError(_ambiguity_message(shapes, candidates, aliases))


def _time_candidates(
    shapes: Shapes, places: Sequence[NamedPlace], aliases: DimAliases
) -> dict[str, Place]:
    """Return the first axis of each symbol that is no batch, nor the length of one."""
    # A matrix with one symbolic dim is frames by features; a batch comes with more axes.
    most = 2 if len({name for name, _, _ in places}) == 1 else 1
    batch = {name for name, x, i in places if i == 0 and (shapes.rank(x) or 0) > most}
    candidates: dict[str, Place] = {}
    for name, value, i in places:
        is_length = (
            i == 0 and shapes.rank(value) == 1 and any(aliases.are_equal(name, x) for x in batch)
        )
        if name not in batch and not is_length:
            candidates.setdefault(name, (value, i))
    return candidates


def parse_axes(model: ir.Model, text: str) -> list[Place]:
    """Parse ``audio.2`` or ``audio.2+mask.1``: the first axis, and others of its size.

    Raises:
        UsageError: There is no such input, or no such axis of it.
    """
    names = [x.name for x in model.graph.inputs]
    axis_texts = [text] if text.rpartition(".")[0] in names else text.split("+")
    return [_parse_axis(model, x) for x in axis_texts]


def symbolic_axes(
    model: ir.Model, shapes: Shapes, length_input: ir.Value | None
) -> Iterator[NamedPlace]:
    """Yield the symbol of each dim of an input that is one, the input, and the axis."""
    for value in model.graph.inputs:
        # A mask or a length follows the input that it speaks of.
        if value is length_input or value.is_initializer():
            continue
        for i, dim in enumerate(shapes.dims(value) or ()):
            if name := single_symbol(dim):
                yield name, value, i


def find_input(model: ir.Model, name: str, option: str) -> ir.Value:
    """Return the input of that name.

    Raises:
        UsageError: There is none.
    """
    value = next((x for x in model.graph.inputs if x.name == name), None)
    if value is None:
        have = ", ".join(repr(x.name) for x in model.graph.inputs)
        raise UsageError(f"ilens-mask: {option}={name}: the model has no such input; it has {have}")
    return value


def _parse_axis(model: ir.Model, text: str) -> Place:
    name, dot, number = text.rpartition(".")
    if not dot or not number.lstrip("-").isdigit():
        raise UsageError(f"ilens-mask: axis={text} names no axis; write INPUT.AXIS, as in audio.2")
    value = find_input(model, name, "axis")
    rank = len(value.shape) if value.shape is not None else 0
    if not -rank <= int(number) < rank:
        raise UsageError(f"ilens-mask: input {name!r} has {rank} axes, there is no axis {number}")
    return value, int(number) % rank


def _ambiguity_message(shapes: Shapes, candidates: dict[str, Place], aliases: DimAliases) -> str:
    """Return a message that lists the possible time axes, and how to name the right one."""
    firsts: list[NamedPlace] = []
    for name, place in candidates.items():
        if not any(aliases.are_equal(first, name) for first, _, _ in firsts):
            firsts.append((name, *place))
    options = ", ".join(
        _label_with_name(f"{_SPEC}{_quoted_axis(value, i)}", value, i) for _, value, i in firsts
    )
    advice = [f"if one is padded alone, name it: {options}"]
    if len({value for _, value, _ in firsts}) == len(firsts):
        same = "+".join(_axis_text(value, i) for _, value, i in firsts)
        advice.insert(0, f"if they are of one size, name them together: {_SPEC}{quote_name(same)}")
    for (_, x, i), (_, partner, j) in itertools.permutations(firsts, 2):
        means = (
            _length_meaning(partner, j, shapes)
            if (shapes.rank(x) or 0) > 1 and x is not partner
            else None
        )
        if means is not None:
            says = f"{_SPEC}{_quoted_axis(x, i)}:from={quote_name(partner.name or '')}"
            advice.append(f"if {partner.name} {means}: {says}")
            break
    return (
        "ilens-mask: several dims may be time; nothing in the graph says that they are of one "
        f"size: {_list_axes(firsts)}; " + "; ".join(advice)
    )


def _image_message(
    shapes: Shapes, places: Sequence[NamedPlace], candidates: Sequence[Place]
) -> str | None:
    """Return a message for an image of which only the batch, or both sides, may vary; or None."""
    value = candidates[0][0] if candidates else places[0][1]
    dims = shapes.dims(value) or ()
    sides = _image_sides(dims)
    if sides is None:
        return None
    is_image = f"ilens-mask: {value.name} is [{_declared_dims(value, dims)}], as images are"
    side_symbols = [single_symbol(dims[i]) for i in sides]
    only_value = all(x is value for _, x, _ in places)
    if not candidates and not any(side_symbols) and only_value:
        return (
            f"{is_image}: only the batch may vary, and rows of a batch are no time, so there is "
            "nothing to pad. Of a clip, export the model with a dynamic time axis, or try -p thaw "
            "first"
        )
    if all(side_symbols) and candidates == [(value, i) for i in sides]:
        height = quote_name(_declared_name(value, sides[0]) or _axis_text(value, sides[0]))
        return (
            f"{is_image}: both sides may vary, and what is padded here is a clip, along one axis "
            "of time. Where the width is time, as in a line of text, fix the height, at 48 for "
            f"example: -p fix-dims:{height}=48,ilens-mask:axis={_quoted_axis(value, sides[1])}"
        )
    return None


def _declared_dims(value: ir.Value, dims: Sequence[Dim]) -> str:
    """List the dims of an input as the model names them."""
    return ", ".join(
        _declared_name(value, i) or "?" if single_symbol(x) else str(x) for i, x in enumerate(dims)
    )


def _image_sides(dims: Sequence[Dim]) -> tuple[int, int] | None:
    """Return where the height and the width of an image are: behind the channels, or before."""
    if len(dims) == 4 and dims[3] in (1, 3, 4) and dims[1] not in (1, 3, 4):
        return 1, 2
    if len(dims) == 4 and dims[1] in (1, 3, 4):
        return 2, 3
    return (1, 2) if len(dims) == 3 and dims[0] in (3, 4) else None


def _declared_name(value: ir.Value, axis: int) -> str:
    """Return what the model calls a dim; "" where it has no name of its own."""
    dim = value.shape[axis] if value.shape is not None else None
    return "" if dim is None or isinstance(dim, int) else str(dim.value or "")


def _length_meaning(value: ir.Value, axis: int, shapes: Shapes) -> str | None:
    """Return what an input may tell about the rows of another one, in words; or None."""
    rank, dtype = shapes.rank(value), shapes.dtype(value)
    if rank == 2 and axis == 1 and _may_be_mask(value, shapes):
        return "is 1 for what is valid and 0 behind it"
    if rank == 1 and dtype is not None and dtype.is_integer():
        return "is how much is valid of each row"
    return None


def _may_be_mask(value: ir.Value, shapes: Shapes) -> bool:
    """Return whether an input could be a mask: no tokens, which are looked up, and no curve."""
    if "mask" in (value.name or "").lower():
        return True
    dtype = shapes.dtype(value)
    looked_up = any(is_op(use.node, "Gather") and use.idx == 1 for use in value.uses())
    return dtype is not None and not dtype.is_floating_point() and not looked_up


def _label_with_name(place: str, value: ir.Value, axis: int) -> str:
    """Return ``place`` with the model's name of the dim, unless the symbol is our own."""
    name = _declared_name(value, axis)
    return f"{place} ({name})" if name else place


def _only_batch_message(shapes: Shapes, places: Sequence[NamedPlace]) -> str:
    batch_text = _list_axes(places)
    inputs = dict.fromkeys(value for _, value, _ in places)
    dims = ((value, i, x) for value in inputs for i, x in enumerate(shapes.dims(value) or ()))
    fixed = ", ".join(
        f"{_axis_text(value, i)} is {x}" for value, i, x in dims if isinstance(x, int)
    )
    name = _quoted_axis(places[0][1], places[0][2])
    return (
        f"ilens-mask: no dim besides the batch, {batch_text}, may vary"
        + (f" ({fixed})" if fixed else "")
        + ", so no clip is padded. Export the model with a dynamic time axis, or try -p thaw "
        f"first; if that is no batch but time, name it: {_SPEC}{name}"
    )


def _list_axes(firsts: Sequence[NamedPlace]) -> str:
    return ", ".join(_label_with_name(_axis_text(value, i), value, i) for _, value, i in firsts)


def _axis_text(value: ir.Value, axis: int) -> str:
    return f"{value.name}.{axis}"


def _quoted_axis(value: ir.Value, axis: int) -> str:
    return quote_name(_axis_text(value, axis))

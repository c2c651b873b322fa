"""What is known of a model that continues its states, and which containers are made of it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.caches.growth import GrowingState, growing, unify
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from graphfix.facts import shapes
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, equal, symbols_of
from graphfix.facts.symbolic.sums import window_of
from graphfix.feeds.input import symbols_of as symbols_in
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import State, states_of
from graphfix.shipped.manifest import InputPort, Port
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.first_call import FirstCall
from graphfix.shipping.model_facts import input_port, require_sizes, sizes_by_group
from graphfix.shipping.valid_sizes import text_of, type_of
from graphfix.spec.quoting import quoted


@dataclass(frozen=True)
class StreamPlan:
    """What is known of a model that continues its states.

    Attributes:
        signature: Its inputs, states among them.
        new: The dim of what each step adds.
        batch: The dim of rows; None if there is none.
        caches: The dims that are lengths of caches, and grow.
        held: The dims of caches that do not grow.
        windows: The entries that the model itself keeps of a cache, of dims where it cuts them.
        states: What is fed back.
        inputs: The inputs as a manifest has them.
        outputs: The outputs as a manifest has them.
        containers: The sizes of each container: small caches first, then few new entries.
        names: The model's own names of each dim.
        first: What only the first call of the original computes.
    """

    signature: Signature
    new: str
    batch: str | None
    caches: tuple[str, ...]
    held: tuple[str, ...]
    windows: Mapping[str, int]
    states: tuple[GrowingState, ...]
    inputs: tuple[InputPort, ...]
    outputs: tuple[Port, ...]
    containers: tuple[Mapping[str, int], ...]
    names: Mapping[str, tuple[str, ...]]
    first: FirstCall | None = None


def continues(model: ir.Model) -> bool:
    """Whether a model has states that grow from run to run."""
    if not states_of(model):
        return False
    copy = model.clone()
    unify(copy)
    return any(x.axis is not None for x in growing(copy, shapes.infer(copy, usual=True)))


def plan(
    model: ir.Model, wanted: ContainerSpec, cache: Sequence[int], told: Iterable[State] = ()
) -> StreamPlan:
    """Read a model, and choose its containers.

    Args:
        model: The model, its dims as :func:`graphfix.caches.growth.unify` leaves them.
        wanted: The sizes of its dims but those of the caches.
        cache: The sizes of the caches.
        told: States that the user names.

    Raises:
        UsageError: A size is missing, or the model continues no states.
    """
    told = tuple(told)
    _require_states(model, told)
    signature = Signature(model)
    known = shapes.infer(model, usual=True)
    states, idle = _fed_back(model, known, growing(model, known, told))
    if not states:
        raise UsageError(
            "no input of the model is told to be a state that an output continues; name them, "
            "--state past_key_0=present_key_0"
        )
    grows = tuple(dict.fromkeys(x.dim for x in states if x.dim))
    fed_back = {x.input for x in states}
    free = [x for x in signature.inputs if x.name not in fed_back]
    groups = tuple(dict.fromkeys(signature.group(s) for s in signature.symbols()))
    groups = tuple(x for x in groups if x not in signature.derived)
    times = [x for x in signature.times if x not in grows]
    tokens = [x for x in free if x.role.kind in ("tokens", "data")]
    along = {signature.group(s) for s in symbols_in(tokens)}
    new = next((x for x in times if x in along), None)
    if new is None:
        raise UsageError(
            "no input besides the states has a symbolic dim, so nothing says how many entries a "
            "step adds"
        )
    windows = _windows(model, known, states)
    sizes = _sizes(signature, wanted, new, [x for x in groups if x not in grows])
    held = tuple(x for x in groups if x not in (new, signature.batch, *grows))
    containers = tuple(
        {**{x: n[0] for x, n in sizes.items()}, **level, new: size}
        for level, size in itertools.product(_levels(grows, windows, cache), sizes[new])
    )
    rename = {s: signature.group(s) for s in signature.symbols()}
    return StreamPlan(
        signature=signature,
        new=new,
        batch=signature.batch,
        caches=grows,
        held=held,
        windows=windows,
        states=states,
        inputs=tuple(input_port(signature, x, rename) for x in signature.inputs),
        outputs=_outputs(model, known, signature, {x.output for x in states}, grows, idle),
        containers=containers,
        names={g: tuple(map(signature.user_name, signature.members(g))) for g in groups},
    )


def _require_states(model: ir.Model, told: Sequence[State]) -> None:
    inputs, outputs = ({x.name for x in y} for y in (model.graph.inputs, model.graph.outputs))
    for one in told:
        for name, known, kind in ((one.input, inputs, "input"), (one.output, outputs, "output")):
            if name not in known:
                raise UsageError(
                    f"--state {one.input}={one.output}: there is no {kind} {name!r}; "
                    f"there are {', '.join(sorted(map(str, known)))}"
                )


def _fed_back(
    model: ir.Model, known: Shapes, states: Sequence[GrowingState]
) -> tuple[tuple[GrowingState, ...], set[str]]:
    """The states that a step can be fed again, and the outputs of the others.

    Of a merged decoder the branch that continues caches gives nothing for those of the encoder:
    they are what the first call of the original gave, and are fed as they are.
    """
    values = {x.name: known.dims(x) for x in (*model.graph.inputs, *model.graph.outputs)}

    def stays(one: GrowingState) -> bool:
        before, after = values[one.input], values[one.output]
        same = before is not None and after is not None and len(before) == len(after)
        return one.axis is not None or (same and all(map(equal, before or (), after or ())))

    kept = tuple(x for x in states if stays(x))
    return kept, {x.output for x in states} - {x.output for x in kept}


def _windows(model: ir.Model, known: Shapes, states: Sequence[GrowingState]) -> dict[str, int]:
    """The number of entries that the model itself keeps of caches that it cuts."""
    outputs = {x.name: known.dims(x) for x in model.graph.outputs}
    found: dict[str, int] = {}
    for state in states:
        if state.axis is None:
            continue
        cut = window_of((outputs[state.output] or ())[state.axis], state.dim)
        if cut is not None:
            found[state.dim] = min(cut[1], found.get(state.dim, cut[1]))
    return found


def _levels(
    grows: Sequence[str], windows: Mapping[str, int], cache: Sequence[int]
) -> list[dict[str, int]]:
    left = [x for x in grows if x not in windows]
    if left and not cache:
        raise UsageError(
            f"the model continues a cache ({', '.join(left)} grows from run to run), which needs "
            "a size: say --cache 256, or several, --cache 256,1024"
        )
    if left or not grows:
        return [{**windows, **dict.fromkeys(left, n)} for n in sorted({*cache})] or [{}]
    return [dict(windows)]


def _sizes(
    signature: Signature, wanted: ContainerSpec, new: str, groups: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """The sizes of the dims but those of caches."""
    sizes = sizes_by_group(signature, wanted, dict.fromkeys(("S", "T"), lambda: new))
    for group in sizes.keys() - {*groups, signature.batch}:
        name = signature.user_name(group)
        raise UsageError(f"--container {name}: that is the length of a cache; say --cache SIZE")

    def example(group: str) -> str:
        return f"{quoted(signature.user_name(group))}=" + ("1,16" if group == new else "SIZE")

    require_sizes(signature, sizes, groups, new, example)
    return sizes


def _outputs(
    model: ir.Model,
    known: Shapes,
    signature: Signature,
    states: set[str],
    grows: Sequence[str],
    idle: set[str],
) -> tuple[Port, ...]:
    names = set(signature.symbols())
    rename = {s: signature.group(s) for s in names}
    plain = {} if all(map(known.is_known, model.graph.outputs)) else _plainly(model)
    found = []
    for value in model.graph.outputs:
        if value.name in idle:
            continue
        dims = plain.get(value.name or "", known.dims(value))
        if dims is None or not all(shapes.is_named(x) and symbols_of(x) <= names for x in dims):
            raise UsageError(
                f"the shape of the output {value.name!r} cannot be inferred, so its valid part is "
                "unknown; leave it out, -p keep-output:..."
            )
        if value.name not in states and any(symbols_of(x) & set(grows) for x in dims):
            raise UsageError(
                f"the output {value.name!r} {[*map(str, dims)]} grows with the caches and is no "
                "state; name the input that it continues, --state INPUT=OUTPUT"
            )
        rows = signature.row_axis(dims)
        kind = type_of(value.dtype or ir.DataType.FLOAT)
        found.append(Port(value.name or "", kind, tuple(text_of(d, rename) for d in dims), rows))
    return tuple(found)


def _plainly(model: ir.Model) -> dict[str, tuple[Dim, ...] | None]:
    """The dims of the outputs as far as the repaired model tells more of them."""
    copy = model.clone()
    pipeline.run(copy, "directml")
    known = shapes.infer(copy, usual=True)
    return {x.name or "": known.dims(x) for x in copy.graph.outputs}

"""The plan of a model that continues its states: its dims, states and containers."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.cache_axes.buffers import buffer_size, lengths_in_sums
from graphfix.cache_axes.growth import (
    GrowingState,
    find_growing_states,
    find_growing_states_by_shape,
    unify_dims,
)
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from graphfix.facts import shapes
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, equal_dims, symbols_of
from graphfix.facts.symbolic.sums import subtract_dims, window_limit
from graphfix.feeds.input import all_symbols, single_symbol
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import (
    StatePair,
    find_states,
    unpaired_states,
)
from graphfix.shipped.manifest import InputPort, Port
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.first_call import FirstCall
from graphfix.shipping.model_facts import input_port_of, require_sizes, sizes_by_group
from graphfix.shipping.valid_sizes import dim_text, ort_type_of
from graphfix.spec.quoting import quote_name
from graphfix.wording import plural


@dataclass(frozen=True)
class StreamPlan:
    """The plan of a model that continues its states.

    Attributes:
        signature: Its inputs, states among them.
        new: The dim of the entries that each step adds; a name of its own where no input has such
            a dim, since each step adds as many.
        batch: The dim of rows; None if there is none.
        caches: The dims that are lengths of growing caches.
        fixed_caches: The dims of caches that do not grow.
        windows: How many entries the model itself keeps of a cache, of dims where it cuts them.
        states: The states that are fed back.
        inputs: The inputs as a manifest has them.
        outputs: The outputs as a manifest has them.
        containers: The sizes of each container: small caches first, then few new entries.
        names: The model's own names of each dim.
        first: What only the first call of the original computes.
        remarks: Which states were inferred from shape alone, and what looks like one and is none.
        counts_entries: Whether inputs that are told a place, as an offset, take the number of
            earlier entries.
        counted: Those of ``caches`` that no state has, since caches are buffers of one size: a mask
            alone is as long.
    """

    signature: Signature
    new: str
    batch: str | None
    caches: tuple[str, ...]
    fixed_caches: tuple[str, ...]
    windows: Mapping[str, int]
    states: tuple[GrowingState, ...]
    inputs: tuple[InputPort, ...]
    outputs: tuple[Port, ...]
    containers: tuple[Mapping[str, int], ...]
    names: Mapping[str, tuple[str, ...]]
    first: FirstCall | None = None
    remarks: tuple[str, ...] = ()
    counts_entries: bool = True
    counted: tuple[str, ...] = ()

    @property
    def step_is_fixed(self) -> bool:
        """Return whether each step adds as many entries, since no dim of its inputs varies."""
        return self.new not in self.signature.symbols()


def has_growing_states(model: ir.Model) -> bool:
    """Return whether a model has states that grow from run to run."""
    if not find_states(model):
        return False
    copy = model.clone()
    unify_dims(copy)
    states = find_growing_states(copy, shapes.infer(copy, usual=True))
    return any(x.axis is not None for x in states) or bool(lengths_in_sums(Signature(copy)))


def plan_stream(
    model: ir.Model,
    spec: ContainerSpec,
    cache: Sequence[int],
    user_states: Iterable[StatePair] = (),
    axis: str = "",
    declared: Mapping[str, tuple[Dim, ...]] | None = None,
) -> StreamPlan:
    """Read a model, and choose its containers.

    Args:
        model: The model, its dims as :func:`graphfix.cache_axes.growth.unify_dims` leaves them.
        spec: The sizes of its dims but those of the caches.
        cache: The sizes of the caches.
        user_states: States that the user names.
        axis: The dim of the entries that each step adds, if several could be; "" if none is named.
        declared: What the exporter says of the outputs, in the names of the model's dims: it counts
            where nothing can be inferred, and is proved by running.

    Raises:
        UsageError: A size is missing, or the model continues no states.
    """
    user_states, declared = tuple(user_states), declared or {}
    _require_state_ports(model, user_states)
    signature = Signature(model)
    inferred = shapes.infer(model, usual=True)
    growing_states = find_growing_states(model, inferred, user_states)
    by_shape = find_growing_states_by_shape(model, inferred, growing_states)
    growing_states = _in_order_of_inputs(model, (*growing_states, *by_shape))
    states, idle = _split_states(model, inferred, growing_states, declared)
    _require_fed_back(model, inferred, user_states, idle)
    if not states:
        raise UsageError(_no_states_message(model, inferred))
    counted = lengths_in_sums(signature)
    cache_dims = tuple(dict.fromkeys((*(x.dim for x in states if x.dim), *counted)))
    outputs = {x.name: inferred.dims(x) for x in model.graph.outputs}
    new = _dim_of_new_entries(signature, states, cache_dims, outputs, axis)
    step = 0 if new else _fixed_step(signature, states, outputs)
    new = new or _unused_name("step", signature)
    groups = tuple(dict.fromkeys(signature.group_of(s) for s in signature.symbols()))
    groups = tuple(x for x in groups if x not in signature.derived)
    windows = _cache_windows(model, inferred, states)
    other_groups = [x for x in groups if x not in cache_dims]
    room = buffer_size(model)
    rooms = dict.fromkeys(counted, room) if room else {}
    remarks = _state_remarks(model, states, by_shape) + _room_remarks(rooms, cache)
    if step:
        spec, unmet = _without_steps(signature, spec, step)
        remarks += unmet
    sizes = _step_sizes(signature, spec, new, other_groups)
    sizes |= {new: (step,)} if step else {}
    names = {g: tuple(map(signature.user_name, signature.symbols_in(g))) for g in groups}
    rename = {s: signature.group_of(s) for s in signature.symbols()}
    return StreamPlan(
        signature=signature,
        new=new,
        batch=signature.batch,
        caches=cache_dims,
        fixed_caches=tuple(x for x in groups if x not in (new, signature.batch, *cache_dims)),
        windows=windows,
        states=states,
        inputs=tuple(input_port_of(signature, x, rename) for x in signature.inputs),
        outputs=_output_ports(
            model,
            inferred,
            signature,
            _dims_of_states(model, inferred, states),
            cache_dims,
            idle,
            declared,
        ),
        containers=_combine_sizes(sizes, new, _cache_levels(cache_dims, windows | rooms, cache)),
        names=names | ({new: (new,)} if step else {}),
        remarks=remarks,
        counted=counted,
    )


def _room_remarks(rooms: Mapping[str, int], cache: Sequence[int]) -> tuple[str, ...]:
    """Return that a size of caches is not used where the model has buffers of another."""
    unused = sorted({*cache} - {*rooms.values()}) if rooms else []
    text = ",".join(map(str, unused))
    room = max(rooms.values(), default=0)
    reason = f"the caches are buffers that hold {room} entries, so --cache {text} is not used"
    return (reason,) if unused else ()


def _in_order_of_inputs(
    model: ir.Model, states: Iterable[GrowingState]
) -> tuple[GrowingState, ...]:
    order = [x.name for x in model.graph.inputs]
    return tuple(sorted(states, key=lambda x: order.index(x.input)))


def _no_states_message(model: ir.Model, inferred: Shapes) -> str:
    """Return that no state was found, with the inputs that could be one and outputs for them."""
    ports = [x for x in model.graph.outputs if x.name]
    looking = unpaired_states(model, ())
    example = f"{quote_name(looking[0])}=OUTPUT" if looking else "past_key_0=present_key_0"
    seen = f"{', '.join(map(quote_name, looking))} may be; " if looking else ""
    outputs = ", ".join(f"{x.name} {_type_text(x, inferred)}" for x in ports)
    return (
        f"no input of the model is told to be a state that an output continues; {seen}name them, "
        f"--state {example}; there are the outputs {outputs}"
    )


def _state_remarks(
    model: ir.Model, states: Sequence[GrowingState], by_shape: Sequence[GrowingState]
) -> tuple[str, ...]:
    """Return which states were inferred from shape alone, and which inputs only look like one."""
    remarks = []
    if by_shape:
        pairs = ", ".join(f"{x.input} from {x.output}" for x in by_shape)
        remarks.append(
            f"states inferred from order and shape alone: {pairs}; if that is wrong, say "
            f"--state {quote_name(by_shape[0].input)}=OUTPUT"
        )
    free = unpaired_states(model, [StatePair(x.input, x.output) for x in states])
    if free:
        remarks.append(
            f"no states, so each step is fed them: {', '.join(free)}; if an output continues one, "
            f"say --state {quote_name(free[0])}=OUTPUT"
        )
    return tuple(remarks)


def _dim_of_new_entries(
    signature: Signature,
    states: Sequence[GrowingState],
    cache_dims: Sequence[str],
    outputs: Mapping[str | None, Sequence[Dim] | None],
    axis: str,
) -> str:
    """Return the dim of the entries that each step adds; "" if each adds as many.

    It is what caches grow by. Token ids are new in each step; data beside them, as of an encoder,
    may stay as they are.

    Raises:
        UsageError: ``axis`` is not "", and names no such dim.
    """
    fed_back = {x.input for x in states}
    free = [x for x in signature.inputs if x.name not in fed_back]
    tokens = [x for x in free if x.role.kind in ("tokens", "data")]
    token_groups = {signature.group_of(s) for s in all_symbols(tokens)} - {*cache_dims}
    candidates = [x for x in signature.times if x in token_groups]
    if axis:
        return _named_group(signature, axis, candidates)
    for growth in _growths(states, outputs):
        if growth in candidates:
            return str(growth)
        if isinstance(growth, int) and growth > 0:
            return ""
    ids = [x for x in tokens if x.role.kind == "tokens"]
    id_groups = {signature.group_of(s) for s in all_symbols(ids)}
    of_ids = next((x for x in candidates if x in id_groups), None)
    if of_ids is None and any(len(x.dims) > 1 for x in ids):
        # Ids of a fixed number beside an encoder's output: only frames come out again as frames.
        continued = _groups_of_outputs(signature, states, outputs)
        candidates = [x for x in candidates if x in continued]
    return of_ids or next(iter(candidates), "")


def _named_group(signature: Signature, axis: str, candidates: Sequence[str]) -> str:
    """Return the group of the dim that the user names as that of the new entries.

    Raises:
        UsageError: It is none of the candidates.
    """
    symbol = signature.symbol_of(axis)
    group = None if symbol is None else signature.group_of(symbol)
    if group is None or group not in candidates:
        names = ", ".join(map(signature.user_name, candidates)) or "none"
        raise UsageError(f"--axis {axis}: no step adds entries to that dim; these may be: {names}")
    return group


def _groups_of_outputs(
    signature: Signature,
    states: Sequence[GrowingState],
    outputs: Mapping[str | None, Sequence[Dim] | None],
) -> set[str]:
    """Return the groups of the dims of what comes out besides the states."""
    state_outputs = {x.output for x in states}
    dims = [d for name, dims in outputs.items() if name not in state_outputs for d in dims or ()]
    names = {s for d in dims for s in symbols_of(d)} & {*signature.symbols()}
    return {signature.group_of(s) for s in names}


def _growths(
    states: Sequence[GrowingState], outputs: Mapping[str | None, Sequence[Dim] | None]
) -> Iterator[int | str | None]:
    """Yield by how many entries each cache grows in a step: a number, or the name of a dim."""
    for state in states:
        dims = outputs.get(state.output)
        if state.axis is not None and dims is not None:
            size = dims[state.axis]
            cut = window_limit(size, state.dim)
            growth = subtract_dims(cut[0] if cut else size, ir.SymbolicDim(state.dim))
            yield growth if isinstance(growth, int) else single_symbol(growth)


def _fixed_step(
    signature: Signature,
    states: Sequence[GrowingState],
    outputs: Mapping[str | None, Sequence[Dim] | None],
) -> int:
    """Return how many entries each step adds to a model that takes as many in each."""
    growth = next((x for x in _growths(states, outputs) if isinstance(x, int) and x > 0), None)
    ids = (x.dims[-1] for x in signature.inputs if x.role.kind == "tokens" and len(x.dims) > 1)
    return growth or next((x for x in ids if isinstance(x, int)), 1)


def _unused_name(name: str, signature: Signature) -> str:
    while signature.symbol_of(name) is not None:
        name += "_"
    return name


def _without_steps(
    signature: Signature, spec: ContainerSpec, step: int
) -> tuple[ContainerSpec, tuple[str, ...]]:
    """Return the sizes without those of new entries, and what of them cannot be had."""
    sizes = dict(spec.sizes)
    remarks = []
    for name in ("S", "T"):
        if name in sizes and signature.symbol_of(name) is None:
            wanted = ",".join(map(str, sizes.pop(name)))
            remarks.append(
                f"each step adds {plural(step, 'entry', 'entries')}, since no dim of what it takes "
                f"varies: --container {name}={wanted} is one container"
            )
    return replace(spec, sizes=sizes), tuple(remarks)


def _combine_sizes(
    sizes: Mapping[str, Sequence[int]], new: str, levels: Sequence[Mapping[str, int]]
) -> tuple[Mapping[str, int], ...]:
    """Return a container for each size of the caches and each number of new entries."""
    first_sizes = {name: sizes_of_dim[0] for name, sizes_of_dim in sizes.items()}
    return tuple(
        {**first_sizes, **level, new: size} for level, size in itertools.product(levels, sizes[new])
    )


def _require_state_ports(model: ir.Model, user_states: Sequence[StatePair]) -> None:
    inputs, outputs = ({x.name for x in y} for y in (model.graph.inputs, model.graph.outputs))
    repeated = {x.input for x in user_states if [y.input for y in user_states].count(x.input) > 1}
    if repeated:
        raise UsageError(f"--state {min(repeated)}: is named twice; it continues one output")
    for state in user_states:
        for name, names, kind in (
            (state.input, inputs, "input"),
            (state.output, outputs, "output"),
        ):
            if name not in names:
                raise UsageError(
                    f"--state {state.input}={state.output}: there is no {kind} {name!r}; "
                    f"there are {', '.join(sorted(map(str, names)))}"
                )


def _split_states(
    model: ir.Model,
    inferred: Shapes,
    states: Sequence[GrowingState],
    declared: Mapping[str, tuple[Dim, ...]],
) -> tuple[tuple[GrowingState, ...], set[str]]:
    """Return the states that a step can be fed again, and the outputs of the others.

    Of a merged decoder the branch that continues caches gives nothing for those of the encoder:
    they are what the first call of the original gave, and are fed as they are.
    """
    values = {x.name: inferred.dims(x) for x in (*model.graph.inputs, *model.graph.outputs)}

    def is_fed_back(state: GrowingState) -> bool:
        before, after = values[state.input], values[state.output]
        same = before is not None and after is not None and len(before) == len(after)
        said = declared.get(state.output, ())
        said = said if len(said) == len(after or ()) else after or ()
        # What comes out of a buffer is as large as what goes in, as is declared.
        return state.axis is not None or (
            same
            and all(
                equal_dims(x, y) or x == z
                for x, y, z in zip(before or (), after or (), said, strict=True)
            )
        )

    fed_back = tuple(x for x in states if is_fed_back(x))
    return fed_back, {x.output for x in states} - {x.output for x in fed_back}


def _require_fed_back(
    model: ir.Model, inferred: Shapes, user_states: Iterable[StatePair], idle: set[str]
) -> None:
    """Raise a usage error for a state that the user names and no step can be fed."""
    values = {x.name: x for x in (*model.graph.inputs, *model.graph.outputs)}
    for state in user_states:
        before, after = values[state.input], values[state.output]
        if state.output not in idle and before.dtype == after.dtype:
            continue
        shapes_text = [_type_text(x, inferred) for x in (before, after)]
        raise UsageError(
            f"--state {state.input}={state.output}: the output {state.output!r} is "
            f"{shapes_text[1]} and the input {state.input!r} {shapes_text[0]}, so the next step "
            "cannot be fed what this one returns"
        )


def _type_text(value: ir.Value, inferred: Shapes) -> str:
    """Return ``float[1,B,8]``; a shape that is not known is said to be."""
    dims = inferred.dims(value)
    shape = " of a shape that is not known" if dims is None else f"[{','.join(map(str, dims))}]"
    return f"{'?' if value.dtype is None else value.dtype.name.lower()}{shape}"


def _cache_windows(
    model: ir.Model, inferred: Shapes, states: Sequence[GrowingState]
) -> dict[str, int]:
    """Return how many entries the model itself keeps of caches that it cuts."""
    outputs = {x.name: inferred.dims(x) for x in model.graph.outputs}
    windows: dict[str, int] = {}
    for state in states:
        if state.axis is None:
            continue
        cut = window_limit((outputs[state.output] or ())[state.axis], state.dim)
        if cut is not None:
            windows[state.dim] = min(cut[1], windows.get(state.dim, cut[1]))
    return windows


def _cache_levels(
    grows: Sequence[str], windows: Mapping[str, int], cache: Sequence[int]
) -> list[dict[str, int]]:
    unsized = [x for x in grows if x not in windows]
    if unsized and not cache:
        raise UsageError(
            f"the model continues a cache ({', '.join(unsized)} grows from run to run), "
            "which needs a size: say --cache 256, or several, --cache 256,1024"
        )
    if unsized or not grows:
        return [{**windows, **dict.fromkeys(unsized, n)} for n in sorted({*cache})] or [{}]
    return [dict(windows)]


def _step_sizes(
    signature: Signature, spec: ContainerSpec, new: str, groups: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the dims but those of caches."""
    sizes = sizes_by_group(signature, spec, dict.fromkeys(("S", "T"), lambda: new))
    for group in sizes.keys() - {*groups, signature.batch}:
        name = signature.user_name(group)
        raise UsageError(f"--container {name}: that is the length of a cache; say --cache SIZE")

    def example_sizes(group: str) -> str:
        return f"{quote_name(signature.user_name(group))}=" + ("1,16" if group == new else "SIZE")

    require_sizes(signature, sizes, groups, new, example_sizes)
    return sizes


def _output_ports(
    model: ir.Model,
    inferred: Shapes,
    signature: Signature,
    states: Mapping[str, tuple[Dim, ...] | None],
    grows: Sequence[str],
    idle: set[str],
    declared: Mapping[str, tuple[Dim, ...]],
) -> tuple[Port, ...]:
    names = set(signature.symbols())
    rename = {s: signature.group_of(s) for s in names}
    repaired_dims = (
        {} if all(map(inferred.has_known_dims, model.graph.outputs)) else _dims_after_repair(model)
    )
    ports = []
    for value in model.graph.outputs:
        if value.name in idle:
            continue
        dims = repaired_dims.get(value.name or "", inferred.dims(value))
        dims = _known_or_declared(dims, declared.get(value.name or ""), names)
        dims = states.get(value.name or "") or dims
        dims = _require_known_dims(value, dims, names)
        if value.name not in states and any(symbols_of(x) & set(grows) for x in dims):
            raise UsageError(
                f"the output {value.name!r} {[*map(str, dims)]} grows with the caches and is no "
                "state; name the input that it continues, --state INPUT=OUTPUT"
            )
        rows = signature.row_axis(dims)
        kind = ort_type_of(value.dtype or ir.DataType.FLOAT)
        ports.append(Port(value.name or "", kind, tuple(dim_text(d, rename) for d in dims), rows))
    return tuple(ports)


def _dims_of_states(
    model: ir.Model, inferred: Shapes, states: Iterable[GrowingState]
) -> dict[str, tuple[Dim, ...] | None]:
    """Return the dims of the outputs of states: those of the inputs, and None if they grow."""
    inputs = {x.name: inferred.dims(x) for x in model.graph.inputs}
    return {x.output: inputs[x.input] if x.axis is None else None for x in states}


def _known_or_declared(
    dims: tuple[Dim, ...] | None, declared: tuple[Dim, ...] | None, names: set[str]
) -> tuple[Dim, ...] | None:
    """Return the dims of an output, those that are not inferred as the exporter has them."""
    if declared is None or (dims is not None and len(dims) != len(declared)):
        return dims
    return tuple(
        dim if shapes.is_known_dim(dim) and symbols_of(dim) <= names else other
        for dim, other in zip(dims or declared, declared, strict=True)
    )


def _require_known_dims(
    value: ir.Value, dims: tuple[Dim, ...] | None, names: set[str]
) -> tuple[Dim, ...]:
    """Return the dims of an output, all of them known in the names of the inputs' dims.

    Raises:
        UsageError: They are not.
    """
    if dims is None or not all(shapes.is_known_dim(x) and symbols_of(x) <= names for x in dims):
        raise UsageError(
            f"the shape of the output {value.name!r} cannot be inferred, so its valid part is "
            "unknown; leave it out, -p keep-output:..."
        )
    return dims


def _dims_after_repair(model: ir.Model) -> dict[str, tuple[Dim, ...] | None]:
    """Return the dims of the outputs as inferred in the repaired model."""
    copy = model.clone()
    pipeline.run(copy, "directml")
    inferred = shapes.infer(copy, usual=True)
    return {x.name or "": inferred.dims(x) for x in copy.graph.outputs}

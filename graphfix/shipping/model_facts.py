"""What shipping has to know of a model: the padded axis, masks or lengths, and its shapes.

Dims are written in the names that the containers have sizes for: one for each group of dims that
are always equal, however many names the exporter gave them.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError, UsageError
from graphfix.facts.forced_sizes import forced_texts
from graphfix.feeds.batch_axes import says_batch
from graphfix.feeds.clips import ClipMaker, find_padded_group
from graphfix.feeds.dim_groups import TIES
from graphfix.feeds.input import Input, single_symbol, symbols
from graphfix.feeds.signature import Signature
from graphfix.probing.unpadded import Clip, clip_lengths_for
from graphfix.runtime.compared_session import open_original
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.manifest import Axis, InputPort, Port
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.derived_dims import (
    drop_derived_sizes,
    find_derived_dims,
    write_derived_dims,
)
from graphfix.shipping.valid_sizes import Sizing, dim_text, ort_type_of, output_ports_of
from graphfix.spec.quoting import quote_name

Run = Callable[[Feeds], Feeds]

_REFUSED = {"cu-lengths": "it says where joined clips begin and end, so clips cannot be padded"}


@dataclass(frozen=True)
class ModelFacts:
    """What shipping has to know of a model.

    Attributes:
        axis: The padded axis; its dim has the name that containers use.
        batch: The containers' name of the batch; None if the model has none.
        inputs: Its inputs.
        outputs: Its outputs.
        validity_input: The model's own mask or lengths input, or "".
        names: The model's own names of the dims, for each name of the containers.
        containers: The sizes of each container, the smallest first.
        clips: Single clips, for the proof.
        dropped: Lengths that the original does not run at, with ONNX Runtime's reason.
        forced: The sizes of dims that can have one only, by the model's own names.
        derived: Expressions of dims that follow from others, by the model's own names.
    """

    axis: Axis
    batch: str | None
    inputs: tuple[InputPort, ...]
    outputs: tuple[Port, ...]
    validity_input: str
    names: Mapping[str, tuple[str, ...]]
    containers: tuple[Mapping[str, int], ...]
    clips: tuple[Clip, ...]
    dropped: tuple[str, ...]
    forced: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)


def read_facts(
    model: ir.Model,
    source: str,
    spec: ContainerSpec,
    axis: str = "",
    constants: Feeds | None = None,
) -> ModelFacts:
    """Read a model, and run clips of several lengths on it.

    Args:
        model: The model, with names for all dims of its inputs; expressions are written into it
            for dims that follow from others.
        source: Its file.
        spec: The sizes of the containers.
        axis: The dim that is padded, by name or as ``audio.2``, if several could be.
        constants: What the file is fed besides: ``model`` has constants there.

    Raises:
        UsageError: A size is missing, or the model cannot be put into containers.
        FeedError: It runs at none of the lengths.
        ModelError: The shape of an output cannot be inferred.
    """
    reasons: dict[str, str] = {}
    first = Signature(model)
    derived = find_derived_dims(first)
    if derived:
        spec = drop_derived_sizes(spec, derived)
        write_derived_dims(model, derived)
        first = Signature(model)
    with open_original(source) as session:

        def run_with_constants(feeds: Feeds) -> Feeds:
            return session.run({**feeds, **(constants or {})})

        for tie in TIES:
            signature = first.with_tie(tie)
            sizing = _size_containers(signature, spec, axis)
            maker = _clip_maker(signature, sizing)
            clips = _run_clips(signature, sizing, maker, run_with_constants, reasons)
            if clips:
                shortest = _shortest_running_length(
                    _shortest_valid_length(maker, sizing),
                    clips[0].length,
                    maker,
                    run_with_constants,
                )
                break
    if not clips:
        examples = "; ".join(f"{k}: {v}" for k, v in list(reasons.items())[:3])
        raise FeedError(f"the model runs at none of the lengths ({examples})")
    _require_running_sizes(signature, sizing, clips, reasons)
    rename = {s: signature.group_of(s) for s in signature.symbols()}
    return ModelFacts(
        axis=_find_axis(signature, sizing.time, spec.rate, shortest),
        batch=signature.batch,
        inputs=tuple(input_port_of(signature, x, rename) for x in signature.inputs),
        outputs=output_ports_of(model, signature, sizing, clips),
        validity_input=_validity_input(signature, sizing.time),
        names={g: tuple(map(signature.user_name, signature.symbols_in(g))) for g in sizing.groups},
        containers=sizing.containers,
        clips=clips,
        dropped=tuple(f"{name}: {reason}" for name, reason in reasons.items()),
        forced={name: x.size for name, x in signature.forced.items()},
        derived=derived,
    )


def _size_containers(signature: Signature, spec: ContainerSpec, axis: str) -> Sizing:
    for item in signature.inputs:
        if item.problem:
            raise UsageError(_unusable_input_message(item))
    for name, wanted in spec.sizes.items():
        if signature.symbol_of(name) is None:
            signature.require_forced(name, wanted)
    groups = tuple(dict.fromkeys(signature.group_of(s) for s in signature.symbols()))
    if not groups:
        raise UsageError(_one_size_message(signature))
    if groups == (signature.batch,) and not axis and not _is_batch_named(signature, spec):
        raise UsageError(_only_batch_message(signature, groups[0], spec))
    if signature.past:
        names = ", ".join(signature.user_name(x) for x in sorted(signature.past))
        raise UsageError(
            f"the model continues a cache ({names} grows from run to run), and a cache has no "
            "container; fix its dims instead: graphfix run MODEL -p directml,fix-dims:"
            + ":".join(f"{quote_name(signature.user_name(g))}=SIZE" for g in groups)
        )
    sizes = sizes_by_group(signature, spec, {"T": lambda: find_padded_group(signature, axis, {})})
    time = find_padded_group(signature, axis, {signature.user_name(g): s for g, s in sizes.items()})

    def example_sizes(group: str) -> str:
        name = quote_name(signature.user_name(group))
        return f"{name}=500,3000 or in seconds, with --rate" if group == time else f"{name}=SIZE"

    require_sizes(signature, sizes, groups, time, example_sizes)
    fixed_sizes = {g: sizes[g][0] for g in groups}
    return Sizing(
        time, signature.batch, groups, tuple({**fixed_sizes, time: n} for n in sizes[time])
    )


def _one_size_message(signature: Signature) -> str:
    """Return that a model without a free dim has no containers."""
    forced = "; ".join(forced_texts(signature.forced))
    if not forced:
        return (
            "the model has no symbolic dim, so nothing can be padded: it is one size, as a "
            "container would be. What is left is its repair: graphfix run MODEL"
        )
    return (
        f"no dim may vary, so nothing can be padded: {forced}. Possible is its repair: "
        f"graphfix run MODEL -p directml,fix-dims:{_sizes_text(signature, {})}"
        f"{signature.thaw_hint}"
    )


def _only_batch_message(signature: Signature, batch: str, spec: ContainerSpec) -> str:
    """Return that a model of which only the batch varies has no clips to pad."""
    name = signature.user_name(batch)
    wanted = (x for n, x in spec.sizes.items() if signature.symbol_of(n) == batch)
    fixed = _sizes_text(signature, {name: next(wanted, (1,))[0]})
    forced = "".join(f" ({x})" for x in forced_texts(signature.forced))
    return (
        f"only {name}, the batch, may vary{forced}, so there is no clip to pad and no container to "
        f"make; what can be had is fixed sizes: graphfix run MODEL -p directml,fix-dims:{fixed} "
        f"-o fixed.onnx{signature.thaw_hint}. If {name} is no batch but what is padded, say --axis "
        f"{quote_name(name)}"
    )


def _sizes_text(signature: Signature, sizes: Mapping[str, int]) -> str:
    """Return sizes as fix-dims takes them, with those that the graph dictates."""
    every = {**sizes, **{name: x.size for name, x in signature.forced.items()}}
    return ",".join(f"{quote_name(name)}={size}" for name, size in every.items())


def sizes_by_group(
    signature: Signature, spec: ContainerSpec, stands_for: Mapping[str, Callable[[], str]]
) -> dict[str, tuple[int, ...]]:
    """Return the requested sizes by group of dims; the batch is 1 unless it is given.

    Args:
        signature: The inputs.
        spec: The sizes, by the name of a dim, its place, ``B`` or a key of ``stands_for``.
        stands_for: The dim that a name stands for which no dim has.

    Raises:
        UsageError: No input has a dim of that name.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for name, group_sizes in spec.sizes.items():
        symbol, short = signature.symbol_of(name), name.upper()
        if symbol is None and short in ("B", "BATCH"):
            if signature.batch is None:
                continue  # there is one row, whatever is asked for
            symbol = signature.batch
        if symbol is None and signature.require_forced(name, group_sizes):
            continue
        if symbol is None and short in stands_for:
            symbol = stands_for[short]()
        if symbol is None:
            dim_names = ", ".join(map(signature.user_name, signature.symbols()))
            raise UsageError(f"no input has a dim {name!r}; there are: {dim_names}")
        sizes[signature.group_of(symbol)] = group_sizes
    if signature.batch is not None:
        sizes.setdefault(signature.batch, (1,))
    return sizes


def require_sizes(
    signature: Signature,
    sizes: Mapping[str, Sequence[int]],
    groups: Iterable[str],
    several: str,
    example: Callable[[str], str],
) -> None:
    """Raise UsageError unless each of ``groups`` has a size, and none but ``several`` has more."""
    for group in groups:
        name = signature.user_name(group)
        if group not in sizes:
            raise UsageError(
                f"a container has a size for each dim, and {name} has none; say --container "
                f"{example(group)}"
            )
        if len(sizes[group]) > 1 and group != several:
            raise UsageError(f"--container {name}: only {signature.user_name(several)} has several")


def _is_batch_named(signature: Signature, spec: ContainerSpec) -> bool:
    """Return whether a size of the batch is requested by a name of its own: it may be padded.

    A name such as ``B``, ``N`` or ``batch_size`` says itself that it is a batch.
    """
    return any(
        not says_batch(name) and signature.symbol_of(name) == signature.batch for name in spec.sizes
    )


def _clip_maker(signature: Signature, sizing: Sizing) -> ClipMaker:
    sizes, variable_dims = sizing.containers[0], (sizing.time, signature.batch)
    dims = {signature.user_name(g): (n,) for g, n in sizes.items() if g not in variable_dims}
    return ClipMaker(signature, sizing.time, dims)


def _shortest_valid_length(maker: ClipMaker, sizing: Sizing) -> int:
    """Return the length from which every length is a clip, up to the smallest container."""

    def is_clip(length: int) -> bool:
        try:
            return maker.too_short_reason(length) is None
        except FeedError:
            return False

    size = min(container[sizing.time] for container in sizing.containers)
    return 1 + bisect.bisect_left(range(1, size), True, key=is_clip)


def _shortest_running_length(shortest: int, running_length: int, maker: ClipMaker, run: Run) -> int:
    """Return the shortest length from which the original runs, up to one at which it ran."""

    def runs_at(length: int) -> bool:
        try:
            run(maker.make_clip(length, 0, 0))
        except (FeedError, RunError):
            return False
        return True

    return shortest + bisect.bisect_left(range(shortest, running_length), True, key=runs_at)


def _run_clips(
    signature: Signature, sizing: Sizing, maker: ClipMaker, run: Run, reasons: dict[str, str]
) -> tuple[Clip, ...]:
    """Run clips from each container's length down to a twelfth; return those that run."""
    lengths = {n for size in sizing.containers for n in clip_lengths_for(size[sizing.time])}
    if (shortest := _shortest_valid_length(maker, sizing)) > 1:
        lengths.add(shortest)
    clips = []
    for row, length in enumerate(sorted(lengths)):
        try:
            feeds = maker.make_clip(length, 0, row)
            clips.append(Clip(length, feeds, run(feeds)))
        except (FeedError, RunError) as error:
            reasons.setdefault(
                f"{quote_name(signature.user_name(sizing.time))}={length}", str(error)
            )
    return tuple(clips)


def _require_running_sizes(
    signature: Signature, sizing: Sizing, clips: Sequence[Clip], reasons: Mapping[str, str]
) -> None:
    """Raise UsageError for a container at whose size the original does not run."""
    ran = {clip.length for clip in clips}
    name = quote_name(signature.user_name(sizing.time))
    for container in sizing.containers:
        size = container[sizing.time]
        if size not in ran:
            raise UsageError(
                f"--container {name}={size}: the model as given does not run at that size, padded "
                f"or not: {reasons.get(f'{name}={size}', 'ONNX Runtime does not say why')}"
            )


def _find_axis(signature: Signature, time: str, rate: float | None, shortest: int) -> Axis:
    members = set(signature.symbols_in(time))
    others = []
    for item in signature.inputs:
        for place, dim in enumerate(item.dims):
            if single_symbol(dim) not in members:
                continue
            if item.role.kind in ("data", "tokens"):
                return Axis(time, item.name, place, rate, shortest)
            others.append(f"{item.name!r} has it, and is of the kind {item.role.kind}")
    reason = "; ".join(dict.fromkeys(others)) or "only sums or multiples of it are sizes"
    raise UsageError(
        f"no input of data or tokens has the dim {signature.user_name(time)} by itself ({reason}); "
        "name another dim"
    )


def input_port_of(signature: Signature, item: Input, rename: Mapping[str, str]) -> InputPort:
    """Return an input as the manifest describes it.

    Raises:
        UsageError: It is none that can be filled up.
    """
    if item.problem:
        raise UsageError(_unusable_input_message(item))
    kind = item.role.kind
    if kind in _REFUSED:
        raise UsageError(f"the input {item.name!r}: {_REFUSED[kind]}")
    pad = {"mask": item.role.padded, "tokens": item.role.low, "positions": item.role.low}
    return InputPort(
        name=item.name,
        type=ort_type_of(ir.DataType.from_numpy(np.dtype(item.dtype))),
        dims=tuple(dim_text(d, rename) for d in item.dims),
        rows=signature.row_axis(item.dims),
        kind=kind,  # type: ignore[arg-type]  # the refused one is gone
        pad=float(pad.get(kind, 0.0)),
        valid=float(item.role.valid) if kind == "mask" else None,
    )


def _unusable_input_message(item: Input) -> str:
    return f"the input {item.name!r} cannot be put into a container: {item.problem}"


def _validity_input(signature: Signature, time: str) -> str:
    """Return the model's input that says what is valid, a mask or lengths, or "".

    One that is a mask for each pair of positions says what sees what, not how long a clip is; one
    that is 0 where there is content has no sum that is the length.
    """
    members = set(signature.symbols_in(time))
    for kind in ("mask", "lengths"):
        for item in signature.inputs:
            long = sum(bool(symbols(dim) & members) for dim in item.dims)
            if kind == "mask" and item.role.valid != 1.0:
                continue
            if item.role.kind == kind and signature.time_of(item) == time and long <= 1:
                return item.name
    return ""

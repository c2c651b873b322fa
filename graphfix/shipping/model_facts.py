"""What is known of a model that is to be shipped: what is padded, by what it is told, its shapes.

Dims are written in the names that the containers have sizes for: one for each group of dims that
are always equal, however many names the exporter gave them.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError, UsageError
from graphfix.feeds.clips import Clips, time_of
from graphfix.feeds.dim_groups import TIES
from graphfix.feeds.input import Input, plain, symbols
from graphfix.feeds.signature import Signature
from graphfix.probing.unpadded import Clip, clips_for
from graphfix.runtime.compared_session import open_given
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.manifest import Axis, InputPort, Port
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.valid_sizes import Sizing, outputs_of, text_of, type_of
from graphfix.spec.quoting import quoted

Run = Callable[[Feeds], Feeds]

_REFUSED = {"cu-lengths": "it says where joined clips begin and end, so clips cannot be padded"}


@dataclass(frozen=True)
class Reading:
    """What is known of a model.

    Attributes:
        axis: What is padded; its dim is called as containers call it.
        batch: What containers call the batch; None if the model has none.
        inputs: Its inputs.
        outputs: Its outputs.
        tells: The input of the model itself that says what is valid, or "".
        names: The model's own names of the dims, for each name of the containers.
        containers: The sizes of each container, the smallest first.
        clips: Clips alone, for the proof.
        dropped: Lengths that the original does not run at, with ONNX Runtime's reason.
    """

    axis: Axis
    batch: str | None
    inputs: tuple[InputPort, ...]
    outputs: tuple[Port, ...]
    tells: str
    names: Mapping[str, tuple[str, ...]]
    containers: tuple[Mapping[str, int], ...]
    clips: tuple[Clip, ...]
    dropped: tuple[str, ...]


def read(
    model: ir.Model,
    source: str,
    wanted: ContainerSpec,
    axis: str = "",
    constants: Feeds | None = None,
) -> Reading:
    """Read a model, and run clips of several lengths on it.

    Args:
        model: The model, with names for all dims of its inputs.
        source: Its file.
        wanted: The containers.
        axis: The dim that is padded, by name or as ``audio.2``, if several could be.
        constants: What the file is fed besides: ``model`` has constants there.

    Raises:
        UsageError: A size is missing, or the model is none that can be put into containers.
        FeedError: It runs at none of the lengths.
        ModelError: The shape of an output cannot be inferred.
    """
    reasons: dict[str, str] = {}
    with open_given(source) as session:

        def run(feeds: Feeds) -> Feeds:
            return session.run({**feeds, **(constants or {})})

        for tie in TIES:
            signature = Signature(model, tie)
            plan = _plan(signature, wanted, axis)
            maker = _maker(signature, plan)
            clips = _clips(signature, plan, maker, run, reasons)
            if clips:
                shortest = _runs_from(_shortest(maker, plan), clips[0].length, maker, run)
                break
    if not clips:
        told = "; ".join(f"{k}: {v}" for k, v in list(reasons.items())[:3])
        raise FeedError(f"the model runs at none of the lengths ({told})")
    _require_sizes(signature, plan, clips, reasons)
    rename = {s: signature.group(s) for s in signature.symbols()}
    return Reading(
        axis=_axis(signature, plan.time, wanted.rate, shortest),
        batch=signature.batch,
        inputs=tuple(input_port(signature, x, rename) for x in signature.inputs),
        outputs=outputs_of(model, signature, plan, clips),
        tells=_tells(signature, plan.time),
        names={g: tuple(map(signature.user_name, signature.members(g))) for g in plan.groups},
        containers=plan.containers,
        clips=clips,
        dropped=tuple(f"{name}: {reason}" for name, reason in reasons.items()),
    )


def _plan(signature: Signature, wanted: ContainerSpec, axis: str) -> Sizing:
    groups = tuple(dict.fromkeys(signature.group(s) for s in signature.symbols()))
    if not groups:
        raise UsageError(
            "the model has no symbolic dim, so nothing can be padded: it is one size, as a "
            "container would be. What is left is its repair: graphfix run MODEL"
        )
    if groups == (signature.batch,) and not axis and not _names_batch(signature, wanted):
        name = signature.user_name(groups[0])
        raise UsageError(
            f"only {name}, the batch, may vary, so there is no clip to pad and no container to "
            "make; what can be had is fixed sizes: graphfix run MODEL -p "
            f"directml,fix-dims:{quoted(name)}=1 -o fixed.onnx. If {name} is no batch but what is "
            f"padded, say --axis {quoted(name)}"
        )
    if signature.past:
        names = ", ".join(signature.user_name(x) for x in sorted(signature.past))
        raise UsageError(
            f"the model continues a cache ({names} grows from run to run), and a cache has no "
            "container; fix its dims instead: graphfix run MODEL -p directml,fix-dims:"
            + ":".join(f"{quoted(signature.user_name(g))}=SIZE" for g in groups)
        )
    sizes = sizes_by_group(signature, wanted, {"T": lambda: time_of(signature, axis, {})})
    time = time_of(signature, axis, {signature.user_name(g): s for g, s in sizes.items()})

    def example(group: str) -> str:
        seconds = " or in seconds, with --rate" if group == time else ""
        return f"{signature.user_name(group)}=500,3000{seconds}"

    require_sizes(signature, sizes, groups, time, example)
    others = {g: sizes[g][0] for g in groups}
    return Sizing(time, signature.batch, groups, tuple({**others, time: n} for n in sizes[time]))


def sizes_by_group(
    signature: Signature, wanted: ContainerSpec, stands_for: Mapping[str, Callable[[], str]]
) -> dict[str, tuple[int, ...]]:
    """The sizes that are asked for, by the dim; that of the batch is 1 if nothing is said of it.

    Args:
        signature: The inputs.
        wanted: The sizes, by the name of a dim, its place, ``B`` or one that ``stands_for`` has.
        stands_for: What a name that no dim has stands for.

    Raises:
        UsageError: No input has a dim of that name.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for name, given in wanted.sizes.items():
        symbol, short = signature.symbol_of(name), name.upper()
        if symbol is None and short in ("B", "BATCH"):
            if signature.batch is None:
                continue  # there is one row, whatever is asked for
            symbol = signature.batch
        if symbol is None and short in stands_for:
            symbol = stands_for[short]()
        if symbol is None:
            known = ", ".join(map(signature.user_name, signature.symbols()))
            raise UsageError(f"no input has a dim {name!r}; there are: {known}")
        sizes[signature.group(symbol)] = given
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


def _names_batch(signature: Signature, wanted: ContainerSpec) -> bool:
    """Whether a size of the batch is asked for by its own name: it may be what is padded."""
    return any(
        name.upper() not in ("B", "BATCH") and signature.symbol_of(name) == signature.batch
        for name in wanted.sizes
    )


def _maker(signature: Signature, plan: Sizing) -> Clips:
    sizes, known = plan.containers[0], (plan.time, signature.batch)
    dims = {signature.user_name(g): (n,) for g, n in sizes.items() if g not in known}
    return Clips(signature, plan.time, dims)


def _shortest(maker: Clips, plan: Sizing) -> int:
    """The length from which on all is a clip, up to the smallest container."""

    def is_clip(length: int) -> bool:
        try:
            return maker.refusal(length) is None
        except FeedError:
            return False

    size = min(container[plan.time] for container in plan.containers)
    return 1 + bisect.bisect_left(range(1, size), True, key=is_clip)


def _runs_from(shortest: int, ran: int, maker: Clips, run: Run) -> int:
    """The length from which on the original runs, up to one at which it did."""

    def runs(length: int) -> bool:
        try:
            run(maker.alone(length, 0, 0))
        except (FeedError, RunError):
            return False
        return True

    return shortest + bisect.bisect_left(range(shortest, ran), True, key=runs)


def _clips(
    signature: Signature, plan: Sizing, maker: Clips, run: Run, reasons: dict[str, str]
) -> tuple[Clip, ...]:
    """Clips of lengths from a container's own down to a twelfth, as far as the original runs."""
    lengths = {n for size in plan.containers for n in clips_for(size[plan.time])}
    if (shortest := _shortest(maker, plan)) > 1:
        lengths.add(shortest)
    made = []
    for row, length in enumerate(sorted(lengths)):
        try:
            feeds = maker.alone(length, 0, row)
            made.append(Clip(length, feeds, run(feeds)))
        except (FeedError, RunError) as error:
            reasons.setdefault(f"{quoted(signature.user_name(plan.time))}={length}", str(error))
    return tuple(made)


def _require_sizes(
    signature: Signature, plan: Sizing, clips: Sequence[Clip], reasons: Mapping[str, str]
) -> None:
    """Raise UsageError for a container that is no size of the model's, such as past its table."""
    ran = {clip.length for clip in clips}
    name = quoted(signature.user_name(plan.time))
    for container in plan.containers:
        size = container[plan.time]
        if size not in ran:
            raise UsageError(
                f"--container {name}={size}: the model as given does not run at that size, padded "
                f"or not: {reasons.get(f'{name}={size}', 'ONNX Runtime does not say why')}"
            )


def _axis(signature: Signature, time: str, rate: float | None, shortest: int) -> Axis:
    members = set(signature.members(time))
    for item in signature.inputs:
        for place, dim in enumerate(item.dims):
            if plain(dim) in members and item.role.kind in ("data", "tokens"):
                return Axis(time, item.name, place, rate, shortest)
    name = signature.user_name(time)
    raise UsageError(f"no input of data or tokens has the dim {name} by itself; name another one")


def input_port(signature: Signature, item: Input, rename: Mapping[str, str]) -> InputPort:
    """An input as a manifest has it.

    Raises:
        UsageError: It is none that can be filled up.
    """
    if item.problem:
        raise UsageError(f"the input {item.name!r} cannot be put into a container: {item.problem}")
    kind = item.role.kind
    if kind in _REFUSED:
        raise UsageError(f"the input {item.name!r}: {_REFUSED[kind]}")
    pad = {"mask": item.role.padded, "tokens": item.role.low, "positions": item.role.low}
    return InputPort(
        name=item.name,
        type=type_of(ir.DataType.from_numpy(np.dtype(item.dtype))),
        dims=tuple(text_of(d, rename) for d in item.dims),
        rows=signature.row_axis(item.dims),
        kind=kind,  # type: ignore[arg-type]  # the refused one is gone
        pad=float(pad.get(kind, 0.0)),
    )


def _tells(signature: Signature, time: str) -> str:
    """The input of the model that says what is valid: a mask, or lengths.

    One that is a mask for each pair of positions says what sees what, not how long a clip is; one
    that is 0 where there is content has no sum that is the length.
    """
    members = set(signature.members(time))
    for kind in ("mask", "lengths"):
        for item in signature.inputs:
            long = sum(bool(symbols(dim) & members) for dim in item.dims)
            if kind == "mask" and item.role.valid != 1.0:
                continue
            if item.role.kind == kind and signature.time_of(item) == time and long <= 1:
                return item.name
    return ""

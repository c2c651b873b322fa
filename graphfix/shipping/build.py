"""``graphfix ship``: one folder from an export, proved before it gets its name.

If a proof fails, less and less is done to the model, until what is made of it passes::

    everything asked for; a pass that rounds uses half of the gate, then less    _at_margins
        without the repairs that a search finds to blame                         _in_other_ways
            and without the passes that round, if they may gain nothing          _in_other_ways
                nothing is shipped, and the first proof that failed says why
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from graphfix.engine import pipeline
from graphfix.feeds.states import State
from graphfix.files import atomic_file, io
from graphfix.files.given import Given, on_disk, sizes_of
from graphfix.graph.dims import name_dims
from graphfix.job.fault_search import ways
from graphfix.job.remaining_findings import checked
from graphfix.job.rounding_search import MARGINS, gate, is_hopeless
from graphfix.lengths.length_input import LengthInput
from graphfix.paths import StrPath, file_of
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.provider import LABELS, Ep
from graphfix.runtime.python import require
from graphfix.runtime.scratch import Folder
from graphfix.shipped.manifest import NAME, InputPort, Manifest
from graphfix.shipping import result as shipped
from graphfix.shipping.chosen_inputs import constants_of, with_constants
from graphfix.shipping.container_repair import FailedContainer, Order, default_passes
from graphfix.shipping.container_spec import ContainerSpec, spec_of
from graphfix.shipping.end_to_end import end_to_end
from graphfix.shipping.model_facts import read
from graphfix.shipping.result import Shipped
from graphfix.shipping.stream_build import ship_stream
from graphfix.shipping.stream_plan import continues
from graphfix.shipping.target_folder import refuse


def ship(
    source: Given,
    folder: StrPath,
    containers: ContainerSpec | Mapping[str, int | Sequence[int]] | str | Iterable[str],
    *,
    passes: str = "",
    axis: str = "",
    float16: bool = False,
    ep: Ep = "cpu",
    tolerance: Tolerance | None = None,
    strict: bool = False,
    cache: int | Sequence[int] = (),
    states: Sequence[State] | Mapping[str, str] = (),
    stream: bool = False,
    progress: pipeline.Progress | None = None,
) -> Shipped:
    """Create a folder with one fixed-size graph per container, and prove it.

    Clips of several lengths are run alone on the original, and in their container on what is
    shipped, with garbage in the padding; then through the session that users have. If a container
    fails, the repairs that are to blame are found by trying, and left out or done in another way.

    A model that continues a cache is run step by step instead, see
    :mod:`graphfix.shipping.stream_build`.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        folder: Where it goes; a folder that an earlier call made is replaced.
        containers: The sizes by the name of the dim, ``{"T": [500, 3000]}``, or as the command line
            takes them, ``"T=500,3000"``.
        passes: Text as ``-p`` takes it; by default :func:`default_passes`. Where it names no
            ``ilens-mask`` or ``fix-dims``, they run behind its first item, or before the first
            that fuses or rounds.
        axis: The dim that is padded, if several could be.
        float16: Whether weights and arithmetic become float16.
        ep: Where the containers are proved besides the CPU.
        tolerance: What may differ.
        strict: Whether a container that fails is the end, and no bad place is searched for.
        cache: The size of caches that grow, or several.
        states: States that names do not tell: the output that continues it, by the input.
        stream: Whether it is run step by step although none of its states grows.
        progress: Called with a short text at each step.

    Raises:
        UsageError: Sizes, passes or the folder do not fit.
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it.
        FeedError: It runs at none of the lengths.
        PaddingError: Padding reaches a node that cannot be analysed.
    """
    scratch = Folder()  # it goes at the end of this function
    source, folder = file_of(on_disk(source, scratch.path / "model.onnx")), file_of(folder)
    containers, cache = spec_of(containers), sizes_of({"cache": cache})["cache"]
    states = [State(*x) for x in states.items()] if isinstance(states, Mapping) else states
    tell = progress or (lambda _: None)
    require(ep)
    refuse(source, folder)
    tell("reading the model")
    model = io.load(source)
    name_dims(model)
    if stream or cache or states or continues(model):
        return ship_stream(
            source,
            folder,
            model,
            containers,
            cache=cache,
            states=states,
            passes=passes,
            float16=float16,
            ep=ep,
            tolerance=tolerance,
            strict=strict,
            tell=tell,
        )
    spec = passes or default_passes(float16=float16)
    model = with_constants(model, spec)
    reading = read(model, str(source), containers, axis, constants_of(source, model))
    usual = Tolerance().for_half() if computes_in_half(model) else Tolerance()
    if tolerance is not None and not tolerance.whole:
        usual = tolerance
    order = Order(source, reading, spec, usual, usual, ep, tell)
    allowed = tolerance or gate(order.passes(reading.containers[0])) or usual
    order = dataclasses.replace(order, tolerance=allowed)
    result = _at_margins(order, folder)
    return result if result.ok or strict else _in_other_ways(order, folder, result)


def _at_margins(order: Order, folder: Path) -> Shipped:
    """Ship; what a pass that rounds found on a few inputs may miss the gate on more."""
    for margin in MARGINS if order.rounding() else MARGINS[:1]:
        result = _ship(dataclasses.replace(order, margin=margin), folder)
        if result.ok or any(map(is_hopeless, result.reports)):
            break
    return result


def _in_other_ways(order: Order, folder: Path, result: Shipped) -> Shipped:
    """What is shipped without the repairs that are to blame; else what failed."""
    pairs = zip(result.manifest.containers, result.reports, strict=True)
    made = {one.file: (one.sizes, report) for one, report in pairs}
    failed = [FailedContainer(x, *made[x.file]) for x in result.padding if not x.verdict.ok]
    found = order.bad_places(failed) if failed else order.found
    why = str(failed[0].proof if failed else result.whole).rstrip(".")
    for way in ways(order.passes(order.reading.containers[0]), why, found):
        tolerance = order.tolerance if way.rounds else order.usual
        other = dataclasses.replace(order, found=way.found, leave=way.leave, tolerance=tolerance)
        again = _ship(other, folder)
        if again.ok:
            return dataclasses.replace(again, left=way.found.left, searched=found.searched)
    return dataclasses.replace(result, searched=found.searched)


def _ship(order: Order, folder: Path) -> Shipped:
    """Repair, prove, and give the folder its name."""
    source, reading, tell = order.source, order.reading, order.tell
    made, reports = order.repaired()
    tell("checking what is left")
    hazards = checked(order.original(), made)

    def make(scratch: Path) -> Shipped:
        sizes = [container[reading.axis.dim] for container in reading.containers]
        paths = [scratch / f"{source.stem}.{size}.onnx" for size in sizes]
        shipped.put_models(made, paths, source.stem)
        manifest = _manifest(order, LengthInput.of(made[-1]), paths)
        atomic_file.put_text(scratch / NAME, manifest.to_text())
        padding = []
        for path, container in zip(paths, reading.containers, strict=True):
            for where in dict.fromkeys(("cpu", order.ep)):
                tell(f"proving {path.name} on {LABELS[where]}")
                padding.append(order.prove(path, container, path.name, where))
        whole = None
        if all(x.verdict.ok for x in padding):
            tell("proving what a session gives")
            whole = end_to_end(scratch, reading.clips, order.tolerance)
        return Shipped(
            folder=None,
            manifest=manifest,
            reports=reports,
            checked=hazards,
            padding=tuple(padding),
            whole=whole,
            unrounded=shipped.unrounded_by(order.rounding(), reports),
        )

    return shipped.into(folder, make)


def _manifest(order: Order, told: LengthInput | None, paths: Sequence[Path]) -> Manifest:
    source, reading = order.source, order.reading
    own = {x.name for x in reading.inputs}
    return Manifest(
        axis=reading.axis,
        batch=reading.batch,
        lengths=None if told is None or told.input in own else told.input,
        inputs=reading.inputs if told is None else tuple(map(_of_the_clip, reading.inputs)),
        outputs=reading.outputs,
        containers=shipped.planned(source, paths, reading.containers, order.tell),
        weights=shipped.weights_beside(paths),
        provenance=shipped.provenance(source, order.spec, reading.names, order.found.left),
    )


def _of_the_clip(item: InputPort) -> InputPort:
    """An input of a model that is told the valid lengths: a share is one of these, fed as it is."""
    return dataclasses.replace(item, kind="data") if item.kind == "relative-lengths" else item


ship_file = ship
"""The same, by its older name."""

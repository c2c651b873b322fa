"""``graphfix ship``: one folder from an export, proved before it gets its name.

If a proof fails, less and less is done to the model, until the result passes::

    everything asked for; a pass that rounds uses half of the gate, then less _ship_at_margins
        without the repairs that a search finds to blame                      _ship_without_culprits
            and without the passes that round, if they may gain nothing       _ship_without_culprits
                nothing is shipped, and the first proof that failed says why
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from graphfix.engine import pipeline
from graphfix.feeds.states import StatePair
from graphfix.files import atomic_file, io
from graphfix.files.model_input import ModelLike, as_model_file, require_valid_choices, sizes_by_dim
from graphfix.graph.dims import name_dims
from graphfix.job.fault_search import iter_alternatives
from graphfix.job.remaining_findings import compare_hazards
from graphfix.job.rounding_search import MARGINS, is_hopeless, rounding_tolerance
from graphfix.lengths.length_input import LengthInput
from graphfix.paths import StrPath, require_path
from graphfix.proof.allowance import USUAL
from graphfix.proof.compare import Tolerance
from graphfix.providers.table import EVERYWHERE, Ep
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.python import require_provider
from graphfix.runtime.scratch import ScratchFolder
from graphfix.shipped.manifest import NAME, InputPort, Manifest
from graphfix.shipping.chosen_inputs import constants_of, fix_inputs
from graphfix.shipping.container_repair import FailedContainer, ShipOrder, default_passes
from graphfix.shipping.container_spec import ContainerSpec, spec_of
from graphfix.shipping.model_facts import read_facts
from graphfix.shipping.new_outputs import change_outputs, split_passes
from graphfix.shipping.result import (
    Shipped,
    containers_with_kernels,
    provenance_of,
    reasons_not_rounded,
    records_of,
    write_folder,
    write_models,
)
from graphfix.shipping.size_table import derive_sizes
from graphfix.shipping.stream_build import ship_stream
from graphfix.shipping.stream_plan import has_growing_states
from graphfix.shipping.target_folder import require_replaceable


@raises_own_errors
def ship(
    source: ModelLike,
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
    states: Sequence[StatePair] | Mapping[str, str] = (),
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
        axis: The dim that is padded, or grows by each step, if several could be.
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
        VerificationError: A pass that changes outputs was not proved.
    """
    scratch = ScratchFolder()  # it goes at the end of this function
    source = require_path(as_model_file(source, scratch.path / "model.onnx"))
    folder = require_path(folder)
    containers, cache = spec_of(containers), sizes_by_dim({"cache": cache})["cache"]
    states = [StatePair(*x) for x in states.items()] if isinstance(states, Mapping) else states
    tell = progress or (lambda _: None)
    require_valid_choices(ep=(ep, EVERYWHERE))
    require_provider(ep)
    require_replaceable(source, folder)
    tell("reading the model")
    given = change_outputs(source, passes, scratch.path, tell, tolerance)
    source, passes = given.path, split_passes(passes)[1]
    model = io.load(source)
    name_dims(model)
    if stream or cache or states or has_growing_states(model):
        return ship_stream(
            given,
            folder,
            model,
            containers,
            cache=cache,
            states=states,
            axis=axis,
            passes=passes,
            float16=float16,
            ep=ep,
            tolerance=tolerance,
            strict=strict,
            tell=tell,
        )
    spec = passes or default_passes(float16=float16)
    model = fix_inputs(model, spec)
    facts = read_facts(model, str(source), containers, axis, constants_of(source, model))
    usual = USUAL if tolerance is None or tolerance.whole else tolerance
    order = ShipOrder(
        source,
        facts,
        spec,
        usual,
        usual,
        ep,
        tell,
        allows_own_rounding=tolerance is None,
        given=given,
    )
    allowed = tolerance or rounding_tolerance(order.passes_at(facts.containers[0])) or usual
    order = dataclasses.replace(order, tolerance=allowed)
    result = _ship_at_margins(order, folder)
    return result if result.ok or strict else _ship_without_culprits(order, folder, result)


def _ship_at_margins(order: ShipOrder, folder: Path) -> Shipped:
    """Ship with decreasing margins: a rounding tried on few inputs may miss the gate on more."""
    for margin in MARGINS if order.calibrated_passes() else MARGINS[:1]:
        result = _ship_once(dataclasses.replace(order, margin=margin), folder)
        if result.ok or any(map(is_hopeless, result.reports)):
            break
    return result


def _ship_without_culprits(order: ShipOrder, folder: Path, result: Shipped) -> Shipped:
    """Ship without the repairs that are to blame; if that fails, return the first result."""
    pairs = zip(result.manifest.containers, result.reports, strict=True)
    built = {container.file: (container.sizes, report) for container, report in pairs}
    failed = [FailedContainer(x, *built[x.file]) for x in result.padding if not x.verdict.ok]
    culprits = order.find_culprits(failed) if failed else order.culprits
    reason = str(failed[0].proof if failed else result.whole).rstrip(".")
    for alternative in iter_alternatives(
        order.passes_at(order.facts.containers[0]), reason, culprits
    ):
        tolerance = order.tolerance if alternative.rounds else order.usual
        retry_order = dataclasses.replace(
            order, culprits=alternative.culprits, leave=alternative.leave, tolerance=tolerance
        )
        retry = _ship_once(retry_order, folder)
        if retry.ok:
            return dataclasses.replace(
                retry, left=alternative.culprits.left, searched=culprits.searched
            )
    return dataclasses.replace(result, searched=culprits.searched)


def _ship_once(order: ShipOrder, folder: Path) -> Shipped:
    """Repair, prove, and give the folder its name."""
    source, facts, tell = order.source, order.facts, order.tell
    models, reports = order.repair_all()
    tell("checking what is left")
    hazards = compare_hazards(order.load_original(), models)

    def fill_folder(scratch: Path) -> Shipped:
        sizes = [container[facts.axis.dim] for container in facts.containers]
        paths = [scratch / f"{source.stem}.{size}.onnx" for size in sizes]
        write_models(models, paths, source.stem)
        manifest = _build_manifest(order, LengthInput.from_metadata(models[-1]), paths)
        atomic_file.write_text(scratch / NAME, manifest.to_text())
        padding = order.prove_containers(scratch, [x.name for x in paths])
        all_fit = all(x.verdict.ok for x in padding)
        return Shipped(
            folder=None,
            manifest=manifest,
            reports=reports,
            checked=hazards,
            padding=padding,
            whole=order.prove_session(scratch) if all_fit else None,
            unrounded=reasons_not_rounded(order.calibrated_passes(), reports),
        )

    return write_folder(folder, fill_folder)


def _build_manifest(
    order: ShipOrder, length_input: LengthInput | None, paths: Sequence[Path]
) -> Manifest:
    source, facts = order.source, order.facts
    own = {x.name for x in facts.inputs}
    varying = {facts.axis.dim}
    if facts.batch is not None and facts.containers[0][facts.batch] != 1:
        varying.add(facts.batch)  # a clip has one row
    return Manifest(
        axis=facts.axis,
        batch=facts.batch,
        lengths=None if length_input is None or length_input.input in own else length_input.input,
        inputs=tuple(_as_clip_input(x, length_input) for x in facts.inputs),
        outputs=facts.outputs,
        containers=containers_with_kernels(source, paths, facts.containers, order.tell),
        derived=derive_sizes((*facts.inputs, *facts.outputs), facts.containers, varying),
        files=records_of(paths[0].parent),
        provenance=provenance_of(order.origin, order.spec, facts.names, order.culprits.left),
    )


def _as_clip_input(item: InputPort, length_input: LengthInput | None) -> InputPort:
    """Return an input as the containers take it, which have this input of lengths.

    Relative lengths are then fed unchanged.
    """
    if length_input is None:
        return item
    if length_input.input == item.name:
        return dataclasses.replace(item, counted=True)
    return dataclasses.replace(item, kind="data") if item.kind == "relative-lengths" else item


ship_file = ship
"""The same, by its older name."""

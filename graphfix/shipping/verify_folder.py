"""``graphfix verify MODEL FOLDER``: proves a shipped folder again, as ``graphfix ship`` did."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from graphfix.engine import pipeline
from graphfix.errors import ModelError
from graphfix.files import io
from graphfix.graph.dims import name_dims
from graphfix.paths import StrPath, require_path
from graphfix.proof.allowance import USUAL
from graphfix.proof.compare import Tolerance
from graphfix.providers.table import Ep
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.python import require_provider
from graphfix.runtime.scratch import ScratchFolder
from graphfix.shipped.folder_files import open_folder, record_of
from graphfix.shipped.manifest import NAME, Manifest, Streaming
from graphfix.shipping.allowance import Allowance
from graphfix.shipping.chosen_inputs import constants_of, fix_inputs
from graphfix.shipping.container_repair import ContainerProof, ShipOrder
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.model_facts import read_facts
from graphfix.shipping.new_outputs import change_outputs
from graphfix.shipping.shipped_plan import (
    container_spec_of,
    own_name,
    passes_of,
    stream_plan_of,
)
from graphfix.shipping.stream_build import StreamOrder
from graphfix.wording import Proof

# How many inputs or outputs a message lists.
_LISTED = 4


@dataclass(frozen=True, repr=False)
class FolderProof(Proof):
    """The result of proving a shipped folder again; true if every proof passed.

    Attributes:
        folder: The folder.
        padding: The proof of each container on each provider; none of a model that takes steps.
        session: The same through a session or a stream, cut to what is valid.
        remarks: What a reader should know.
    """

    folder: Path
    padding: tuple[ContainerProof, ...]
    session: SessionProof
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether everything was proved."""
        return self.session.ok and all(x.verdict.ok for x in self.padding)

    @property
    def reason(self) -> str:
        """Return the first proof that failed, in words; "" if none did."""
        failed = [f"{x.file} {x}" for x in self.padding if not x.verdict.ok]
        if not failed and not self.session.ok:
            failed = [f"the session: {self.session}"]
        return next(iter(failed), "")

    def __str__(self) -> str:
        return f"{self.folder}; {'; '.join([*map(str, self.padding), str(self.session)])}"

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        return {
            "schema": 1,
            "ok": self.ok,
            "folder": str(self.folder),
            "padding": [{"file": x.file, "ep": x.ep, **x.verdict.to_json()} for x in self.padding],
            "session": self.session.to_json(),
            "remarks": list(self.remarks),
        }


@raises_own_errors
def verify_folder(
    source: StrPath,
    folder: StrPath,
    *,
    ep: Ep = "cpu",
    tolerance: Tolerance | None = None,
    progress: pipeline.Progress | None = None,
) -> FolderProof:
    """Prove that a shipped folder gives what the model gives: its containers, or its stream.

    The hash of each file is compared first. Then it is as in ``graphfix ship``: clips of several
    lengths with garbage behind them, or steps from empty caches to full ones.

    Args:
        source: The model that the folder was made from.
        folder: The folder.
        ep: Where it is proved besides the CPU.
        tolerance: What may differ; by default what the passes promise that the containers went
            through, and of a quantized model how far it differs from itself.
        progress: Called with a short text at each step.

    Raises:
        ModelError: A file of the folder was changed, or was made from a model with other inputs.
        UsageError: The provider is unavailable, or the model cannot have these sizes or states.
        FeedError: The model does not run.
    """
    source, folder = require_path(source), require_path(folder)
    tell = progress or (lambda _: None)
    require_provider(ep)
    tell("comparing the hashes of the files")
    manifest = open_folder(folder)
    scratch = ScratchFolder()  # it goes at the end of this function
    given = change_outputs(source, passes_of(manifest), scratch.path, tell, tolerance)
    _require_names(io.load(given.path), source, folder, manifest)
    allowed = Allowance.of_folder(given.path, folder, manifest, tolerance)
    proof = _FolderVerifier(given.path, source, folder, manifest, ep, allowed, tell)
    if manifest.stream is None:
        return proof.prove_clips()
    return proof.prove_steps(manifest.stream)


def _require_names(model: ir.Model, source: Path, folder: Path, manifest: Manifest) -> None:
    """Raise ModelError where the model lacks an input or output that the folder was made from."""
    groups = (
        ("input", manifest.inputs, model.graph.inputs),
        ("output", manifest.outputs, model.graph.outputs),
    )
    for kind, shipped, own in groups:
        names = [x.name for x in own]
        missing = [x.name for x in shipped if x.name not in names]
        if missing:
            raise ModelError(
                f"{folder / NAME}: it was made from another model than {source}, which has no "
                f"{kind} {missing[0]!r:.80}; the folder has "
                f"{_names_text(x.name for x in shipped)}, and the model {_names_text(names)}"
            )


def _names_text(names: Iterable[str | None]) -> str:
    """Return the first names of several."""
    first = [*map(str, names)]
    more = ", ..." if len(first) > _LISTED else ""
    return f"{', '.join(first[:_LISTED])}{more}"


@dataclass(frozen=True)
class _FolderVerifier:
    """Proves a folder.

    Attributes:
        source: The model, with the outputs that it was shipped with.
        origin: The file that the user gave.
        folder: The folder.
        manifest: Its manifest.
        ep: Where it is proved besides the CPU.
        allowed: How far it may differ.
        tell: Called with a short text at each step.
    """

    source: Path
    origin: Path
    folder: Path
    manifest: Manifest
    ep: Ep
    allowed: Allowance
    tell: pipeline.Progress

    def prove_clips(self) -> FolderProof:
        """Prove each container, and what a session gives."""
        manifest, allowed = self.manifest, self.allowed
        self.tell("running clips on the original")
        model = self._load_named()
        spec = passes_of(manifest)
        model = fix_inputs(model, spec)
        facts = read_facts(
            model,
            str(self.source),
            container_spec_of(manifest),
            own_name(manifest, manifest.axis.dim),
            constants_of(self.source, model),
        )
        self._require_ports({x.name for x in facts.inputs}, {x.name for x in facts.outputs})
        self._require_sizes([dict(x) for x in facts.containers])
        order = ShipOrder(
            self.source,
            facts,
            spec,
            allowed.rule.tolerance,
            USUAL,
            self.ep,
            self.tell,
            allows_own_rounding=allowed.own_rounding,
        )
        padding = order.prove_containers(self.folder, [x.file for x in manifest.containers])
        session = order.prove_session(self.folder)
        return FolderProof(self.folder, padding, session, self._remarks())

    def prove_steps(self, stream: Streaming) -> FolderProof:
        """Prove what a stream gives."""
        manifest, allowed = self.manifest, self.allowed
        plan, constants, tie = stream_plan_of(self.source, manifest, stream)
        self._require_ports({x.name for x in plan.inputs}, {x.name for x in plan.outputs})
        self._require_sizes([dict(x) for x in plan.containers])
        order = StreamOrder(
            self.source,
            plan,
            passes_of(manifest),
            tie,
            allowed.rule,
            self.ep,
            self.tell,
            constants,
            allowed.own_rounding,
        )
        steps, _ = order.play_original(stream.joins, stream.rolls)
        use = order.use_for(stream, steps, may_roll=stream.rolls)
        session = order.prove_on_device(self.folder, use, order.prove(self.folder, use))
        return FolderProof(self.folder, (), session, self._remarks())

    def _load_named(self) -> ir.Model:
        model = io.load(self.source)
        name_dims(model)
        return model

    def _require_ports(self, inputs: set[str], outputs: set[str]) -> None:
        """Raise ModelError where the folder has other inputs or outputs than the model."""
        groups = (
            ("input", inputs, {x.name for x in self.manifest.inputs}),
            ("output", outputs, {x.name for x in self.manifest.outputs}),
        )
        for kind, own, shipped in groups:
            if different := sorted(own ^ shipped):
                raise ModelError(
                    f"{self.folder / NAME}: the {kind} {different[0]!r:.80} is in one of it and "
                    f"{self.origin}, and not in the other; it was made from another model"
                )

    def _require_sizes(self, sizes: list[dict[str, int]]) -> None:
        """Raise ModelError where the model has other dims than the containers have sizes of."""
        shipped = [dict(x.sizes) for x in self.manifest.containers]
        if sizes != shipped:
            raise ModelError(
                f"{self.folder / NAME}: the containers have sizes {shipped[0]}, and of "
                f"{self.origin} they would have {sizes[0]}; it was made from another model"
            )

    def _remarks(self) -> tuple[str, ...]:
        if record_of(self.origin).sha256 == self.manifest.provenance.get("sha256"):
            return ()
        return (f"the folder was made from another file than {self.origin}: their hashes differ",)

"""``graphfix.merge``: two models as one, proved against both one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from graphfix.editing.join import Joined, join_models
from graphfix.engine.pipeline import Progress
from graphfix.errors import ModelError, UsageError
from graphfix.facts import shapes
from graphfix.files import byte_ranges, io
from graphfix.files.atomic_file import require_writable
from graphfix.files.model_input import Dims, ModelLike, as_model, as_path_or_model, sizes_by_dim
from graphfix.files.prepare import normalized_domain
from graphfix.files.weights import Placement
from graphfix.paths import StrPath, require_path
from graphfix.proof.chain import Chain, prove_chain
from graphfix.proof.compare import Tolerance
from graphfix.proof.verdict import Verdict
from graphfix.runtime import memory_need
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.wording import Proof, Row, plural

# What a pass wrote of one model need not hold for both; node metadata stays.
_OWN_METADATA = "graphfix."
_MIB = 2**20
_UNVERIFIED = "write the result without running it (--no-verify)"


@dataclass(frozen=True, repr=False)
class Merged(Proof):
    """The result of a merge; false if it was proved wrong.

    Attributes:
        joined: The model, what its inputs and outputs were called, and what both shared.
        verdict: The verdict; None if it was not verified.
        output: The file that was written, or None.
        converted: The opset that one model was converted from, and the one it was converted to.
    """

    joined: Joined
    verdict: Verdict | None
    output: str | None = None
    converted: tuple[int, int] | None = None

    @property
    def model(self) -> ir.Model:
        """Return the model."""
        return self.joined.model

    @property
    def ok(self) -> bool:
        """Return whether nothing was found against it."""
        return self.verdict is None or self.verdict.ok

    @property
    def renamed(self) -> dict[str, str]:
        """Return the new names of inputs and outputs of the second model, by the old ones."""
        names = {**self.joined.inputs, **self.joined.outputs}
        return {old: new for old, new in names.items() if old != new}

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return the inputs and outputs, what is shared, and the verdict."""
        graph = self.model.graph
        rows = [
            Row("inputs", ", ".join(x.name or "" for x in graph.inputs)),
            Row("outputs", ", ".join(x.name or "" for x in graph.outputs)),
        ]
        if self.joined.shared_inputs:
            rows.append(Row("shared", f"inputs of both: {', '.join(self.joined.shared_inputs)}"))
        if self.joined.shared_weights:
            size = f"{self.joined.shared_bytes / _MIB:.1f} MiB"
            weights = plural(self.joined.shared_weights, "weight")
            rows.append(Row("shared", f"{weights} of both, {size}"))
        rows += [Row("renamed", f"{old} to {new}") for old, new in self.renamed.items()]
        if self.converted is not None:
            rows.append(
                Row("opset", f"one was converted from {self.converted[0]} to {self.converted[1]}")
            )
        if self.verdict is not None:
            rows += self.verdict.rows(verbose=verbose)
        return rows

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        graph = self.model.graph
        return {
            "ok": self.ok,
            "inputs": [x.name for x in graph.inputs],
            "outputs": [x.name for x in graph.outputs],
            "renamed": self.renamed,
            "shared_inputs": list(self.joined.shared_inputs),
            "shared_weights": self.joined.shared_weights,
            "shared_bytes": self.joined.shared_bytes,
            "converted": None if self.converted is None else list(self.converted),
            "verdict": None if self.verdict is None else self.verdict.to_json(),
            "output": self.output,
        }

    def __str__(self) -> str:
        return "merged, not verified" if self.verdict is None else str(self.verdict)


@raises_own_errors
def merge(
    first: ModelLike,
    second: ModelLike,
    connect: Mapping[str, str] | None = None,
    output: StrPath | None = None,
    *,
    check: bool = True,
    dims: Dims | None = None,
    tolerance: Tolerance | None = None,
    external_data: Placement = "auto",
    progress: Progress | None = None,
) -> Merged:
    """Merge two models into one, in which outputs of the first feed the second, and prove it.

    Weights that are the same bytes are stored once. A name that both have gets ``second_`` in front
    in the second; an input that both have under one name, with one type, is one input. Outputs that
    feed the second model are no outputs any more; the pass expose makes them some.

    Args:
        first: The model that runs first: a front end, an embedding.
        second: The model that runs second: an encoder, a decoder.
        connect: The input of the second by the output of the first that feeds it; by default
            those of one name.
        output: Where the model goes; nowhere by default.
        check: Whether to run both models one after the other, and both as one, and to compare.
        dims: Sizes to verify at, by the name of the symbolic dim of the merged model.
        tolerance: What may differ.
        external_data: Where the weights go, see :data:`graphfix.files.weights.Placement`.
        progress: Called with a short text at each step.

    Returns:
        What was merged. If its verdict is not ok, nothing was written.

    Raises:
        UsageError: A name is unknown, two tensors do not fit, or the opsets cannot be made equal.
        ModelError: A model cannot be read or written, or ONNX Runtime rejects it.
        FeedError: There are no inputs that both run.
    """
    tell = progress or (lambda _: None)
    sources = [as_path_or_model(x) for x in (first, second)]
    target = None if output is None else require_path(output)
    files = [Path(x) for x in sources if not isinstance(x, ir.Model)]
    if target is not None:
        byte_ranges.refuse_overwrite(files, target)
        require_writable(target)
    tell("loading")
    models = [_own_copy(x) for x in sources]
    if target is not None:
        for model in models:
            byte_ranges.refuse_overwrite(io.input_files(model), target)
    if check:
        memory_need.check_memory(
            *models, instead="write the result without running it (--no-verify)"
        )
    tell("merging")
    connections = connect or _same_names(*models)
    before, after, converted = *_at_one_opset(*models), _conversion(*models)
    metadata = {**after.metadata_props, **before.metadata_props}
    with normalized_domain(before), normalized_domain(after):
        joined = join_models(before, after, connections)
    shapes.drop_shapes(joined.model)
    joined.model.metadata_props.clear()
    joined.model.metadata_props.update(
        {k: x for k, x in metadata.items() if not k.startswith(_OWN_METADATA)}
    )
    chain = Chain(sources[0], sources[1], connections, joined)
    sizes = sizes_by_dim(dims)

    def prove(whole: StrPath | ir.Model) -> Verdict | None:
        if not check:
            return None
        return prove_chain(
            chain,
            whole,
            dims=sizes,
            tolerance=tolerance,
            progress=lambda step: tell(f"verifying {step}"),
        )

    if target is None:
        return Merged(joined, prove(joined.model), None, converted)
    with io.draft_model(joined.model, target, external_data=external_data) as draft:
        verdict = prove(draft.path)
        if verdict is None or verdict.ok:
            draft.keep()
            return Merged(joined, verdict, str(target), converted)
    return Merged(joined, verdict, None, converted)


def _own_copy(source: StrPath | ir.Model) -> ir.Model:
    return source.clone() if isinstance(source, ir.Model) else as_model(source)


def _same_names(first: ir.Model, second: ir.Model) -> dict[str, str]:
    """Return the outputs of the first model that are inputs of the second by their names."""
    inputs = {x.name for x in second.graph.inputs}
    names = [x.name or "" for x in first.graph.outputs]
    connections = {x: x for x in names if x in inputs}
    if not connections:
        raise UsageError(
            f"no output of the first model ({', '.join(names)}) has the name of an input of the "
            f"second ({', '.join(x.name or '' for x in second.graph.inputs)}); say "
            "--connect OUTPUT=INPUT"
        )
    return connections


def _opset_of(model: ir.Model) -> int:
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 0))


def _conversion(first: ir.Model, second: ir.Model) -> tuple[int, int] | None:
    opsets = sorted(map(_opset_of, (first, second)))
    return None if opsets[0] == opsets[1] else (opsets[0], opsets[1])


def _at_one_opset(first: ir.Model, second: ir.Model) -> tuple[ir.Model, ir.Model]:
    """Return both models at the higher of their opsets.

    Raises:
        UsageError: The other cannot be converted.
    """
    for domain in first.opset_imports.keys() & second.opset_imports.keys() - {"", "ai.onnx"}:
        versions = [x.opset_imports[domain] for x in (first, second)]
        if versions[0] != versions[1]:
            raise UsageError(
                f"the models import {domain} at versions {versions[0]} and {versions[1]}; export "
                "both with one"
            )
    opset = max(map(_opset_of, (first, second)))
    before, after = (x if _opset_of(x) == opset else _convert(x, opset) for x in (first, second))
    return before, after


def _convert(model: ir.Model, opset: int) -> ir.Model:
    own = _opset_of(model)
    try:
        proto: Any = onnx.version_converter.convert_version(ir.to_proto(model), opset)
        return io.from_proto(proto)
    except (RuntimeError, ValueError, ModelError) as error:
        raise UsageError(
            f"one model is of opset {own} and the other of {opset}, and ONNX's converter cannot "
            f"convert it ({str(error).strip()[:200]}); export both with one opset"
        ) from error

"""What WebGPU did with a model, beside what was predicted."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.job import planning
from graphfix.providers.table import PROVIDERS
from graphfix.runtime.profiling import read_placement
from graphfix.runtime.python import runner_for
from graphfix.runtime.remote import RemoteSession

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.runtime.port import Array, Feeds

_COPIES = ("MemcpyFromHost", "MemcpyToHost")


@dataclass(frozen=True)
class Comparison:
    """The nodes that ran, each as predicted or elsewhere.

    Attributes:
        right: How many ran where they were predicted to.
        elsewhere: Those that did not: name, operator, provider.
        unknown: Those that the prediction does not have, such as what ONNX Runtime made for WebGPU.
        on_device: How many ran on WebGPU, and on the CPU in ``on_cpu``.
    """

    right: int
    elsewhere: tuple[tuple[str, str, str], ...]
    unknown: tuple[tuple[str, str, str], ...]
    on_device: int
    on_cpu: int


def run(model: ir.Model, feeds: Feeds) -> tuple[dict[str, Array], Comparison]:
    """The outputs on WebGPU, and where the nodes ran."""
    plan = planning.plan(model, ep="webgpu")
    predicted = {tuple(x.name.split(" ", 1)): x.on for x in plan.steps if x.on != "copy"}
    where = {PROVIDERS[ep].ort_name: ep for ep in ("cpu", "webgpu")}
    with closing(RemoteSession(model, runner_for("webgpu"), profile=True)) as session:
        outputs = session.run(feeds)
        nodes = read_placement(session.end_profile()).nodes
    right, elsewhere, unknown = 0, [], []
    ran = [x for x in nodes if x.op not in _COPIES]
    for node in ran:
        wanted = predicted.pop((node.op, node.name), None)
        row = (node.name, node.op, node.provider)
        if wanted is None:
            unknown.append(row)
        elif wanted == where[node.provider]:
            right += 1
        else:
            elsewhere.append(row)
    # What ONNX Runtime fuses it names anew in each session.
    left = Counter((op, on) for (op, _), on in predicted.items())
    strange = []
    for row in unknown:
        kind = row[1], where[row[2]]
        if left[kind]:
            left[kind] -= 1
            right += 1
        else:
            strange.append(row)
    on_device = sum(where[x.provider] == "webgpu" for x in ran)
    return outputs, Comparison(
        right, tuple(elsewhere), tuple(strange), on_device, len(ran) - on_device
    )

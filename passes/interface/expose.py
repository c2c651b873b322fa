"""expose: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Readings, Skip, ValueMatch
from graphfix.errors import UsageError
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.dims import GENERATED_SYMBOL
from graphfix.graph.text import node_label
from graphfix.graph.walks import graphs_of, values_of
from graphfix.wording import did_you_mean

from ._former_names import former_names


@dataclass(frozen=True)
class Expose(Pass):
    """Makes a tensor inside the graph an output as well.

    Why:
        Hidden states, alignments or the frames before a projection are there in each run, and an
        export gives back the last ones only. Made an output before other passes run, the tensor
        keeps its name, and no fusion takes it away.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 3] x, float[3, 4] w, float[4, 5] v) => (float[B, T, 5] logits)
        {
            hidden = MatMul (x, w)
            logits = MatMul (hidden, v)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 3] x, float[3, 4] w, float[4, 5] v)
            => (float[B, T, 5] logits, float[B, T, 4] hidden)
        {
            hidden = MatMul (x, w)
            logits = MatMul (hidden, v)
        }

    Safety:
        Exact: the tensor is compared with the same tensor of the original. One that a pass has made
        is in no original, and nothing is compared. Type and dims are those that inference finds; a
        tensor of unknown type, and one in the branch of an If or the body of a Loop, is an error.
        On DirectML an output that an activation alone reads needs keep-output, which `directml`
        has: `-p expose:tensor=NAME,directml`.

    Options:
        tensor: The tensors, joined by +.

    Spec:
        expose:tensor=hidden
    """

    may_change = frozenset({"outputs"})

    tensor: str = ""

    @property
    def _names(self) -> list[str]:
        return [x for x in self.tensor.split("+") if x]

    def sites(self, model: ir.Model) -> Iterator[ValueMatch | Skip]:
        """Yield the tensors that would become outputs."""
        node = next(iter(model.graph), None)
        if node is None:
            return
        if not self._names:
            yield Skip(node, f"no tensor is given; {self.name}:tensor=NAME would name one")
            return
        outputs = {x.name for x in model.graph.outputs}
        values = {x.name: x for node in model.graph for x in node.outputs if x.name}
        for name in self._names:
            if name in outputs or name in former_names(model):
                continue
            value = values.get(name)
            maker = None if value is None else value.producer()
            if value is None or maker is None:
                raise UsageError(f"{self.name}: {_why_missing(model, name, list(values))}")
            if View(model).shapes.dtype(value) is None:
                raise UsageError(
                    f"{self.name}: the type of {name!r} is unknown, and an output has one; it is "
                    f"made by {node_label(maker)}"
                )
            yield ValueMatch(maker, value)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Append the tensors to the outputs."""
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            _append_output(model, site.value)
            text = f"output {site.value.name}: {site.value.type}{site.value.shape or ''}"
            yield Change(self.name, node_label(site.node), site.value.name or "", (), (text,))

    def message(self, site: Match) -> str:
        """Describe the tensor."""
        assert isinstance(site, ValueMatch)
        return f"{site.value.name!r} would be an output"

    def add_references(self, model: ir.Model) -> None:
        """Make the same tensors outputs of the original, as far as it has them."""
        outputs = {x.name for x in model.graph.outputs}
        for node in list(model.graph):
            for value in node.outputs:
                if value.name in self._names and value.name not in outputs:
                    _append_output(model, value)

    def read_outputs(self, new: Readings, old: Readings) -> Readings:
        """Return the outputs: those of the original are among them."""
        return new


def _append_output(model: ir.Model, value: ir.Value) -> None:
    """Make a value an output, of the type and the dims that inference finds."""
    shapes = View(model).shapes
    dtype, dims = shapes.dtype(value), shapes.dims(value)
    if value.type is None and dtype is not None:
        value.type = ir.TensorType(dtype)
    if value.shape is None and dims is not None:
        spelling = DimSpelling(model)
        named = [None if GENERATED_SYMBOL.search(str(x)) else spelling.to_declared(x) for x in dims]
        value.shape = ir.Shape(named)
    model.graph.outputs.append(value)


def _why_missing(model: ir.Model, name: str, names: list[str]) -> str:
    graph = model.graph
    if any(x.name == name for x in graph.inputs):
        return f"{name!r} is an input"
    if name in graph.initializers:
        return f"{name!r} is a weight"
    inner = (x.name for x in values_of(x for x in graphs_of(graph) if x is not graph))
    if name in inner:
        return (
            f"{name!r} is inside the branch of an If or the body of a Loop or Scan, and only "
            "tensors of the main graph can be outputs; fold removes branches that are never taken"
        )
    return f"there is no tensor {name!r}{did_you_mean(name, names)}"

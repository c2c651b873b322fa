"""select-output: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Readings, Skip, ValueMatch
from graphfix.editing.orphans import remove_orphans
from graphfix.errors import UsageError
from graphfix.graph.text import node_label
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean

from ._former_names import former_names, record_former


@dataclass(frozen=True)
class SelectOutput(Pass):
    """Keeps the named outputs, and removes the others with what only they need.

    Why:
        Every output is copied from the device in each run, whether it is read or not, and computed:
        exports give back hidden states, attention weights or lengths that nobody uses. ONNX
        Runtime skips neither, unless each run names the outputs that it wants.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 3] x, float[3, 5] w, float[3, 3] v)
            => (float[B, T, 5] logits, float[B, T, 3] hidden)
        {
            logits = MatMul (x, w)
            mixed = MatMul (x, v)
            hidden = Tanh (mixed)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[B, T, 3] x, float[3, 5] w, float[3, 3] v) => (float[B, T, 5] logits)
        {
            logits = MatMul (x, w)
        }

    Safety:
        Exact for the outputs that are kept; of the others nothing is compared, and the verdict says
        so. Inputs stay, also those that nothing reads any more. What continues a state in the next
        run is an output to keep.

    Options:
        keep: The outputs that stay, joined by +, in the order of the model.

    Spec:
        select-output:keep=logits
    """

    may_change = frozenset({"outputs"})

    keep: str = ""

    @property
    def _kept(self) -> list[str]:
        return [x for x in self.keep.split("+") if x]

    def sites(self, model: ir.Model) -> Iterator[ValueMatch | Skip]:
        """Yield the outputs that would go."""
        outputs = {x.name or "": x for x in model.graph.outputs}
        node = next(iter(model.graph), None)
        if node is None or not outputs:
            return
        if not self._kept:
            first = quote_name(next(iter(outputs)))
            yield Skip(node, f"no output is given; {self.name}:keep={first} would keep one alone")
            return
        for name in self._kept:
            if name not in outputs and name not in former_names(model):
                hint = did_you_mean(name, outputs)
                raise UsageError(
                    f"{self.name}: there is no output {name!r}{hint} There are: "
                    f"{', '.join(outputs)}"
                )
        if not outputs.keys() & {*self._kept}:
            return  # it ran already, and they have other names now
        for name, value in outputs.items():
            if name not in self._kept:
                yield ValueMatch(value.producer() or node, value)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Remove the outputs and what made them."""
        sites = list(self.sites(model))
        yield from (x for x in sites if isinstance(x, Skip))
        dropped = [x for x in sites if isinstance(x, ValueMatch)]
        places = [node_label(x.node) for x in dropped]
        outputs = [x for x in model.graph.outputs if all(x is not y.value for y in dropped)]
        if dropped:
            model.graph.outputs.clear()
            model.graph.outputs.extend(outputs)
            record_former(model, [x.value.name or "" for x in dropped])
        for site, at in zip(dropped, places, strict=True):
            name = site.value.name or ""
            lines = remove_orphans([site.value], {})
            removed = tuple(x.render() for x in lines) or (f"output {name}",)
            yield Change(self.name, at, name, removed, ())

    def message(self, site: Match) -> str:
        """Describe the output that would go."""
        assert isinstance(site, ValueMatch)
        return f"output {site.value.name!r} would be removed"

    def outputs(self, old: Readings) -> Readings:
        """Return the outputs that stay."""
        kept = self._kept
        return {name: x for name, x in old.items() if name in kept} if kept else old

    def read_outputs(self, new: Readings, old: Readings) -> Readings:
        """Return None for the outputs that go."""
        kept = self._kept
        dropped = {name: None for name in old if kept and name not in kept}
        return {**new, **dropped}

"""fix-input: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Skip
from graphfix.errors import UsageError
from graphfix.facts import fixed_inputs
from graphfix.lengths.length_input import KEY as LENGTHS
from graphfix.lengths.length_input import LengthInput
from graphfix.spec.options import Texts
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean


@dataclass(frozen=True)
class ValueSite(Match):
    """An input that becomes a constant; ``node`` is its first user.

    Attributes:
        value: The input.
        text: Its value, as it was given.
    """

    value: ir.Value
    text: str


@dataclass(frozen=True)
class FixInput(Pass):
    """Bakes an input in as a constant, and removes the input.

    Why:
        A selector input, such as a sample rate, a language or a flag, is the same in every run of a
        deployment. While it is an input, an If that depends on it holds both of its branches, and
        a graph with an If or a Loop is not fused by DirectML (GraphPartitioner.cpp 145-245, which
        asks whether a node has subgraphs); `fold` takes away what a constant decides. DirectML
        also copies what it needs on the CPU, such as sizes, only where that is no initializer.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scaled (float[N, T] x, int64 rate) => (float[N, T] y)
        {
            hz = Cast <to = 1> (rate)
            y = Div (x, hz)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scaled (float[N, T] x) => (float[N, T] y)
        <int64 rate = {16000}>
        {
            hz = Cast <to = 1> (rate)
            y = Div (x, hz)
        }

    Safety:
        Exact at the given value, at which it is verified: the original is fed that value, the
        repaired model is not fed at all. A value that the type of the input cannot hold, and one
        for a shape that is not known, is an error, and so is another value for an input that is a
        constant already.

    Options:
        values: The value of each input, by its name: `fix-input:sr=16000:is_last=1`, or with a
            comma between them. One number fills a tensor, several are its elements in their order:
            `fix-input:lens=3,4`. `true` and `false` are numbers, too. A dim of the input that has
            no size gets one first: `fix-dims:B=1,fix-input:lens=7`.

    Spec:
        fix-input:rate=16000
    """

    # No may_change: the metadata names what is gone and how it was fed, so that all else of the
    # interface is still held to what it was.

    values: Texts = ()

    def sites(self, model: ir.Model) -> Iterator[ValueSite | Skip]:
        """Yield the inputs that would become constants."""
        inputs, fixed_texts = (
            {x.name: x for x in model.graph.inputs},
            fixed_inputs.fixed_input_texts(model),
        )
        for name, text in self.values:
            if fixed_texts.get(name, text) != text:
                raise UsageError(f"{self.name}: {name} is {fixed_texts[name]} already")
            value = inputs.get(name)
            if value is None and name in fixed_texts:
                continue
            if value is None:
                raise UsageError(self._unknown_input_message(name, [str(x) for x in inputs]))
            try:
                fixed_inputs.parse_input_value(value, text)
            except ValueError as error:
                raise UsageError(f"{self.name}: {error}") from error
            users = [use.node for use in value.uses()] or list(model.graph)
            if users:
                yield ValueSite(users[0], value, text)
        if not self.values and inputs and len(model.graph):
            first = quote_name(next(iter(inputs)) or "")
            reason = f"no value is given; fix-input:{first}=VALUE would fix the first input"
            yield Skip(model.graph[0], reason)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Replace each input with a constant of the same name."""
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            value, array = site.value, fixed_inputs.parse_input_value(site.value, site.text)
            name = value.name or ""
            before = f"{value.type}{value.shape} {name}"
            self._forget_length_input(model, name)
            model.graph.inputs.remove(value)
            value.shape = ir.Shape(array.shape)
            value.const_value = ir.tensor(array, name=name)
            if name in model.graph.initializers:  # its default
                del model.graph.initializers[name]
            if value.uses() or value.is_graph_output():
                model.graph.register_initializer(value)
            fixed_inputs.record_fixed_inputs(model, {name: site.text})
            yield Change(self.name, name, name, (before,), (f"{name} = {site.text}",))

    def message(self, site: Match) -> str:
        """Describe the input and its value."""
        assert isinstance(site, ValueSite)
        return f"input {site.value.name!r} would be the constant {site.text}"

    def _unknown_input_message(self, name: str, input_names: list[str]) -> str:
        """Return the error text for an input that does not exist."""
        hint = did_you_mean(name, input_names)
        return f"{self.name}: there is no input {name!r}{hint} There are: {', '.join(input_names)}"

    def _forget_length_input(self, model: ir.Model, name: str) -> None:
        """Drop the length metadata if it refers to the removed input."""
        length_input = LengthInput.from_metadata(model)
        if length_input is not None and name in (length_input.input, length_input.padded_place[0]):
            del model.metadata_props[LENGTHS]

"""rename: the manual is the docstring of the class."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.cache_axes import cache_input
from graphfix.cache_axes.cache_input import CacheInput
from graphfix.core import Change, Feeds, Match, Pass, Readings, Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.errors import UsageError
from graphfix.graph.dims import dim_names, find_input_axis, is_symbol
from graphfix.graph.walks import graphs_of, values_of
from graphfix.lengths import length_input
from graphfix.lengths.length_input import LengthInput
from graphfix.spec.options import Texts
from graphfix.wording import did_you_mean

from ._former_names import former_names, record_former


@dataclass(frozen=True)
class NameSite(Match):
    """An input, an output or a dim that gets another name; ``node`` is the first of the graph.

    Attributes:
        old: Its name.
        new: The name that it gets.
        value: The input or output; None for a dim.
    """

    old: str
    new: str
    value: ir.Value | None


@dataclass(frozen=True)
class Rename(Pass):
    """Renames inputs, outputs and symbolic dims.

    Why:
        Names are an interface: a host such as sherpa-onnx or a web page asks for `logits` and
        `x_lens`, and an export calls them `onnx::Reshape_1273` and `args_1`. DirectML's free
        dimension overrides take dims by name, and only those that have one.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[N, s12, 3] args_0, float[3, 5] w) => (float[N, s12, 5] y)
        {
            y = MatMul (args_0, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        encoder (float[N, T, 3] x, float[3, 5] w) => (float[N, T, 5] logits)
        {
            logits = MatMul (x, w)
        }

    Safety:
        Exact. A name that another tensor of the graph or of a graph inside it has, or another dim,
        is an error: one would hide the other, or two sizes would be one. Where an entry of the
        metadata names the input, as after ilens-mask, the name can no longer be changed: rename
        first. fix-dims and fix-input take the names of the file: give them before.

    Options:
        names: The new name by the old one: `rename:args_0=x:y=logits`, or with a comma between
            them. If no input or output is called so, it is a dim; `args_0.1` is axis 1 of `args_0`,
            whose dim need not have a name yet.

    Spec:
        rename:args_0=x:y=logits:s12=T
    """

    may_change = frozenset({"inputs", "outputs"})

    names: Texts = ()

    def sites(self, model: ir.Model) -> Iterator[NameSite | Skip]:
        """Yield what would be renamed."""
        node = next(iter(model.graph), None)
        if node is None:
            return
        if not self.names:
            yield Skip(node, f"no name is given; {self.name}:OLD=NEW renames what is called OLD")
        ports = {x.name or "": x for x in (*model.graph.inputs, *model.graph.outputs)}
        dims = _all_dims(model)
        for old, new in self.names:
            axis = find_input_axis(model, old)
            if old in ports:
                self._require_free_name(model, old, new)
                yield NameSite(node, old, new, ports[old])
            elif old in dims:
                self._require_free_dim(model, old, new, dims)
                yield NameSite(node, old, new, None)
            elif axis is not None and old not in former_names(model):
                value, index = axis
                name = dim_names(model).get((value.name or "", index))
                if name is None:
                    size = value.shape[index] if value.shape is not None else "?"
                    raise UsageError(
                        f"{self.name}: {old} is {size}, and only a symbolic dim has a name"
                    )
                self._require_free_dim(model, old, new, dims)
                yield NameSite(node, old, new, None)
            elif old not in former_names(model):
                names = [*ports, *dims]
                raise UsageError(
                    f"{self.name}: there is no input, output or dim {old!r}"
                    f"{did_you_mean(old, names)} There are: {', '.join(names)}"
                )

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Rename each."""
        for site in list(self.sites(model)):
            if isinstance(site, Skip):
                yield site
                continue
            if site.value is not None:
                site.value.name = site.new
                if (maker := site.value.producer()) is not None:
                    maker.metadata_props[PASS_KEY] = self.name  # what it makes has another name
            else:
                _rename_dim(model, site.old, site.new)
            record_former(model, [site.old])
            yield Change(self.name, site.new, site.new, (site.old,), (site.new,))

    def message(self, site: Match) -> str:
        """Describe the name."""
        assert isinstance(site, NameSite)
        kind = "dim" if site.value is None else "tensor"
        return f"{kind} {site.old!r} would be called {site.new!r}"

    def feeds(self, old: Feeds) -> Feeds:
        """Return the feeds under the new names."""
        return {self._new_names.get(name, name): x for name, x in old.items()}

    def outputs(self, old: Readings) -> Readings:
        """Return the outputs under their new names."""
        return {self._new_names.get(name, name): x for name, x in old.items()}

    def read_outputs(self, new: Readings, old: Readings) -> Readings:
        """Return the outputs under their old names."""
        old_names = {y: x for x, y in self.names if x in old}
        return {old_names.get(name, name): x for name, x in new.items()}

    @property
    def _new_names(self) -> Mapping[str, str]:
        return dict(self.names)

    def _require_free_name(self, model: ir.Model, old: str, new: str) -> None:
        for key, names in _names_in_metadata(model).items():
            if old in names:
                raise UsageError(
                    f"{self.name}: the model's {key} names {old!r}; give {self.name} before the "
                    "pass that wrote it"
                )
        if not new or any(x.name == new for x in values_of(graphs_of(model.graph))):
            reason = "another tensor has that name" if new else "a tensor has a name"
            raise UsageError(f"{self.name}: {old!r} cannot be called {new!r}: {reason}")

    def _require_free_dim(
        self, model: ir.Model, old: str, new: str, dims: Mapping[str, None]
    ) -> None:
        if new.isdecimal():
            raise UsageError(f"{self.name}: {new} is a size; fix-dims:{old}={new} gives it")
        if not is_symbol(new):
            raise UsageError(
                f"{self.name}: {new!r} is no name for a dim; use letters, digits and _"
            )
        if new in dims:
            raise UsageError(
                f"{self.name}: the dim {old!r} cannot be called {new!r}: another dim is, and both "
                "would have one size"
            )
        if any(old == x.dim for x in CacheInput.all_from_metadata(model)):
            raise UsageError(f"{self.name}: the dim {old!r} was that of caches; rename it before")


def _names_in_metadata(model: ir.Model) -> dict[str, set[str]]:
    """Return the inputs and outputs that entries of the metadata name, by the entry."""
    lengths = LengthInput.from_metadata(model)
    caches = CacheInput.all_from_metadata(model)
    return {
        length_input.KEY: set() if lengths is None else {lengths.input, lengths.padded_place[0]},
        cache_input.KEY: {
            name
            for x in caches
            for name in (x.input, *(y[0] for y in x.padded), *(z for y in x.states for z in y[:2]))
        },
    }


def _all_dims(model: ir.Model) -> dict[str, None]:
    """Return the names of symbolic dims that the model declares, those of expressions too."""
    texts = (
        dim.value
        for value in values_of(graphs_of(model.graph))
        for dim in value.shape or ()
        if not isinstance(dim, int) and dim.value
    )
    names: dict[str, None] = {}
    for text in texts:
        names[text] = None
        if not is_symbol(text):
            names.update(dict.fromkeys(re.findall(r"[^\W\d][\w.]*", text)))
    return names


def _rename_dim(model: ir.Model, old: str, new: str) -> None:
    """Rename a dim wherever it is declared, or give the one at a place its name."""
    place = find_input_axis(model, old)
    if place is not None and old not in _all_dims(model):
        value, index = place
        name = dim_names(model)[value.name or "", index]
        assert value.shape is not None
        if name in _all_dims(model):
            _rename_dim(model, name, new)
        else:
            value.shape = ir.Shape([new if i == index else x for i, x in enumerate(value.shape)])
        return
    part = re.compile(rf"(?<![\w.]){re.escape(old)}(?![\w.])")

    def rename(dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
        if isinstance(dim, int) or dim.value is None:
            return dim
        return ir.SymbolicDim(new if dim.value == old else part.sub(new, dim.value))

    for value in values_of(graphs_of(model.graph)):
        if value.shape is not None and any(not isinstance(x, int) for x in value.shape):
            value.shape = ir.Shape([rename(x) for x in value.shape])

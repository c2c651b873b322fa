"""The inputs of a model with their roles, and which of their dims must have the same size.

Exporters name dims badly: one batch is ``s72`` in one input and ``s43`` in the next.
:mod:`graphfix.feeds.dim_groups` says which symbols are one size.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.facts.forced_sizes import Wishes
from graphfix.facts.shapes import Shapes, shapes_of
from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.batch_axes import find_batch, rows_of_recurrences, with_axes
from graphfix.feeds.dim_groups import DimGroups, Tie
from graphfix.feeds.dim_names import clone_for_renaming, rename_dims
from graphfix.feeds.forced_dims import fix_forced_dims, group_rules
from graphfix.feeds.input import Input, all_symbols, single_symbol, size_of_dim, symbols
from graphfix.feeds.number_uses import find_number_uses
from graphfix.feeds.roles import UNUSED, Role, roles_of
from graphfix.feeds.states import find_states
from graphfix.graph.dims import find_input_axis
from graphfix.lengths.length_input import LengthInput
from graphfix.runtime.port import Array
from graphfix.spec.quoting import quote_name

T = TypeVar("T")


class Signature:
    """The inputs that have to be fed to a model.

    Args:
        model: The model; it is not changed.
        tie: How to tie symbols that nothing in the graph relates.
        constants: Arrays of inputs that are fed the same in every case.
        length_input: The input that gives valid lengths to a repaired model; the original may
            ignore it.
        granted: Which wishes of the graph for sizes are granted.

    Attributes:
        model: The model with :meth:`symbols` for its dims, and numbers for those that it dictates;
            not to be changed.
        forced: The dims that the graph gives one size only, by the user's names.
        rules: Which sizes the groups may have together.
        contradictions: For a symbol that may have no size, what wants what.
        inputs: Every input that has no default and is not always fed the same.
        constants: The arrays of the other inputs.
        unused: The inputs that the graph does not use.
        batch: The group of the batch, or None.
        times: The groups of symbols that vary, other than the batch; the most important first.
        past: Those of ``times`` that are the lengths of caches, which may be 0.
        fresh: The times that are no lengths of caches.
        derived: Symbols that are expressions of others, with these expressions.
        defaults: The default of each input that need not be fed; empty if there are many or large
            ones: those are weights that an exporter lists among the inputs.
    """

    def __init__(
        self,
        model: ir.Model,
        tie: Tie = "graph",
        constants: Mapping[str, Array] | None = None,
        length_input: LengthInput | None = None,
        *,
        granted: Wishes = "usual",
    ) -> None:
        self.constants = dict(constants or {})
        self.model = clone_for_renaming(model)
        self._names = rename_dims(self.model)
        forced, self._size_rules = fix_forced_dims(self.model, granted)
        self.forced = {self.user_name(x): size for x, size in forced.items()}
        self.contradictions = self._size_rules.contradictions
        self._source, self._length_input = model, length_input
        roles = roles_of(self.model, lambda: self.shapes)
        self.unused = [name for name, role in roles.items() if role.why == UNUSED]
        roles = _as_states(_override_length_role(roles, length_input), self.model)
        fed = [v for v in self.model.graph.inputs if v.name not in self.constants]
        inputs = [_make_input(v, roles) for v in fed if v.name in roles]
        self.defaults = {
            k: x for k, x in _small_defaults(self.model).items() if k not in self.constants
        }
        rows = rows_of_recurrences(self.model, lambda: self.shapes)
        self._batch_dims = find_batch(inputs, self.user_name, rows)
        self.inputs = [with_axes(x, self._batch_dims) for x in inputs]
        self._tie_dims(tie)

    def with_tie(self, tie: Tie) -> "Signature":
        """Return the same inputs with their dims tied otherwise; shapes are inferred once."""
        other = copy.copy(self)
        other._tie_dims(tie)
        return other

    def with_thresholds_of(self, repaired: ir.Model) -> "Signature":
        """Return the same inputs, with the numbers at which a repaired model decides as well."""
        values = {x.name: x for x in repaired.graph.inputs}
        other = copy.copy(self)
        other.inputs = [
            x
            if (value := values.get(x.name)) is None or x.role.why == UNUSED
            else replace(x, role=x.role.with_uses(find_number_uses(value)))
            for x in self.inputs
        ]
        return other

    def _tie_dims(self, tie: Tie) -> None:
        batch = self._batch_dims
        self.tie = tie
        self._dim_groups = DimGroups(self.model, self.inputs, batch, tie, lambda: self.shapes)
        self.batch = self._dim_groups.group_of(min(batch)) if batch else None
        self.derived = self._dim_groups.derived
        self.times, self.past = self._dim_groups.times, self._dim_groups.past
        self.fresh = [x for x in self.times if x not in self.past]
        self.rules = group_rules(self._size_rules, self.symbols(), self.group_of, self.derived)

    def granting(self, wishes: Wishes) -> "Signature":
        """Return the same inputs, with other wishes of the graph for sizes granted."""
        tie, constants, length_input = self.tie, self.constants, self._length_input
        return Signature(self._source, tie, constants, length_input, granted=wishes)

    def unused_input_notes(self) -> list[str]:
        """Return a sentence for each input that the graph does not use."""
        notes = []
        for name in self.unused:
            text = f"the graph does not use the input {name!r}: what it says is not heard"
            item = next((x for x in self.inputs if x.name == name), None)
            if item is not None and item.role.kind == "int" and re.search("len", name, re.I):
                text += f"; -p ilens-mask:from={quote_name(name)} has it heard"
            notes.append(text)
        return notes

    @cached_property
    def shapes(self) -> Shapes:
        """Return symbolic shapes in the symbols of :attr:`inputs`, inferred at the first use."""
        return shapes_of(self.model)

    def output_dims(self) -> dict[str, tuple[Dim, ...] | None]:
        """Return the inferred dims of each graph output, in the symbols of :attr:`inputs`."""
        return {v.name or "": self.shapes.dims(v) for v in self.model.graph.outputs}

    def value_dims(self) -> dict[str, tuple[Dim, ...]]:
        """Return the inferred dims of every tensor that a node of the main graph makes."""
        outputs = (x for node in self.model.graph for x in node.outputs if x.name)
        return {x.name or "": dims for x in outputs if (dims := self.shapes.dims(x)) is not None}

    @property
    def groups(self) -> list[str]:
        """Return the groups of symbols that vary: the batch, if any, and the times."""
        return [*([self.batch] if self.batch else []), *self.times]

    def group_sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each group, from the sizes of a case by the user's names."""
        return {g: dims[self.user_name(g)] for g in self.groups}

    def input_named(self, name: str) -> Input:
        """Return the input of that name."""
        return next(x for x in self.inputs if x.name == name)

    def group_of(self, symbol: str) -> str:
        """Return the symbol that represents all symbols of the same size as ``symbol``."""
        return self._dim_groups.group_of(symbol)

    def symbols_in(self, group: str) -> list[str]:
        """Return every input symbol of ``group``."""
        return [s for s in self.symbols() if self._dim_groups.group_of(s) == group]

    @property
    def batch_symbols(self) -> frozenset[str]:
        """Return every input symbol of the batch; none if there is no batch."""
        return frozenset(self.symbols_in(self.batch)) if self.batch else frozenset()

    def row_axis(self, dims: Sequence[Dim]) -> int | None:
        """Return the axis of the batch in these dims, or None."""
        batch = self.batch_symbols
        return next((axis for axis, dim in enumerate(dims) if symbols(dim) & batch), None)

    def symbols(self) -> list[str]:
        """Return every symbol of the inputs, in order of appearance."""
        return all_symbols(self.inputs)

    def symbol_sizes(self, groups: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each symbol, for a size of each group."""
        sizes = {s: groups[self.group_of(s)] for s in self.symbols() if s not in self.derived}
        for symbol, dim in self.derived.items():
            sizes[symbol] = size_of_dim(dim, sizes)
        return sizes

    def user_name(self, symbol: str) -> str:
        """Return the model's own name of a symbol."""
        return self._names.get(symbol, symbol)

    def symbol_of(self, name: str) -> str | None:
        """Return the symbol that a user calls ``name`` or addresses as ``x.0``, or None.

        If no dim has the name, ``B`` is the batch, and ``T`` the only other dim that varies.
        """
        for symbol in self.symbols():
            if name in (symbol, self.user_name(symbol)):
                return symbol
        if name in ("B", "batch"):
            return self.batch
        if name == "T" and len(self.fresh) == 1:
            return self.fresh[0]
        at = find_input_axis(self.model, name)
        if at is None or at[0].shape is None:
            return None
        symbol = single_symbol(at[0].shape[at[1]]) or ""
        return symbol if symbol in self.symbols() else None

    def require_forced(self, name: str, sizes: Sequence[int]) -> bool:
        """Return whether the graph dictates the size of a dim, which then needs no other.

        Raises:
            FeedError: It dictates another than one of ``sizes``.
        """
        forced = self.forced.get(name)
        if forced is None:
            return False
        if any(size != forced.size for size in sizes):
            other = next(size for size in sizes if size != forced.size)
            runs_at = f"does not run at {other}" if forced.sure else "seldom runs at another size"
            raise FeedError(
                f"{quote_name(name)} is {forced.size}, as {forced.source} wants it: the model "
                f"{runs_at}{self.thaw_hint}"
            )
        return True

    @property
    def thaw_hint(self) -> str:
        """Return what to try where a trace may have fixed a size, or an empty string."""
        thawable = any(x.may_be_thawed for x in self.forced.values())
        return "; graphfix run MODEL -p thaw frees it or says why not" if thawable else ""

    def key_by_symbol(self, by_name: Mapping[str, T]) -> dict[str, T]:
        """Return a mapping by the user's names, keyed by symbols instead."""
        return {self.symbol_of(name) or name: x for name, x in by_name.items()}

    def time_of(self, item: Input) -> str | None:
        """Return the group along which ``item`` is ragged, or None."""
        if item.time is not None:
            dim = item.dims[item.time]
            symbol = single_symbol(dim)
            if symbol is not None and symbol not in self.derived:
                return self.group_of(symbol)
            total = dim if symbol is None else self.derived[symbol]
            return None if isinstance(total, int) else self._new_tokens_group(total)
        if item.role.kind in ("lengths", "relative-lengths", "cu-lengths"):
            partner = self._dim_groups.described_input(item)
            return None if partner is None else self.time_of(partner)
        return None

    def _new_tokens_group(self, dim: ir.SymbolicDim) -> str | None:
        """Return the group of new tokens in a sum such as ``past + tokens``."""
        groups = {self.group_of(s) for s in dim.free_symbols()}
        return next((t for t in self.fresh if t in groups), None)


# More or larger inputs with a default are weights.
_FEW_DEFAULTS, _SMALL = 8, 4096


def _override_length_role(
    roles: Mapping[str, Role], length_input: LengthInput | None
) -> dict[str, Role]:
    """Return the roles, with that of the length input as a repair takes it."""
    role = roles.get(length_input.input) if length_input is not None else None
    if length_input is None or role is None or (role.kind == length_input.kind and role.sure):
        return dict(roles)
    return {**roles, length_input.input: Role(length_input.kind, "a repair takes it for that")}


def _as_states(roles: Mapping[str, Role], model: ir.Model) -> dict[str, Role]:
    """Return the roles; what is no sure mask is data where an output continues it.

    Scales of a quantized cache are multiplied with it, as a mask is.
    """
    masks = {name for name, x in roles.items() if x.kind == "mask" and not x.sure}
    states = {x.input for x in find_states(model)} if masks else set()
    return {
        name: Role("data", "an output continues it") if name in masks & states else role
        for name, role in roles.items()
    }


def _small_defaults(model: ir.Model) -> dict[str, Array]:
    initializers = ((v.name or "", v.const_value) for v in model.graph.inputs if v.is_initializer())
    tensors = {name: tensor for name, tensor in initializers if tensor is not None}
    if len(tensors) > _FEW_DEFAULTS or any(x.size > _SMALL for x in tensors.values()):
        return {}
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _make_input(value: ir.Value, roles: Mapping[str, Role]) -> Input:
    name = value.name or ""
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.STRING:
        return Input(name, object, (), roles[name], problem=f"its type is {value.type}")
    dtype = value.type.dtype.numpy()
    if value.shape is None:
        return Input(name, dtype, (), roles[name], problem="the model does not say its rank")
    return Input(name, dtype, tuple(value.shape), roles[name])

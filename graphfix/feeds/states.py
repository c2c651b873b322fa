"""States: inputs that take in the next step what an output returned in this one.

A decoder's cache, the hidden state of a recurrence, the left context of a streaming Conv. Nothing
in a graph says which input belongs to which output; exporters say it in names, ``past`` and
``present``, ``in_cache0`` and ``out_cache0``, ``conv_h`` and ``new_conv_h``. Names that agree in
all other words are a pair, if types and shapes agree too.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.symbolic.expressions import dim_of, expr_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.symbolic.sums import subtract_dims
from graphfix.feeds.input import single_symbol, symbols
from graphfix.feeds.roles import roles_of
from graphfix.graph.dims import contradicts_shape
from graphfix.graph.nodes import is_op
from graphfix.runtime.port import Array, Feeds

# Words of a name for the direction of a state; the other words say which state it is.
_DIRECTION_WORDS = frozenset(
    {"past", "present", "prev", "previous", "next", "new", "old", "cur", "current", "updated"}
    | {"last", "cached", "in", "out", "input", "output", "i", "o", "n"}
)
# Of these, the ones that only an output has that an input of the same name takes.
_NEXT_WORDS = frozenset({"new", "next", "updated", "present"})
_STATES = frozenset(
    {"past", "present", "prev", "previous", "cache", "caches", "cached", "state", "states"}
    | {"mem", "memory", "memories", "buf", "buffer", "context"}
)
# Numbers of how much came before; an output of the same name is the next one.
_COUNTERS = frozenset(
    {"offset", "pos", "position", "processed", "seen", "step", "counter", "count", "index"}
)
# Words that only say that something is a state; a stem may lack them on one side.
_KINDS = frozenset({"cache", "state"})
# Of an LSTM: h, h0, hn, c0, h_0, hx, prev_h, h1.
_RECURRENT = re.compile(r"(?P<letter>[hcs])_?[0-9ntxy]?", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

Stem = tuple[str, ...]


@dataclass(frozen=True)
class StatePair:
    """An input and the output that feeds it in the next step.

    Attributes:
        input: The input's name.
        output: The output's name.
    """

    input: str
    output: str

    def __str__(self) -> str:
        return f"{self.output} to {self.input}"


def find_states(model: ir.Model) -> tuple[StatePair, ...]:
    """Return the states of a model in the order of its inputs; none where pairs are ambiguous.

    Inputs and outputs are paired by name first: ``past_key_values.0.decoder.key`` with
    ``present.0.decoder.key``. The remaining inputs and outputs that are called states are paired in
    order, if there are as many of both and their dtypes and shapes fit.

    An input that is not called a state is one only if its output is called the next of it, or both
    are numbered alike, and its dims are its own: what is as long as another input is data.
    """
    inputs, outputs = _free_inputs(model), [x for x in model.graph.outputs if x.name]
    output_by_input = _pair_by_name(inputs, outputs)
    if not any(map(_is_content, _without(inputs, output_by_input))):
        # Nothing would be left to feed, so that what is not called a state is the content.
        output_by_input = {k: x for k, x in output_by_input.items() if is_state_name(k)}
    output_by_input |= _pair_by_affix(inputs, outputs, output_by_input)
    output_by_input |= _pair_in_order(
        [x for x in _without(inputs, output_by_input) if is_state_name(_name_of(x))],
        [x for x in _without(outputs, output_by_input.values()) if is_state_name(_name_of(x))],
    )
    names = [x for x in map(_name_of, inputs) if x in output_by_input]
    return tuple(StatePair(name, output_by_input[name]) for name in names)


def find_states_by_shape(
    model: ir.Model, states: Iterable[StatePair], outputs: Sequence[ir.Value]
) -> tuple[StatePair, ...]:
    """Return states that only order and shape tell, if one assignment is possible.

    Each remaining input of a shape continues an output of that shape, or of one that is longer
    along one dim, in order, if there are as many of both; and some other input and output remain,
    since they are what the model is for.

    Args:
        model: The model.
        states: The states that are known already.
        outputs: The outputs of the model, with the shapes that are inferred for them.
    """
    known = {name for x in states for name in (x.input, x.output)}
    # Where names tell some states, the first input and output are what the model is for: a frame,
    # and the frame that is predicted.
    ends = {x[0].name for x in (_free_inputs(model), outputs) if x} if known else set()
    inputs, outputs = _without(_free_inputs(model), known), _without(outputs, known)
    pairs = _pair_by_growth(inputs, outputs)
    grown = {x.name for pair in pairs for x in pair} | ends
    pairs += _pair_by_kind(_without(inputs, grown), _without(outputs, grown))
    # Embeddings of one entry look like the hidden state that comes out.
    has_content = _has_content(model, _without(inputs, {before.name for before, _ in pairs}))
    if not has_content or len(pairs) == len(outputs):
        return ()
    return tuple(StatePair(_name_of(x), _name_of(y)) for x, y in pairs)


def _without(values: Iterable[ir.Value], names: Collection[str | None]) -> list[ir.Value]:
    return [x for x in values if x.name not in names]


def _name_of(value: ir.Value) -> str:
    return value.name or ""


def _pair_by_kind(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
) -> list[tuple[ir.Value, ir.Value]]:
    """Pair inputs with outputs of their type and fixed size, in order; none if orders differ."""
    # What is as long as nothing else is data, and no state of fixed size.
    candidates = [x for x in inputs if _has_own_dims(x, x, inputs) and not _indexes_table(x)]
    kinds, output_kinds = (Counter(map(_kind_of, x)) for x in (candidates, outputs))
    shared = {kind for kind, n in kinds.items() if kind and output_kinds[kind] == n}
    before = [x for x in candidates if _kind_of(x) in shared]
    after = [x for x in outputs if _kind_of(x) in shared]
    in_one_order = [*map(_kind_of, before)] == [*map(_kind_of, after)]
    return list(zip(before, after, strict=True)) if in_one_order else []


def _has_content(model: ir.Model, inputs: Iterable[ir.Value]) -> bool:
    """Return whether some input is what the model is for; masks and lengths only say of it."""
    roles = roles_of(model)
    return any(
        _is_content(x) and roles[_name_of(x)].kind not in ("mask", "positions", "lengths")
        for x in inputs
    )


def _pair_by_growth(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
) -> list[tuple[ir.Value, ir.Value]]:
    """Pair inputs with outputs that are longer along one dim, in order, where as many fit."""
    inputs_by_outputs: dict[tuple[str | None, ...], list[ir.Value]] = {}
    # New entries come out as frames or logits, earlier ones in what is longer alone.
    of_new = {single_symbol(d) for x in outputs for d in x.shape or ()} - {None}
    for value in inputs:
        growing_dims = {x.name: _growing_dim(value, x) for x in outputs}
        longer = tuple(name for name, dim in growing_dims.items() if dim not in {None, *of_new})
        inputs_by_outputs.setdefault(longer, []).append(value)
    outputs_by_name = {x.name: x for x in outputs}
    named = Counter(name for names in inputs_by_outputs for name in names)
    return [
        (value, outputs_by_name[name])
        for names, values in inputs_by_outputs.items()
        if len(names) == len(values) and {named[x] for x in names} == {1}
        for value, name in zip(values, names, strict=True)
    ]


def _growing_dim(value: ir.Value, output: ir.Value) -> str | None:
    """Return the one dim of an input along which an output of its type is longer, or None."""
    if value.dtype != output.dtype or value.shape is None or output.shape is None:
        return None
    if len(value.shape) != len(output.shape) or len(value.shape) < 2:
        return None
    dims = [(x, y) for x, y in zip(value.shape, output.shape, strict=True) if str(x) != str(y)]
    own = single_symbol(dims[0][0]) if len(dims) == 1 else None
    if own is None or isinstance(dims[0][1], int):
        return None
    growth = expr_of(subtract_dims(dims[0][1], dims[0][0]))
    grows = growth != 0 and own not in symbols(dim_of(growth)) and never_negative(growth)
    return own if grows else None


def unpaired_states(model: ir.Model, states: Iterable[StatePair]) -> tuple[str, ...]:
    """Return the free inputs that look like states and are none of ``states``.

    They are called states, or are of fixed size, and an output that is no state has their type and
    shape.
    """
    known = {name for x in states for name in (x.input, x.output)}
    kinds = {_kind_of(x) for x in model.graph.outputs if x.name not in known} - {None}
    inputs = _free_inputs(model)

    def looks_like_state(value: ir.Value) -> bool:
        has_twin = _kind_of(value) in kinds and _has_own_dims(value, value, inputs)
        return is_state_name(_name_of(value)) or has_twin

    return tuple(_name_of(x) for x in inputs if x.name not in known and looks_like_state(x))


def expand_state_globs(model: ir.Model, states: Iterable[StatePair]) -> tuple[StatePair, ...]:
    """Return the states that patterns such as ``cached_*=new_cached_*`` stand for.

    What the input's ``*`` stand for is put in place of the output's, one by one. A pattern that
    matches no input is returned as it is.
    """
    names = [_name_of(x) for x in model.graph.inputs]
    expanded: dict[StatePair, None] = {}
    for state in states:
        pattern = ".*".join(map(re.escape, state.input.split("*"))).replace(".*", "(.*)")
        matches = [] if state.input in names else [re.fullmatch(pattern, x) for x in names]
        pairs = [StatePair(x[0], _fill_stars(state.output, x.groups())) for x in matches if x]
        expanded |= dict.fromkeys(pairs or [state])
    return tuple(expanded)


def _fill_stars(pattern: str, texts: Iterable[str]) -> str:
    for text in texts:
        pattern = pattern.replace("*", text, 1)
    return pattern


def _free_inputs(model: ir.Model) -> list[ir.Value]:
    return [x for x in model.graph.inputs if x.name and not x.is_initializer()]


def _pair_by_name(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> dict[str, str]:
    """Return the output of each input that has one namesake: by all words first, then by fewer."""
    output_by_input: dict[str, str] = {}
    for is_alike in _LIKENESSES:
        fitting = [
            (_name_of(x), _name_of(y))
            for x in _without(inputs, output_by_input)
            for y in _without(outputs, output_by_input.values())
            if is_alike(_state_stem(_name_of(y)), _state_stem(_name_of(x)))
            and _can_feed(x, y)
            and _is_continued(x, y, inputs)
        ]
        input_counts, output_counts = Counter(x for x, _ in fitting), Counter(y for _, y in fitting)
        output_by_input |= {
            x: y for x, y in fitting if input_counts[x] == 1 and output_counts[y] == 1
        }
    return output_by_input


def _pair_by_affix(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the pairs that are named as known states are: ``out_`` in front of the input's name.

    They are floats, and not the first input, which is what a model is fed.
    """
    affixes = {
        tuple(output.split(name))
        for name, output in known.items()
        if output != name and output.count(name) == 1
    }
    outputs_by_name = {x.name or "": x for x in outputs if x.name not in known.values()}
    pairs = {}
    for value, (before, after) in itertools.product(inputs[1:], sorted(affixes)):
        output = outputs_by_name.get(f"{before}{value.name}{after}")
        if (
            output is not None
            and value.name not in known
            and value.dtype is not None
            and value.dtype.is_floating_point()
            and _can_feed(value, output)
        ):
            pairs[value.name or ""] = output.name or ""
    return pairs


def _is_continued(value: ir.Value, output: ir.Value, inputs: Sequence[ir.Value]) -> bool:
    """Return whether an output of the same stem is the next of an input, and not made of it."""
    name = _name_of(value)
    if _is_layer_output(name):
        return False
    if is_state_name(name):
        return True
    if not _has_own_dims(value, output, inputs):
        return False
    if _is_number_of_stream(value):
        return True
    words = {*_split_words(_name_of(output))}
    says_next = bool(words & _NEXT_WORDS) or any(x.isdigit() for x in _state_stem(name))
    return says_next and not _indexes_table(value)


def _is_number_of_stream(value: ir.Value) -> bool:
    """Return whether an input is one number, or one a row, that goes from step to step.

    A float, as a gain, or a count of what came before; a length is of what is fed.
    """
    if value.shape is None or len(value.shape) > 1:
        return False
    words = {y for x in _split_words(value.name or "") for y in (x, x.removesuffix("s"))}
    is_float = value.dtype is not None and value.dtype.is_floating_point()
    return bool(words & _COUNTERS) or (is_float and not _is_content(value))


def _is_content(value: ir.Value) -> bool:
    """Return whether an input may be what a model is fed, and no number for all of it."""
    sizes = [*(value.shape or ())]
    return len(sizes) > 1 or any(x != 1 for x in sizes) or _indexes_table(value)


def _has_own_dims(value: ir.Value, output: ir.Value, inputs: Sequence[ir.Value]) -> bool:
    """Return whether the dims of an input are fixed, a batch, or one that grows in the output."""
    if value.shape is None or output.shape is None:
        return False
    other_shapes = [x.shape for x in inputs if x is not value and x.shape is not None]
    batches = {single_symbol(x[0]) for x in other_shapes if len(x)}
    grown = 0
    for before, after in zip(value.shape, output.shape, strict=True):
        symbol = single_symbol(before)
        if isinstance(before, int) or symbol in batches:
            continue
        if before == after or symbol is None:
            return False
        grown += 1
    return grown <= 1


def _indexes_table(value: ir.Value) -> bool:
    """Return whether an input is ids, which are looked up in a table of weights."""
    return any(
        is_op(x.node, "Gather")
        and x.idx == 1
        and x.node.inputs[0] is not None
        and x.node.inputs[0].is_initializer()
        for x in value.uses()
    )


def _kind_of(value: ir.Value) -> tuple[object, ...] | None:
    """Return dtype and dims of a value that is no scalar; None if they are not known."""
    if value.shape is None or len(value.shape) < 2:
        return None
    return (value.dtype, *(x if isinstance(x, int) else str(x) for x in value.shape))


def _pair_in_order(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> dict[str, str]:
    """Pair inputs and outputs one by one; none if there are not as many, or one does not fit."""
    if len(inputs) != len(outputs) or not all(map(_can_feed, inputs, outputs)):
        return {}
    return {_name_of(x): _name_of(y) for x, y in zip(inputs, outputs, strict=True)}


def carry_states(
    states: Iterable[StatePair], model: ir.Model, outputs: Feeds
) -> dict[str, Array] | None:
    """Return the state inputs of the next step, or None where an output does not fit."""
    inputs = {x.name: x for x in model.graph.inputs}
    next_feeds = {}
    for state in states:
        array, value = outputs.get(state.output), inputs.get(state.input)
        if array is None or value is None or not _accepts_array(value, array):
            return None
        next_feeds[state.input] = array
    return next_feeds


def _accepts_array(value: ir.Value, array: Array) -> bool:
    if value.shape is None or array.ndim != len(value.shape):
        return False
    if value.dtype is not None and value.dtype != ir.DataType.from_numpy(array.dtype):
        return False
    sizes = zip(value.shape, array.shape, strict=True)
    return not any(isinstance(dim, int) and dim != size for dim, size in sizes)


def _split_words(name: str) -> Iterator[str]:
    return (x.lower() for x in _PARTS.findall(name))


def is_state_name(name: str) -> bool:
    """Return whether a name says that it is a state."""
    if _is_layer_output(name):
        return False
    words = {y for x in _split_words(name) for y in (x, x.removesuffix("s"))}
    return bool(_STATES & words) or "hidden" in words or _recurrent_letter(name) is not None


def _is_layer_output(name: str) -> bool:
    """Return whether a name is that of what one layer hands the next, within one run."""
    return {"hidden", "states"} <= {*_split_words(name)}


def _recurrent_letter(name: str) -> str | None:
    """Return the ``h`` of ``h_0``, ``prev_h`` and ``hn``; None of any other name."""
    words = [x for x in re.split(r"[_./:]+", name.lower()) if x]
    match = _RECURRENT.fullmatch("_".join(x for x in words if x not in _DIRECTION_WORDS))
    return None if match is None else match["letter"]


def _state_stem(name: str) -> Stem:
    """Return which state a name means, without the words for its direction."""
    words = [x if x in _DIRECTION_WORDS else x.removesuffix("s") for x in _split_words(name)]
    return tuple(x for x in words if x not in _DIRECTION_WORDS)


def _without_kinds(stem: Stem) -> Stem:
    return tuple(x for x in stem if x not in _KINDS)


def _is_equal(output: Stem, value: Stem) -> bool:
    return output == value


def _is_equal_but_for_kinds(output: Stem, value: Stem) -> bool:
    return bool(_without_kinds(value)) and _without_kinds(output) == _without_kinds(value)


def _is_one_recurrence(output: Stem, value: Stem) -> bool:
    """Return whether both are the ``h`` of a recurrence: ``h_0`` and ``h_n``, ``hx`` and ``hy``."""
    letters = [_recurrent_letter("_".join(x)) for x in (output, value)]
    return letters[0] is not None and letters[0] == letters[1]


def _is_equal_but_for_numbers(output: Stem, value: Stem) -> bool:
    words, own = ([x for x in y if not x.isdigit()] for y in (output, value))
    return bool(own) and words == own


def _contains_in_order(part: Stem, words: Stem) -> bool:
    """Return whether the words of a name, one of them a number, are in another in order."""
    remaining = iter(words)
    return any(x.isdigit() for x in part) and all(x in remaining for x in part)


# How stems of an output and an input are compared, the strictest first.
_LIKENESSES: tuple[Callable[[Stem, Stem], bool], ...] = (
    _is_equal,
    _is_equal_but_for_kinds,
    _contains_in_order,
    _is_one_recurrence,
    _is_equal_but_for_numbers,
)


def _can_feed(value: ir.Value, output: ir.Value) -> bool:
    """Return whether an output may feed an input, as far as dtype and shape are known."""
    if value.dtype != output.dtype or value.shape is None:
        return False
    return output.shape is None or not contradicts_shape(value.shape, output.shape)

"""fold: the manual is the docstring of the class."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Change, Finding, Match, Pass, Skip
from graphfix.editing import exclusions
from graphfix.editing.builder import Builder
from graphfix.facts import shapes
from graphfix.facts.view import View
from graphfix.graph.text import node_label
from graphfix.graph.walks import all_nodes

from ..common.fold_view import FoldView, Replacement
from ..common.uniform import NEUTRAL, SHRUNK, UniformTensors
from .fold_rules.bit_masks import BitMasks
from .fold_rules.chains import CHAIN_OPERATORS, simplify_chain
from .fold_rules.constants import FOLDABLE, fold_constant, fold_inferred, inline_if
from .fold_rules.equal_nodes import EqualNodes
from .fold_rules.integer_math import INTEGER_OPERATORS, simplify_integers
from .fold_rules.merged_dims import MergedRegions
from .fold_rules.nested_division import merge_nested_divisions
from .fold_rules.size_nodes import SizePlan

Rule = Callable[[ir.Node, FoldView], Replacement | None]
Rules = Sequence[tuple[frozenset[str] | None, Rule]]
"""Rules in order, each with the operators that it is for; None for all."""

# A rule may create work for another; no model seen needs a tenth of these rounds.
_MAX_ROUNDS = 50


@dataclass(frozen=True)
class FoldSite(Match):
    """A node that can be removed or replaced by a cheaper one; ``replacement`` says how."""

    replacement: Replacement


@dataclass(frozen=True)
class Fold(Pass):
    """Folds constants, merges duplicate nodes, and cancels inverse operators.

    Nodes whose result is the same in each run become constants, and an If that one of them decides
    becomes its branch. Equal computations become one. Chains of Reshape, Unsqueeze, Squeeze,
    Transpose, Cast, Slice, Expand and Identity that cancel go, and others become one node. A
    Transpose goes, or an Einsum that is one, where what makes its input can make it in the other
    order. ``x + -y`` becomes a difference, and ``Where(x > 20, x, Softplus(x))``, which is torch's
    Softplus by dynamo, a Softplus.

    Integers that are divided and rounded down, added up one number after the other, compared with
    one more than a length, or summed from the end between two Slices take as few nodes as can be;
    a division of int64 takes no Mod, which DirectML has no kernel for.
    The strides of a front end, taken off a length one after the other, are one division. Dims of 1
    in front that broadcasting gives a tensor anyway go. Dims that are merged for a while and taken
    apart again, [B, H, T, D] to [B*H, T, D] for an attention and back, stay apart where all that
    lies between allows it, with at most four dims, which is as many as DirectML's MatMul takes; so
    does [B, 1] where lengths are summed to [B].

    Shape arithmetic is planned for the model as a whole: equal sizes of different tensors are taken
    from one Shape, sizes that stand side by side at once, and a Reshape to a computed shape gets a
    constant where symbolic shapes prove one.

    Why:
        Counted with `graphfix plan` over the 78 exports of the zoo that load: 11,972 kernels
        per run become 8,836, those on the CPU 2,083 become 216. ONNX Runtime's optimizer
        does none of this: it compares nodes, not what they hold, and asks each tensor for its own
        shape. Neither do onnx-ir's CommonSubexpressionElimination and onnxscript's constant folding
        (one kernel less in two of eight models, tried beside this pass). On DirectML a kernel whose
        shape is computed is recompiled when that changes (MLOperatorAuthorImpl.cpp 2511-2691), and
        any If keeps the whole graph from fusing (GraphPartitioner.cpp 380-395).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        layers (float[B, T, 8] x, float[B, T] mask) => (float[B, 2, T, 4] y, float[B, 2, T, T] z)
        <int64 first = {0}, int64 second = {1}, int64[1] axis = {0}, int64[1] heads = {2},
         int64[1] width = {4}, int64[1] one = {1}, int64[1] two = {2}>
        {
            shape = Shape (x)
            b = Gather (shape, first)
            b1 = Unsqueeze (b, axis)
            shape_again = Shape (x)
            t = Gather (shape_again, second)
            t1 = Unsqueeze (t, axis)
            target = Concat <axis = 0> (b1, t1, heads, width)
            split = Reshape (x, target)
            y = Transpose <perm = [0, 2, 1, 3]> (split)
            row = Unsqueeze (mask, one)
            rows = Unsqueeze (row, two)
            mask_shape = Shape (mask)
            s = Gather (mask_shape, second)
            s1 = Unsqueeze (s, axis)
            square = Concat <axis = 0> (b1, heads, s1, s1)
            z = Expand (rows, square)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        layers (float[B, T, 8] x, float[B, T] mask) => (float[B, 2, T, 4] y, float[B, 2, T, T] z)
        <int64[4] split_to = {0, 0, 2, 4}, int64[2] axes = {1, 2}>
        {
            split = Reshape (x, split_to)
            y = Transpose <perm = [0, 2, 1, 3]> (split)
            rows = Unsqueeze (mask, axes)
            one_to_three = Shape <start = 0, end = 3> (y)
            last = Shape <start = 1, end = 2> (x)
            square = Concat <axis = 0> (one_to_three, last)
            z = Expand (rows, square)
        }

    Left alone:
        Numbers that are added one after the other in floats, whose sum would be rounded elsewhere:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        twice (float[B, T] x) => (float[B, T] y)
        <float one = {1}, float tenth = {0.1}>
        {
            a = Add (x, one)
            y = Add (a, tenth)
        }

    Safety:
        Exact, except the division of integers within k of the least of their type by k, two
        divisions of one within 2^23 of either end, and a comparison with one more than the largest,
        which no size or length comes near: what is moved, compared or reused is the same to the
        bit; where 0 was added, a -0 keeps its sign. Where a Transpose goes, a function such as Exp
        may be rounded another way, as kernels compute several elements at a time. From 15 on x and
        ``Softplus(x)`` are one float32. Divisions of lengths in float32 hold as far as that counts
        halves without a gap, up to 2^23, before and after.

        Constants are worked out in integers, by operators that move data, and in float32 and
        float64 by those that IEEE 754 rounds alike everywhere. A sum of floats is not one of them,
        except a Resize of a constant: a linear or cubic one is the same up to rounding, as ONNX
        Runtime, which resizes a constant when it loads the model, rounds it in another order. ONNX
        Runtime may then fuse what it did not fuse before. Nothing of more than 4096 elements is
        made (a resized constant may have 2^21), and of what lies in a file beside the model only
        integers are read, and constants that are resized. What a shape tensor holds is believed
        only if it also holds where sizes are 0; two inputs whose dims have one name have one size.
        Random operators, other domains, and graphs inside nodes are never taken for equal; nothing
        is moved out of a branch. An initializer that is also an input is no constant, and an output
        of the graph keeps its name.
    """

    keeps_shapes = True
    edits_by_builder = True

    def sites(self, model: ir.Model) -> Iterator[FoldSite | Skip]:
        """Yield every node that the first round would replace."""
        look = FoldView(View(model))
        uniform = UniformTensors(look)
        at_once = (*_merged_dims_rules(look), *_size_node_rules(look), (SHRUNK, uniform.shrink))
        rules_by_operator = _RulesByOperator((*_node_rules(uniform), *at_once))
        for node in all_nodes(model):
            replacement = _first_replacement(rules_by_operator[node.op_type], node, look)
            if replacement is not None:
                yield self.exclusion_of(model, node) or FoldSite(node, replacement)

    def supports_site_exclusion(self) -> bool:
        """Return True: single sites can be excluded."""
        return True

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Replace nodes until nothing changes, then sizes, which are planned all at once."""
        reported_paths = set[str]()
        for event in self._run_rounds(model):
            if isinstance(event, Skip):
                if (at := node_label(event.node)) in reported_paths:  # in a round before
                    continue
                reported_paths.add(at)
            yield event

    def _run_rounds(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Apply the rules in rounds until none of them replaces a node."""
        look = FoldView(View(model))
        for _ in range(_MAX_ROUNDS):
            uniform = UniformTensors(look)
            # Before dims of 1 go, of which broadcasting makes some that a region ends with.
            built = yield from self._apply_rules(look, _merged_dims_rules(look))
            if not built:
                built = yield from self._apply_rules(look, _node_rules(uniform))
            if not built:
                built = yield from self._apply_rules(look, _size_node_rules(look))
            if not built:
                built = yield from self._shrink_broadcasts(look, uniform)
            if not built:
                return
            look = look.refresh()

    def findings(self, model: ir.Model) -> Iterator[Finding]:
        """Yield notes: a repeated computation is neither wrong nor on the CPU."""
        for site in self.sites(model):
            yield replace(self.finding(site), severity="note")

    def message(self, site: Match) -> str:
        """Describe the replacement of a node."""
        return site.replacement.reason if isinstance(site, FoldSite) else super().message(site)

    def _apply_rules(self, look: FoldView, rules: Rules) -> Generator[Change | Skip, None, bool]:
        """Apply the rules to each node; return whether any was replaced."""
        model, builder = look.view.model, Builder(self.name, look.view)
        rules_by_operator, changed = _RulesByOperator(rules), False
        for node in list(all_nodes(model)) if rules else ():
            if node.graph is None:  # went with an earlier one
                continue
            replacement = _first_replacement(rules_by_operator[node.op_type], node, look)
            if replacement is None:
                continue
            if (exclusion := self.exclusion_of(model, node)) is not None:
                exclusions.record_exclusion(model, node, self.spec())
                yield exclusion
                continue
            at, tensor = node_label(node), node.outputs[0].name or ""
            builder.start_site(node)
            values = replacement.build(builder)
            if values[0] is node.outputs[0]:  # it turns out to be as it should be
                continue
            changed = True
            yield Change.later(self.name, at, tensor, builder.replace_site(*values))
        return changed

    def _shrink_broadcasts(
        self, look: FoldView, uniform: UniformTensors
    ) -> Generator[Change | Skip, None, bool]:
        """Shrink tensors before a broadcast, and forget the shapes behind them."""
        changed = yield from self._apply_rules(look, ((SHRUNK, uniform.shrink),))
        for value in uniform.touched:
            value.shape = None
        if changed:
            shapes.drop_shapes(look.view.model)
        return changed


def _merged_dims_rules(look: FoldView) -> Rules:
    """Return the rule for dims that are merged and split again, if it applies."""
    rule = MergedRegions(look)
    return ((ops.RESHAPES | ops.named("Shape"), rule),) if rule.has_regions else ()


def _size_node_rules(look: FoldView) -> Rules:
    """Return the rule for nodes that compute sizes, if it applies."""
    rule = SizePlan(look)
    return ((rule.op_types_to_replace, rule),) if rule.op_types_to_replace else ()


def _node_rules(uniform: UniformTensors) -> Rules:
    """Return the rules that look at one node at a time, in order."""
    return (
        (frozenset({"If"}), inline_if),
        (None, fold_inferred),
        (FOLDABLE, fold_constant),
        (None, EqualNodes()),
        (CHAIN_OPERATORS, simplify_chain),
        (INTEGER_OPERATORS, simplify_integers),
        (frozenset({"Div", "Floor"}), merge_nested_divisions),
        (NEUTRAL, uniform.drop_neutral),
        (frozenset({"ScatterND"}), uniform.scatter_to_where),
        (frozenset({"DFT"}), uniform.drop_imaginary),
        (frozenset({"Cast"}), BitMasks()),
    )


class _RulesByOperator(dict[str, tuple["Rule", ...]]):
    """The rules that apply to each operator, computed on first use."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def __missing__(self, op_type: str) -> tuple[Rule, ...]:
        fitting = (rule for only, rule in self._rules if only is None or op_type in only)
        return self.setdefault(op_type, tuple(fitting))


def _first_replacement(rules: Sequence[Rule], node: ir.Node, look: FoldView) -> Replacement | None:
    """Return the replacement by the first rule that applies, or None."""
    return next(filter(None, (rule(node, look) for rule in rules)), None)

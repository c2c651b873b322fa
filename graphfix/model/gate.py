"""One gate after reading: whether a file is a graph at all, said in one sentence if it is not.

What passes here has what its operators' schemas ask for (numbers of inputs and outputs, attributes,
their types and what they may be), tensors with as many bytes as their shapes say, names that are
defined once and before they are used, functions that come to an end; so a pass may rely on it.
Whether shapes and types fit together is left to ONNX Runtime.

Nodes may stand in any order for ONNX Runtime, though not for ONNX; here they are sorted.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import onnx

from graphfix.model import permitted, schemas, sizes
from graphfix.model.calls import require_end
from graphfix.model.malformed import MalformedError as MalformedError
from graphfix.model.malformed import name_of
from graphfix.model.order import put_in_order
from graphfix.model.schemas import BODIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from graphfix.model.schemas import Facts

_MOST_OPSET = 1000

# Read once each: protobuf looks them up by their names.
_TYPES = onnx.AttributeProto.AttributeType
_TENSOR, _TENSORS, _GRAPH, _GRAPHS = _TYPES.TENSOR, _TYPES.TENSORS, _TYPES.GRAPH, _TYPES.GRAPHS
_SPARSE, _SPARSES, _STRING = _TYPES.SPARSE_TENSOR, _TYPES.SPARSE_TENSORS, _TYPES.STRING
# Where the value of an attribute is, if it is a message: it must be there.
_FIELD: dict[int, str] = {
    _TENSOR: "t",
    _GRAPH: "g",
    _SPARSE: "sparse_tensor",
    _TYPES.TYPE_PROTO: "tp",
}


def check(proto: onnx.ModelProto) -> None:
    """Raise MalformedError if ``proto`` is no graph that could be run; sort its nodes.

    Raises:
        MalformedError: With a sentence that names the node, tensor or attribute.
        UnicodeDecodeError: A name is not in UTF-8.
    """
    opsets = _opsets(proto.opset_import, "the model")
    functions = {(x.domain, x.name, x.overload): x for x in proto.functions}
    if len(functions) < len(proto.functions):
        raise MalformedError("two functions have the same name")
    _readable(proto.metadata_props)
    _readable(proto.graph.metadata_props)
    names = {x[:2] for x in functions}
    _Graphs(opsets, functions, names).check(proto.graph, ())
    for function in proto.functions:
        its = _opsets(function.opset_import, function.name)
        _Graphs(its, functions, names, function=True).body(function)
    require_end(proto, functions)


def _readable(entries: Iterable[onnx.StringStringEntryProto]) -> None:
    for entry in entries:  # protobuf hands out the bytes
        if type(entry.key) is not str or type(entry.value) is not str:
            raise MalformedError("a text among its metadata is not in UTF-8")


def _opsets(imports: Iterable[onnx.OperatorSetIdProto], what: str) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for one in imports:
        domain = "" if one.domain == "ai.onnx" else one.domain
        if opsets.setdefault(domain, one.version) != one.version:
            raise MalformedError(f"{what} asks for two versions of the operator set {domain!r}")
        if not 0 < one.version <= _MOST_OPSET:
            raise MalformedError(
                f"{what} asks for version {one.version} of the operator set {domain!r}; "
                f"there are about {onnx.defs.onnx_opset_version()}"
            )
    return opsets


class _Graphs:
    """Checks graphs that have their operators from the same sets."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        functions: Mapping[tuple[str, str, str], onnx.FunctionProto],
        names: Collection[tuple[str, str]],
        *,
        function: bool = False,
    ) -> None:
        self._opsets = opsets
        self._functions = functions
        self._named = names
        self._in_function = function
        self._known: dict[tuple[str, str], Facts | None] = {}
        # Attributes of which only the value is left to be looked at: asked of 100,000 nodes.
        self._declared: set[tuple[Facts | None, str, int]] = set()

    def check(self, graph: onnx.GraphProto, outer: tuple[Collection[str], ...]) -> set[str]:
        """Check a graph and those in it.

        Args:
            graph: The graph; its nodes are sorted.
            outer: What the graphs around it define.

        Returns:
            The names that it takes from them.
        """
        inputs = [x.name for x in graph.input]
        if "" in inputs:
            raise MalformedError("an input has no name")
        defined = set(inputs)
        if len(defined) < len(inputs):
            raise MalformedError(f"two inputs are called {_twice(inputs)!r}")
        constants = [x.name for x in graph.initializer]
        constants += [x.values.name for x in graph.sparse_initializer]
        if len(set(constants)) < len(constants):
            raise MalformedError(f"two initializers are called {_twice(constants)!r}")
        for tensor in graph.initializer:
            if reason := sizes.tensor_refusal(tensor):
                raise MalformedError(f"the initializer {tensor.name!r} {reason}")
        for sparse in graph.sparse_initializer:
            if reason := sizes.sparse_refusal(sparse):
                raise MalformedError(f"the sparse initializer {sparse.values.name!r} {reason}")
        for group in (graph.input, graph.output, graph.value_info):
            for value in group:
                if value.HasField("type"):
                    self._sized(value, thorough=group is not graph.value_info)
        defined.update(constants)
        return self._nodes(graph.node, defined, [x.name for x in graph.output], outer)

    def body(self, function: onnx.FunctionProto) -> None:
        """Check a function."""
        for value in function.value_info:
            self._sized(value, thorough=False)
        for attribute in function.attribute_proto:
            self._attribute(attribute, f"the function {function.name!r}", None, tuple)
        if len(set(function.input)) < len(function.input):
            raise MalformedError(f"two inputs of {function.name} have the same name")
        self._nodes(function.node, set(function.input), function.output, ())

    def _nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        defined: set[str],
        outputs: Sequence[str],
        outer: tuple[Collection[str], ...],
    ) -> set[str]:
        """Check nodes in their order, and sort them if they have none.

        Args:
            nodes: The nodes of one graph.
            defined: The names of its inputs and initializers; those of nodes are added.
            outputs: The names that it returns.
            outer: What the graphs around it define.

        Returns:
            The names that they take from outside.
        """

        @functools.cache
        def made() -> set[str]:
            return {x for other in nodes for x in other.output}

        def around() -> tuple[Collection[str], ...]:
            # A node further down may make what a body reads: that is seen when all are.
            return (*outer, defined, made())

        taken: set[str] = set()
        inner: dict[int, set[str]] = {}
        late = False
        for i, node in enumerate(nodes):
            reads, makes, attributes = list(node.input), list(node.output), list(node.attribute)
            facts = self._facts(node)
            self._counted(node, facts, reads, makes, attributes)
            if attributes and (bodies := self._attributes(node, attributes, facts, around)):
                inner[i] = bodies
                reads += bodies
            for name in reads:
                if name not in defined and name:
                    if name in made():
                        late = True
                    elif any(name in x for x in outer):
                        taken.add(name)
                    else:
                        raise _unmade(f"{node.op_type} reads", name)
            if metadata := node.metadata_props:
                _readable(metadata)
            if type(node.name) is not str:  # protobuf hands out the bytes
                raise MalformedError(f"the name of a node is not in UTF-8: {node.name!r}")
            for name in makes:
                if name in defined and name:
                    raise MalformedError(
                        f"{node.op_type} makes {name!r}, which something else makes already"
                    )
                defined.add(name)
        for name in outputs:
            if name not in defined:
                if not any(name in x for x in outer):
                    raise _unmade("the graph returns", name)
                taken.add(name)
        if not {*map(type, defined)} <= {str}:  # protobuf hands out the bytes
            raise MalformedError("a name is not in UTF-8")
        if late:
            put_in_order(nodes, inner)
        return taken

    def _attributes(
        self,
        node: onnx.NodeProto,
        attributes: Sequence[onnx.AttributeProto],
        facts: Facts | None,
        outer: Callable[[], tuple[Collection[str], ...]],
    ) -> set[str] | None:
        """Check the attributes of a node; returns what the graphs in them take from outside."""
        what = node.op_type
        taken: set[str] | None = None
        for attribute in attributes:
            found = self._attribute(attribute, what, facts, outer)
            if found is not None:
                taken = found | (taken or set())
        if len(attributes) > 1 and len({x.name for x in attributes}) < len(attributes):
            raise MalformedError(f"{what} has two attributes of the same name")
        if taken is not None and what in BODIES and facts is not None and facts.domain == "":
            schemas.require_bodies(node, MalformedError)
        return taken

    def _counted(
        self,
        node: onnx.NodeProto,
        facts: Facts | None,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Sequence[onnx.AttributeProto],
    ) -> None:
        if facts is not None:
            if reason := facts.refusal(inputs, outputs, attributes):
                raise MalformedError(f"{node.op_type} of {name_of(node)!r} {reason}")
            if len(attributes) != 1 and node.op_type == "Constant":
                reason = permitted.constant_refusal(len(attributes))
                raise MalformedError(f"the Constant of {name_of(node)!r} {reason}")
            return
        if not node.op_type:
            raise MalformedError(f"the node that makes {name_of(node)!r} has no operator")
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is None:
            if not any(outputs):
                raise MalformedError(f"{node.op_type} makes nothing")
        elif len(inputs) > len(function.input) or len(outputs) > len(function.output):
            raise MalformedError(
                f"{node.op_type} of {name_of(node)!r} has {len(inputs)} inputs and "
                f"{len(outputs)} outputs; the function has {len(function.input)} and "
                f"{len(function.output)}"
            )

    def _facts(self, node: onnx.NodeProto) -> Facts | None:
        key = node.domain, node.op_type
        if key not in self._known:
            domain = "" if key[0] == "ai.onnx" else key[0]
            version = self._opsets.get(domain, 1 if domain else 0)
            own = key in self._named
            if not isinstance(key[1], str):
                raise MalformedError("the name of an operator is not in UTF-8")
            self._known[key] = None if own else schemas.facts(key[1], domain, version)
        return self._known[key]

    def _attribute(
        self,
        attribute: onnx.AttributeProto,
        what: str,
        facts: Facts | None,
        outer: Callable[[], tuple[Collection[str], ...]],
    ) -> set[str] | None:
        """Check an attribute; returns what the graphs in it take from outside, if there are any."""
        name, kind, parameter = attribute.name, attribute.type, attribute.ref_attr_name
        declared = facts, name, kind
        if parameter or declared not in self._declared:
            if reason := self._declared_refusal(name, kind, parameter, what, facts):
                raise MalformedError(f"the attribute {name!r} of {what} {reason}")
            if parameter:
                return None
            self._declared.add(declared)
        if reason := _value_refusal(attribute, name, kind, what, facts):
            raise MalformedError(f"the attribute {name!r} of {what} {reason}")
        if kind != _GRAPH and kind != _GRAPHS:
            return None
        taken: set[str] = set()
        for graph in [attribute.g] if kind == _GRAPH else attribute.graphs:
            taken |= self.check(graph, outer())
        return taken

    def _declared_refusal(
        self, name: str, kind: int, parameter: str, what: str, facts: Facts | None
    ) -> str | None:
        """Why there is no such attribute, whatever it holds."""
        if parameter and not self._in_function:
            return f"is a function's parameter, but {what} is in no function"
        if parameter and kind in (_GRAPH, _GRAPHS):
            return "is a graph that a function is given, which graphfix does not know"
        if facts is not None and (reason := facts.attribute_refusal(name, kind)):
            return reason
        return None if kind or parameter else "has no type"

    def _sized(self, value: onnx.ValueInfoProto, *, thorough: bool) -> None:
        if reason := sizes.type_refusal(value.type, thorough=thorough):
            raise MalformedError(f"{value.name!r} {reason}")


def _value_refusal(
    attribute: onnx.AttributeProto, name: str, kind: int, what: str, facts: Facts | None
) -> str | None:
    """Why an attribute cannot hold what it holds; graphs are not looked into."""
    if facts is not None:
        if kind == _STRING and name in facts.types and not _is_text(attribute.s):
            return "is not in UTF-8"
        if not facts.domain and (reason := permitted.refusal(what, attribute)):
            return reason
    if (field := _FIELD.get(kind)) is not None and not attribute.HasField(field):
        return "has no value"
    if kind == _TENSOR:
        return sizes.tensor_refusal(attribute.t)
    if kind == _TENSORS:
        return next(filter(None, map(sizes.tensor_refusal, attribute.tensors)), None)
    if kind == _SPARSE:
        return sizes.sparse_refusal(attribute.sparse_tensor)
    if kind == _SPARSES:
        return next(filter(None, map(sizes.sparse_refusal, attribute.sparse_tensors)), None)
    return None


def _is_text(given: bytes) -> bool:
    try:
        given.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unmade(who: str, name: str) -> MalformedError:
    if not isinstance(name, str):  # protobuf hands out the bytes
        return MalformedError(f"{who} {name!r}, a name that is not in UTF-8")
    return MalformedError(f"{who} {name!r}, which no node, input or initializer makes")


def _twice(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(x for x in names if x in seen or seen.add(x))  # type: ignore[func-returns-value]

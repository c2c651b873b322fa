"""The gate after reading: refuses a file that is no runnable graph, with one sentence.

A model that passes satisfies the schemas of its operators (by ONNX's own checker), has attributes
with possible values, tensors with as many bytes as their shapes need, names that are defined once,
and functions whose calls end; passes may rely on that. Whether
shapes and types fit together is left to ONNX Runtime.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from google.protobuf.message import Message

from graphfix.files import byte_sizes, schema_checks
from graphfix.files.function_calls import Functions, require_finite_calls
from graphfix.files.malformed import MalformedError as MalformedError
from graphfix.files.malformed import name_of_node
from graphfix.ops import HAS_BODY, attribute_values, schemas

Names = tuple[Collection[str], ...]
"""What graphs around each other define."""

_MAX_OPSET = 1000

# Read once each: protobuf looks them up by their names.
_TYPES = onnx.AttributeProto.AttributeType
_TENSOR, _TENSORS, _GRAPH, _GRAPHS = _TYPES.TENSOR, _TYPES.TENSORS, _TYPES.GRAPH, _TYPES.GRAPHS
_STRING = _TYPES.STRING
_SPARSE = (_TYPES.SPARSE_TENSOR, _TYPES.SPARSE_TENSORS)
# Where the value of an attribute is, if it is a message: it must be there.
_FIELD: dict[int, str] = {_TENSOR: "t", _GRAPH: "g", _TYPES.TYPE_PROTO: "tp"}
_NO_SPARSE = "is sparse, which graphfix does not read; export the model with dense weights"


def check_model_proto(proto: onnx.ModelProto) -> bool:
    """Raise MalformedError if ``proto`` is no graph that could be run.

    Returns:
        Whether its nodes are in order. ONNX Runtime takes them in any, though ONNX does not.

    Raises:
        MalformedError: With a sentence that names the node, tensor or attribute.
        UnicodeDecodeError: A name is not in UTF-8.
    """
    opsets = _opset_versions(proto.opset_import, "the model")
    functions = {(x.domain, x.name, x.overload): x for x in proto.functions}
    if len(functions) < len(proto.functions):
        raise MalformedError("two functions have the same name")
    _require_texts(proto, but=("graph", "functions", "training_info"))
    _require_texts(proto.graph, but=("node", "initializer", "sparse_initializer", "value_info"))
    for function in proto.functions:
        _require_texts(function, but=("node", "value_info"))
    if not proto.graph.output:
        raise MalformedError(
            "the graph has no outputs, so it computes nothing; name the tensors that it is for in "
            "graph.output"
        )
    graphs = _GraphChecker(opsets, functions)
    graphs.check_graph(proto.graph, ())
    ordered = graphs.ordered
    for function in proto.functions:
        graphs = _GraphChecker(
            _opset_versions(function.opset_import, function.name), functions, in_function=True
        )
        graphs.check_function(function)
        ordered &= graphs.ordered
    require_finite_calls(proto, functions)
    return ordered


def _require_texts(message: Message, but: Collection[str] = ()) -> None:
    """Raise MalformedError if a text in a message, or in one inside it, is not in UTF-8.

    Args:
        message: The message.
        but: Its fields that are not looked into: of them there may be 100,000.
    """
    for descriptor, value in message.ListFields():
        if descriptor.name in but:
            continue
        is_text, is_one = descriptor.type == descriptor.TYPE_STRING, not hasattr(value, "__len__")
        for item in [value] if is_one or isinstance(value, str | bytes) else value:
            if is_text and type(item) is not str:  # protobuf hands out the bytes
                raise MalformedError(f"a text in its {descriptor.name} is not in UTF-8: {item!r}")
            if descriptor.message_type is not None:
                _require_texts(item)


def _require_utf8(entries: Iterable[onnx.StringStringEntryProto]) -> None:
    for entry in entries:  # protobuf hands out the bytes
        if type(entry.key) is not str or type(entry.value) is not str:
            raise MalformedError("a text among its metadata is not in UTF-8")


def _opset_versions(imports: Iterable[onnx.OperatorSetIdProto], owner: str) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise MalformedError(f"{owner} asks for two versions of the operator set {domain!r}")
        if not 0 < entry.version <= _MAX_OPSET:
            raise MalformedError(
                f"{owner} asks for version {entry.version} of the operator set {domain!r}; "
                f"there are about {onnx.defs.onnx_opset_version()}"
            )
    return opsets


@dataclass
class _GraphChecker:
    """Checks graphs whose operators come from the same operator sets."""

    _opsets: Mapping[str, int]
    _functions: Functions
    in_function: bool = False
    ordered: bool = True
    # Operator, signature and attributes of the nodes that the checker has accepted.
    _checked_keys: set[object] = field(default_factory=set)

    def check_graph(self, graph: onnx.GraphProto, outer: Names) -> None:
        """Check a graph and those in it.

        Args:
            graph: The graph.
            outer: What the graphs around it define.
        """
        inputs = [x.name for x in graph.input]
        if "" in inputs:
            raise MalformedError("an input has no name")
        _require_distinct(inputs, "inputs")
        constants = [x.name for x in graph.initializer]
        _require_distinct(constants, "initializers")
        for tensor in graph.initializer:
            if reason := byte_sizes.tensor_refusal(tensor):
                raise MalformedError(f"the initializer {tensor.name!r} {reason}")
        for sparse in graph.sparse_initializer:
            raise MalformedError(f"the initializer {sparse.values.name!r} {_NO_SPARSE}")
        for group in (graph.input, graph.output, graph.value_info):
            for value in group:
                if type(value.name) is not str:
                    raise MalformedError(f"a name is not in UTF-8: {value.name!r}")
                if value.HasField("type"):
                    self._check_type(value, thorough=group is not graph.value_info)
        self._check_nodes(graph.node, {*inputs, *constants}, [x.name for x in graph.output], outer)

    def check_function(self, function: onnx.FunctionProto) -> None:
        """Check a function."""
        for value in function.value_info:
            self._check_type(value, thorough=False)
        for attribute in function.attribute_proto:
            self._check_attribute(attribute, f"the function {function.name!r}", None, ())
        _require_distinct(function.input, f"inputs of {function.name}")
        self._check_nodes(function.node, set(function.input), function.output, ())

    def _check_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        defined: set[str],
        outputs: Sequence[str],
        outer: Names,
    ) -> None:
        """Check the nodes of one graph.

        Args:
            nodes: The nodes, in the order of the file.
            defined: The names of its inputs and initializers; those of nodes are added.
            outputs: The names that it returns.
            outer: What the graphs around it define.
        """
        produced = {name for node in nodes for name in node.output}
        visible = (*outer, defined, produced)

        def require_defined(name: str, reader: str) -> None:
            if name in produced:
                self.ordered = False
            else:
                _require_visible(name, outer, reader)

        for node in nodes:
            self._check_node(node, visible)
            for name in node.input:
                if name not in defined and name:
                    require_defined(name, f"{node.op_type} reads")
            _define_outputs(node, defined)
        for name in outputs:
            if name not in defined:
                require_defined(name, "the graph returns")
        if not {*map(type, defined)} <= {str}:  # protobuf hands out the bytes
            raise MalformedError("a name is not in UTF-8")

    def _check_node(self, node: onnx.NodeProto, visible: Names) -> None:
        """Check a node without the names that it reads and makes."""
        op_type, domain = node.op_type, node.domain
        if {type(op_type), type(node.name)} != {str}:
            raise MalformedError(f"the name of a node is not in UTF-8: {node.name!r}")
        if {type(domain), type(node.doc_string)} != {str}:
            raise MalformedError(f"a text of the node {name_of_node(node)!r} is not in UTF-8")
        if not op_type:
            raise MalformedError(f"the node that makes {name_of_node(node)!r} has no operator")
        domain = "" if domain == "ai.onnx" else domain
        version = self._schema_version(node, domain)
        schema_domain = None if version is None else domain
        kinds = [
            (x.name, x.type, self._check_attribute(x, op_type, schema_domain, visible))
            for x in node.attribute
        ]
        if version is not None:
            key = op_type, domain, *map(bool, node.input), len(node.output), *kinds
            if key not in self._checked_keys:
                schema_checks.require_valid_node(node, domain, version)
                self._checked_keys.add(key)
            if schema_domain == "" and op_type == "Constant" and len(kinds) != 1:
                reason = attribute_values.constant_count_refusal(len(kinds))
                raise MalformedError(f"the Constant of {name_of_node(node)!r} {reason}")
            if schema_domain == "" and op_type in HAS_BODY:
                schema_checks.require_matching_bodies(node)
        if metadata := node.metadata_props:
            _require_utf8(metadata)

    def _schema_version(self, node: onnx.NodeProto, domain: str) -> int | None:
        """Return the version of the schema that a node must follow; None if ONNX has none."""
        op_type, input_count, output_count = node.op_type, len(node.input), len(node.output)
        function = self._functions and self._functions.get((node.domain, op_type, node.overload))
        if function:
            if input_count > len(function.input) or output_count > len(function.output):
                raise MalformedError(
                    f"{op_type} of {name_of_node(node)!r} has {input_count} inputs and "
                    f"{output_count} "
                    f"outputs; the function has {len(function.input)} and {len(function.output)}"
                )
            return None
        imported = self._opsets.get(domain, 1 if domain else 0)
        version = schemas.schema_version(op_type, domain, max(imported, 1))
        if version is None and not any(node.output):
            raise MalformedError(f"{op_type} makes nothing")
        return version

    def _check_attribute(
        self, attribute: onnx.AttributeProto, op_type: str, domain: str | None, visible: Names
    ) -> str:
        """Check an attribute, and the graphs in it.

        Args:
            attribute: The attribute.
            op_type: The operator.
            domain: The set of an operator that has a schema.
            visible: What the graphs around those in it define.

        Returns:
            The name of the function's parameter that it refers to; empty if it has a value.
        """
        kind, parameter = attribute.type, attribute.ref_attr_name
        if parameter:
            reason = self._parameter_refusal(kind, op_type)
        else:
            reason = _value_refusal(attribute, kind, op_type, domain)
        if type(attribute.name) is not str:
            reason = "has a name that is not in UTF-8"
        if reason:
            raise MalformedError(f"the attribute {attribute.name!r} of {op_type} {reason}")
        if kind in (_GRAPH, _GRAPHS):
            for graph in [attribute.g] if kind == _GRAPH else attribute.graphs:
                self.check_graph(graph, visible)
        return str(parameter)

    def _parameter_refusal(self, kind: int, op_type: str) -> str | None:
        if not self.in_function:
            return f"is a function's parameter, but {op_type} is in no function"
        if kind in (_GRAPH, _GRAPHS):
            return "is a graph that a function is given, which graphfix does not know"
        return None

    def _check_type(self, value: onnx.ValueInfoProto, *, thorough: bool) -> None:
        if reason := byte_sizes.type_refusal(value.type, thorough=thorough):
            raise MalformedError(f"{value.name!r} {reason}")


def _define_outputs(node: onnx.NodeProto, defined: set[str]) -> None:
    """Add the outputs of a node to the names that are defined, each once."""
    for name in node.output:
        if name in defined and name:
            raise MalformedError(
                f"{node.op_type} makes {name!r}, which something else makes already"
            )
        defined.add(name)


def _require_visible(name: str, outer: Names, reader: str) -> None:
    """Raise MalformedError unless a graph around this one defines a name.

    Args:
        name: The name; bytes where it is not in UTF-8.
        outer: What the graphs around it define.
        reader: Who reads it, as the beginning of a sentence.
    """
    if any(name in names for names in outer):
        return
    if not isinstance(name, str):  # protobuf hands out the bytes
        raise MalformedError(f"{reader} {name!r}, a name that is not in UTF-8")
    raise MalformedError(f"{reader} {name!r}, which no node, input or initializer makes")


def _value_refusal(
    attribute: onnx.AttributeProto, kind: int, op_type: str, domain: str | None
) -> str | None:
    """Return why the value of an attribute is wrong, or None; graphs are not looked into."""
    if kind == _STRING and domain is not None:
        try:
            attribute.s.decode()
        except UnicodeDecodeError:
            return "is not in UTF-8"
    if domain == "" and (reason := attribute_values.attribute_refusal(op_type, attribute)):
        return reason
    if not kind:
        return "has no type"
    if (field := _FIELD.get(kind)) is not None and not attribute.HasField(field):
        return "has no value"
    if kind == _TENSOR:
        return byte_sizes.tensor_refusal(attribute.t)
    if kind == _TENSORS:
        return next(filter(None, map(byte_sizes.tensor_refusal, attribute.tensors)), None)
    return _NO_SPARSE if kind in _SPARSE else None


def _require_distinct(names: Sequence[str], label: str) -> None:
    known_names: set[str] = set()
    for name in names:
        if name in known_names:
            raise MalformedError(f"two {label} are called {name!r}")
        known_names.add(name)

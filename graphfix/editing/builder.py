"""The only code that edits a graph for a NodePass: names, provenance, sharing, dominance."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from graphfix.editing.orphans import empty_body, remove_orphans
from graphfix.facts import shapes
from graphfix.facts.view import View, drop_node_index
from graphfix.graph import names
from graphfix.graph.nodes import use_count
from graphfix.graph.text import NodeText, is_inlined_constant, node_text
from graphfix.graph.walks import bodies_of, reachable_from

Operand = ir.Value | npt.NDArray[np.generic] | None
AttrValue = int | float | str | Sequence[int] | ir.TensorProtocol | ir.DataType
Edit = tuple[tuple[NodeText, ...], tuple[NodeText, ...]]
"""The removed nodes and the added ones; small constants are written where they are read."""
Texts = tuple[tuple[str, ...], tuple[str, ...]]
"""The same, as ONNX text."""

PASS_KEY = "graphfix.pass"


def is_as_exported(model: ir.Model) -> bool:
    """Return whether no pass has written anything of a model."""
    return not any(PASS_KEY in node.metadata_props for node in model.graph)


def subject_of(model: ir.Model) -> str:
    """Return what messages call a model whose nodes they name: a pass may have made some."""
    return "the model as given" if is_as_exported(model) else "the model as the passes left it"


class Builder:
    """Makes nodes for one pass and puts them where their users can see them.

    ``op.Add(a, b)`` makes a node just before the site that is being repaired and gives back its
    output. An array stands for a constant, which becomes an initializer, shared by equal
    constants. ``op.build_once(key, build)`` builds what many sites share a single time.
    """

    def __init__(self, by: str, view: View) -> None:
        self._pass_name = by
        self._view = view
        self._name_maker = names.name_maker_of(view.model)
        self._prefix = names.pass_prefix(by)
        self._name_counts: Counter[str] | None = None
        self._shared: dict[tuple[ir.Graph, Hashable], ir.Value] = {}
        self._site: ir.Node | None = None
        self._insertion_node: ir.Node | None = None
        self._new_nodes: list[ir.Node] = []
        # The text of nodes from before their inputs or outputs lost their names.
        self._lines: dict[ir.Node, NodeText] = {}
        self._removed_lines: list[NodeText] = []
        self._append_graph: ir.Graph | None = None

    def start_site(self, site: ir.Node) -> None:
        """Start the repair of ``site``: new nodes go just before it from now on."""
        drop_node_index(self._view.model)
        self._site = self._insertion_node = site
        self._new_nodes = []
        self._lines = {}
        self._removed_lines = []

    @property
    def site(self) -> ir.Node:
        """The node that is being repaired."""
        if self._site is None:
            raise RuntimeError("Builder.start_site was not called")
        return self._site

    @property
    def view(self) -> View:
        """The model around the site."""
        return self._view

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def make_operator(*inputs: Operand, **attributes: AttrValue) -> ir.Value:
            return self.make(op_type, *inputs, **attributes)

        return make_operator

    def make(self, op_type: str, *inputs: Operand, **attributes: AttrValue) -> ir.Value:
        """Make a node with one output, and return that output.

        Args:
            op_type: The operator, with its domain as ONNX text has it: ``com.microsoft.Gelu``. The
                model imports a domain that it does not have yet, at version 1.
            *inputs: Values; arrays, which become shared initializers; None for an absent input.
            **attributes: The attributes; an ``ir.DataType`` becomes its number.
        """
        return self.make_outputs(op_type, (True,), *inputs, **attributes)[0]

    def make_outputs(
        self, op_type: str, present: Sequence[bool], *inputs: Operand, **attributes: AttrValue
    ) -> Sequence[ir.Value]:
        """Make a node with several outputs, of which those not ``present`` have no name."""
        if self._insertion_node is None or self._insertion_node.graph is None:
            raise RuntimeError("Builder.start_site was not called")
        values = [self.constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        attribute_values = {
            k: int(v) if isinstance(v, ir.DataType) else v for k, v in attributes.items()
        }
        domain, _, kind = op_type.rpartition(".")
        node = ir.node(
            kind, values, attributes=attribute_values, domain=domain, num_outputs=len(present)
        )
        node.name = self.new_name()
        for i, value in enumerate(node.outputs):
            value.name = "" if not present[i] else self.new_name() if i else node.name
        node.metadata_props[PASS_KEY] = self._pass_name
        if domain:  # of the model, and of the function that the site is in
            for top in (
                self._view.model.graph,
                self._view.enclosing_graphs(self._insertion_node.graph)[-1],
            ):
                top.opset_imports.setdefault(domain, 1)
        if self._append_graph is not None:
            self._append_graph.append(node)
        else:
            self._insertion_node.graph.insert_before(self._insertion_node, node)
        self._new_nodes.append(node)
        return node.outputs

    def clone_node(self, node: ir.Node, *inputs: Operand, **changed: AttrValue) -> ir.Value:
        """Clone ``node`` with other inputs and ``changed`` attributes; return its first output."""
        return self.clone_outputs(node, *inputs, **changed)[0]

    def clone_outputs(
        self, node: ir.Node, *inputs: Operand, **changed: AttrValue
    ) -> Sequence[ir.Value]:
        """Clone ``node`` with other inputs and ``changed`` attributes; return all its outputs."""
        present = [bool(x.name) for x in node.outputs]
        kind = ".".join(filter(None, (node.domain, node.op_type)))
        outputs = self.make_outputs(kind, present, *inputs, **changed)
        clone = outputs[0].producer()
        if clone is not None:
            clone.attributes.update({**node.attributes, **clone.attributes})
            clone.metadata_props.update({**node.metadata_props, **clone.metadata_props})
        return outputs

    def inline_branch(self, body: ir.Graph) -> list[ir.Value]:
        """Move the nodes of ``body``, a branch of the site, before it; return its outputs."""
        home = self.site.graph
        if home is None:
            raise RuntimeError("Builder.start_site was not called")
        if self._name_counts is None:
            self._name_counts = names.count_names(self._view.model)
        outputs, nodes = list(body.outputs), list(body)
        body.outputs.clear()
        constants = self._take_initializers(body, home)
        outputs = [constants.get(x, x) for x in outputs]
        body.remove(nodes)
        taken = {x.name for x in home}  # ONNX Runtime refuses two nodes of one name in a graph
        for node in nodes:
            for value in node.outputs:
                self._rename_if_ambiguous(value)
            if node.name and (node.name.startswith(self._prefix) or node.name in taken):
                output = node.outputs[0].name
                node.name = self.new_name() if output in taken else output
            home.insert_before(self.site, node)
        self._new_nodes += nodes
        return outputs

    def _take_initializers(self, body: ir.Graph, home: ir.Graph) -> dict[ir.Value, ir.Value]:
        """Move the initializers of a branch to the graph around it.

        A local function has none: there each becomes a Constant.

        Returns:
            The Constants, by the initializers that they stand for now.
        """
        in_function = self._view.owner_of_body(home) is None and self._view.in_function(self.site)
        constants: dict[ir.Value, ir.Value] = {}
        for value in list(body.initializers.values()):
            if value.const_value is None:
                continue
            body.initializers.pop(value.name or "")
            if in_function:
                constants[value] = self.make("Constant", value=value.const_value)
                value.replace_all_uses_with(constants[value])
            else:
                self._rename_if_ambiguous(value)
                home.register_initializer(value)
        return constants

    def _rename_if_ambiguous(self, value: ir.Value) -> None:
        """Rename a value of a branch if another value has, or may come to have, its name.

        The pass itself may give a name that it has given before, in a model of its own.
        """
        name, spoken_for = value.name, self._name_counts
        if name and (
            (spoken_for is not None and spoken_for[name] > 1) or name.startswith(self._prefix)
        ):
            value.name = self.new_name()

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return an initializer of the top-level graph around the site, shared by equal constants.

        Function bodies cannot hold initializers, so there it is a Constant node at the site.
        """
        if self._insertion_node is None or self._insertion_node.graph is None:
            raise RuntimeError("Builder.start_site was not called")
        top = self._view.enclosing_graphs(self._insertion_node.graph)[-1]
        if top is not self._view.model.graph:
            return self.make("Constant", value=ir.tensor(array))
        key = (top, ("constant", str(array.dtype), array.shape, array.tobytes()))
        initializer = self._shared.get(key)
        if initializer is None or initializer.graph is None:
            tensor, name = ir.tensor(array), self.new_name()
            tensor.name = name
            initializer = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype)
            )
            initializer.const_value = tensor
            top.register_initializer(initializer)
            shapes.add_constant(self._view.model, initializer, array)
            self._shared[key] = initializer
        return initializer

    def build_once(
        self, key: Hashable, build: Callable[[], ir.Value], *sources: ir.Value
    ) -> ir.Value:
        """Return what ``build`` makes from ``sources``, built once for all calls with this key.

        It is placed in the innermost graph that holds one of the sources, before the first user:
        later users in that graph, and in graphs inside it, come after. So a mask that is made in
        the main graph gets one addend, even if its users are in the branches of an If.
        """
        graph = self._graph_to_share(sources)
        shared = self._shared.get((graph, key))
        if shared is not None and shared.graph is not None:
            return shared
        with self.inserting_before(self._ancestor_in(graph)):
            value = build()
        self._shared[graph, key] = value
        return value

    def set_float_attribute(self, name: str, number: float) -> None:
        """Set an attribute of the site, which stays, to a number."""
        self.site.attributes[name] = ir.AttrFloat32(name, number)

    def set_input(self, index: int, value: ir.Value | None) -> None:
        """Set input ``index`` of the site, which it may not have had yet, to ``value``."""
        site = self.site
        if index >= len(site.inputs):
            site.resize_inputs(index + 1)
        site.replace_input_with(index, value)

    def redirect_uses(self, uses: Iterable[tuple[ir.Node, int]], new: ir.Value) -> None:
        """Let these uses of a value read ``new``, except nodes that this pass has built.

        Args:
            uses: Some uses of one value: a node, and the index of its input.
            new: What they read from now on.
        """
        for node, index in uses:
            if node not in self._new_nodes:
                node.replace_input_with(index, new)

    @contextlib.contextmanager
    def inserting_before(self, node: ir.Node) -> Iterator[None]:
        """Insert the nodes that the block makes before ``node``."""
        outer, self._insertion_node = self._insertion_node, node
        try:
            yield
        finally:
            self._insertion_node = outer

    def insert_before(self, node: ir.Node) -> None:
        """Insert the nodes that are made from now on before ``node``, which precedes the site."""
        self._insertion_node = node

    def replace_value(self, old: ir.Value, new: ir.Value, keep: Sequence[ir.Node] = ()) -> None:
        """Replace ``old`` by ``new``, made for this site, under the name of ``old``.

        The site may be the only user of ``old`` that is left; then what made it goes with the site.

        Args:
            old: The tensor before.
            new: The tensor now.
            keep: Nodes that read the old one still, since they go with the site.
        """
        for node in (old.producer(), self.site):
            if node is not None:
                self._lines[node] = NodeText.from_node(node)
        self._take_identity(new, old)
        kept_uses = [use for use in old.uses() if use.node is self.site or use.node in keep]
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        for use in kept_uses:
            use.node.replace_input_with(use.idx, old)

    def move_readers_behind(self, value: ir.Value) -> None:
        """Move what reads ``value``, directly or not, behind what makes it."""
        maker = value.producer()
        if maker is None or maker.graph is None or not value.uses():
            return
        readers = set(reachable_from((use.node for use in value.uses()), ir.Node.successors))
        ahead = itertools.takewhile(lambda x: x is not maker, maker.graph)
        early_readers = [x for x in ahead if x in readers]
        maker.graph.remove(early_readers)
        maker.graph.insert_after(maker, early_readers)

    def remove_unread(self, value: ir.Value) -> list[str]:
        """Remove what made ``value``, and what only that used, if nothing reads it."""
        removed = remove_orphans([value], self._lines)
        self._removed_lines += removed
        return [line.render() for line in removed]

    def replace_and_remove(self, old: ir.Value, new: ir.Value) -> None:
        """Replace ``old`` by ``new``, and remove what made ``old`` and only that."""
        self.replace_value(old, new)
        self.remove_unread(old)

    def build_at_end(self, build: Callable[[], ir.Value]) -> ir.Value:
        """Return what ``build`` makes, placed at the end of the main graph."""
        self._append_graph = self._view.model.graph
        try:
            return build()
        finally:
            self._append_graph = None

    def wrap_output(self, output: ir.Value, build: Callable[[ir.Value], ir.Value]) -> None:
        """Replace an output of the graph by what ``build`` makes of it, under its name."""
        graph = self._view.model.graph
        places = [i for i, x in enumerate(graph.outputs) if x is output]
        new = self.build_at_end(lambda: build(output))
        if new is output:
            return
        if (maker := output.producer()) is not None:
            maker.metadata_props[PASS_KEY] = self._pass_name  # what it makes has another name
        name, output.name = output.name, self.new_name()
        new.name, new.type, new.shape = name, output.type, output.shape
        for place in places:
            graph.outputs[place] = new

    def finish_site(self) -> tuple[str, ...]:
        """Finish the repair of a site that stays; return what was added, as ONNX text."""
        added = tuple(node_text(node) for node in self._new_nodes if not is_inlined_constant(node))
        self._declare_types()
        self._site = self._insertion_node = None
        return added

    def repair(self, site: ir.Node, build: Callable[[], ir.Value | None]) -> Texts:
        """Repair ``site`` by what ``build`` makes of it; return (removed, added) as ONNX text.

        What it makes stands for the first output; if that is None the site stays, and may have
        other inputs.
        """
        before = node_text(site)
        self.start_site(site)
        value = build()
        if value is not None:
            return self.replace_site_as_text(value)
        same = node_text(site) == before  # it reads another tensor under its old name, at most
        added = self.finish_site()
        return ((), added) if same else ((before,), (*added, node_text(site)))

    def replace_site_as_text(self, value: ir.Value, *more_values: ir.Value) -> Texts:
        """Replace the site by ``value``; return (removed, added) nodes as ONNX text."""
        removed, added = self.replace_site(value, *more_values)
        return tuple(line.render() for line in removed), tuple(line.render() for line in added)

    def replace_site(self, value: ir.Value, *more_values: ir.Value) -> Edit:
        """Replace the site's first output by ``value``; return the nodes removed and added.

        A tensor made for this site takes the old tensor's name, type and shape; an existing one
        keeps its own, and a graph output that is replaced by it gets an Identity. Whatever only
        the site was using goes with it.

        Args:
            value: What stands for the first output.
            *more_values: What stands for the others, if the site has any that are used.
        """
        site = self.site
        before = [self._lines.get(site) or NodeText.from_node(site)]
        graph = site.graph
        if graph is None:
            raise RuntimeError(f"{site.name} is not in a graph")
        for old, new in zip(site.outputs, (value, *more_values), strict=False):
            # A shared value without a use was made for this site: it may have its name.
            fresh = (
                new.producer() in self._new_nodes
                and not use_count(new)
                and not new.is_graph_output()
            )
            if not fresh and old.is_graph_output():
                new, fresh = self.make("Identity", new), True
            if fresh:
                self._take_identity(new, old)
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        inputs = list(site.inputs)
        for body in bodies_of(site):
            inputs += empty_body(body)
        graph.remove(site, safe=True)
        before[:0] = [*self._removed_lines, *remove_orphans(inputs, self._lines)]
        self._new_nodes = [node for node in self._new_nodes if node.graph is not None]
        added = tuple(
            [NodeText.from_node(node) for node in self._new_nodes if not is_inlined_constant(node)]
        )
        if self._view.enclosing_graphs(graph)[-1] is self._view.model.graph:
            shapes.infer_new_nodes(self._view.model, self._new_nodes)
        self._declare_types()
        self._site = self._insertion_node = None
        return tuple(before), added

    def _declare_types(self) -> None:
        """Declare the types that ONNX's inference cannot find, of operators that it does not have.

        ONNX Runtime's quantizers read types from that inference, and fail where one is missing.
        """
        for node in self._new_nodes:
            if node.domain or not onnx.defs.has(node.op_type, self._view.opset_of_node(node), ""):
                for value in node.outputs:
                    dtype = self._view.shapes.dtype(value)
                    if value.name and value.type is None and dtype is not None:
                        value.type = ir.TensorType(dtype)

    def _take_identity(self, value: ir.Value, old: ir.Value) -> None:
        node, site = value.producer(), self.site
        name, old.name = old.name, None
        value.name = name
        value.type, value.shape = old.type, old.shape
        value.doc_string = old.doc_string
        value.metadata_props.update(old.metadata_props)
        self._view.shapes.inherit_shape(value, old)
        if node is not None:
            if node.op_type == site.op_type and old.producer() is site:
                node.name = site.name
            node.metadata_props.update({**site.metadata_props, PASS_KEY: self._pass_name})

    def _graph_to_share(self, sources: Sequence[ir.Value]) -> ir.Graph:
        graph = self.site.graph
        if graph is None:
            raise RuntimeError(f"{self.site.name} is not in a graph")
        scope = self._view.enclosing_graphs(graph)
        depths = [scope.index(x.graph) for x in sources if x.graph in scope]
        return scope[min(depths)] if depths else scope[-1]

    def _ancestor_in(self, graph: ir.Graph) -> ir.Node:
        node = self._insertion_node or self.site
        while node.graph is not None and node.graph is not graph:
            owner = self._view.owner_of_body(node.graph)
            if owner is None:
                raise RuntimeError(f"{self.site.name} is not inside {graph.name}")
            node = owner
        return node

    def new_name(self) -> str:
        """Return a name that no value and no node of the model has."""
        return self._name_maker.new_name(self._pass_name)

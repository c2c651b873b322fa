"""The only code that edits a graph for a NodePass: names, provenance, sharing, dominance."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from graphfix.editing.orphans import discard, remove_orphans
from graphfix.facts import shapes
from graphfix.facts.view import View, forget_index
from graphfix.graph import names
from graphfix.graph.nodes import users_of
from graphfix.graph.text import Line, line_of, stands_in_place
from graphfix.graph.walks import bodies_of, reached

Operand = ir.Value | npt.NDArray[np.generic] | None
AttrValue = int | float | str | Sequence[int] | ir.TensorProtocol | ir.DataType
Edit = tuple[tuple[Line, ...], tuple[Line, ...]]
"""The nodes that went, and those that came; small constants stand where they are read."""
Texts = tuple[tuple[str, ...], tuple[str, ...]]
"""The same, as ONNX text."""

PASS_KEY = "graphfix.pass"


def is_as_exported(model: ir.Model) -> bool:
    """Whether no pass has written anything of a model."""
    return not any(PASS_KEY in node.metadata_props for node in model.graph)


class Builder:
    """Makes nodes for one pass and puts them where their users can see them.

    ``op.Add(a, b)`` makes a node just before the site that is being repaired and gives back its
    output. An array stands for a constant, which becomes an initializer shared by all who ask for
    the same one. ``op.once(key, build)`` builds what many sites share a single time.
    """

    def __init__(self, by: str, view: View) -> None:
        self._by = by
        self._view = view
        self._names = names.names_of(view.model)
        self._prefix = names.prefix_of(by)
        self._spoken_for: Counter[str] | None = None
        self._shared: dict[tuple[ir.Graph, Hashable], ir.Value] = {}
        self._site: ir.Node | None = None
        self._at: ir.Node | None = None
        self._made: list[ir.Node] = []
        # As they were before what they read or make lost its name.
        self._lines: dict[ir.Node, Line] = {}
        self._dropped: list[Line] = []
        self._end: ir.Graph | None = None

    def start(self, site: ir.Node) -> None:
        """Begin the repair of ``site``: what is made from now on goes just before it."""
        forget_index(self._view.model)
        self._site = self._at = site
        self._made = []
        self._lines = {}
        self._dropped = []

    @property
    def site(self) -> ir.Node:
        """The node that is being repaired."""
        if self._site is None:
            raise RuntimeError("Builder.start was not called")
        return self._site

    @property
    def view(self) -> View:
        """The model around the site."""
        return self._view

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def make(*inputs: Operand, **attributes: AttrValue) -> ir.Value:
            return self.make(op_type, *inputs, **attributes)

        return make

    def make(self, op_type: str, *inputs: Operand, **attributes: AttrValue) -> ir.Value:
        """Make a node with one output, and return that output.

        Args:
            op_type: The operator, with its domain as ONNX text has it: ``com.microsoft.Gelu``. The
                model imports a domain that it does not have yet, at version 1.
            *inputs: Values; arrays, which become shared initializers; None for an absent input.
            **attributes: The attributes; an ``ir.DataType`` becomes its number.
        """
        return self.make_all(op_type, (True,), *inputs, **attributes)[0]

    def make_all(
        self, op_type: str, there: Sequence[bool], *inputs: Operand, **attributes: AttrValue
    ) -> Sequence[ir.Value]:
        """Make a node with several outputs, as :meth:`make` does; one not ``there`` has no name."""
        if self._at is None or self._at.graph is None:
            raise RuntimeError("Builder.start was not called")
        values = [self.constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        given = {k: int(v) if isinstance(v, ir.DataType) else v for k, v in attributes.items()}
        domain, _, kind = op_type.rpartition(".")
        node = ir.node(kind, values, attributes=given, domain=domain, num_outputs=len(there))
        node.name = self.new_name()
        for i, value in enumerate(node.outputs):
            value.name = "" if not there[i] else self.new_name() if i else node.name
        node.metadata_props[PASS_KEY] = self._by
        if domain:  # of the model, and of the function that the site is in
            for top in (self._view.model.graph, self._view.scope(self._at.graph)[-1]):
                top.opset_imports.setdefault(domain, 1)
        if self._end is not None:
            self._end.append(node)
        else:
            self._at.graph.insert_before(self._at, node)
        self._made.append(node)
        return node.outputs

    def again(self, node: ir.Node, *inputs: Operand, **changed: AttrValue) -> ir.Value:
        """Make the first output of ``node`` once more, as :meth:`again_all` does."""
        return self.again_all(node, *inputs, **changed)[0]

    def again_all(
        self, node: ir.Node, *inputs: Operand, **changed: AttrValue
    ) -> Sequence[ir.Value]:
        """Make the outputs of ``node`` once more, from other inputs and ``changed`` attributes."""
        there = [bool(x.name) for x in node.outputs]
        kind = ".".join(filter(None, (node.domain, node.op_type)))
        made = self.make_all(kind, there, *inputs, **changed)
        maker = made[0].producer()
        if maker is not None:
            maker.attributes.update({**node.attributes, **maker.attributes})
            maker.metadata_props.update({**node.metadata_props, **maker.metadata_props})
        return made

    def inline(self, body: ir.Graph) -> list[ir.Value]:
        """Move what is in ``body``, a branch of the site, before it; return its outputs."""
        home = self.site.graph
        if home is None:
            raise RuntimeError("Builder.start was not called")
        if self._spoken_for is None:
            self._spoken_for = names.counted(self._view.model)
        outputs, nodes = list(body.outputs), list(body)
        body.outputs.clear()
        for value in list(body.initializers.values()):
            if value.const_value is None:
                continue
            body.initializers.pop(value.name or "")
            if self._view.owner(home) is None and self._view.in_function(self.site):
                constant = self.make("Constant", value=value.const_value)
                value.replace_all_uses_with(constant)
                outputs = [constant if x is value else x for x in outputs]
            else:
                self._rename(value)
                home.register_initializer(value)
        body.remove(nodes)
        for node in nodes:
            for value in node.outputs:
                self._rename(value)
            if node.name and node.name.startswith(self._prefix):
                node.name = node.outputs[0].name
            home.insert_before(self.site, node)
        self._made += nodes
        return outputs

    def _rename(self, value: ir.Value) -> None:
        """Another name for what comes out of a branch, if its name is another's as well.

        Or may come to be: one that this pass has given, in a model of its own.
        """
        name, spoken_for = value.name, self._spoken_for
        if name and (
            (spoken_for is not None and spoken_for[name] > 1) or name.startswith(self._prefix)
        ):
            value.name = self.new_name()

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """An initializer of the top-level graph around the site, shared by equal constants.

        Function bodies cannot hold initializers, so there it is a Constant node at the site.
        """
        if self._at is None or self._at.graph is None:
            raise RuntimeError("Builder.start was not called")
        top = self._view.scope(self._at.graph)[-1]
        if top is not self._view.model.graph:
            return self.make("Constant", value=ir.tensor(array))
        key = (top, ("constant", str(array.dtype), array.shape, array.tobytes()))
        found = self._shared.get(key)
        if found is None or found.graph is None:
            tensor, name = ir.tensor(array), self.new_name()
            tensor.name = name
            found = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype)
            )
            found.const_value = tensor
            top.register_initializer(found)
            shapes.note(self._view.model, found, array)
            self._shared[key] = found
        return found

    def once(self, key: Hashable, build: Callable[[], ir.Value], *sources: ir.Value) -> ir.Value:
        """What ``build`` makes from ``sources``, built a single time for all who give this key.

        It is placed in the innermost graph that holds one of the sources, before the first user:
        later users in that graph, and in graphs inside it, come after. So a mask that is made in
        the main graph gets one addend, even if its users are in the branches of an If.
        """
        graph = self._home(sources)
        shared = self._shared.get((graph, key))
        if shared is not None and shared.graph is not None:
            return shared
        with self.placed(self._ancestor_in(graph)):
            value = build()
        self._shared[graph, key] = value
        return value

    def give(self, name: str, number: float) -> None:
        """Let an attribute of the site, which stays, be a number."""
        self.site.attributes[name] = ir.AttrFloat32(name, number)

    def rewire(self, index: int, value: ir.Value | None) -> None:
        """Let the site take ``value`` as its input ``index``, which it may not have had yet."""
        site = self.site
        if index >= len(site.inputs):
            site.resize_inputs(index + 1)
        site.replace_input_with(index, value)

    def reroute(self, old: ir.Value, uses: Iterable[tuple[ir.Node, int]], new: ir.Value) -> None:
        """Let these uses of ``old`` take ``new``; what made ``new`` from ``old`` keeps it.

        Args:
            old: The value.
            uses: Some of its uses: a node, and which input of it.
            new: What they take from now on.
        """
        for node, index in uses:
            if node not in self._made:
                node.replace_input_with(index, new)

    @contextlib.contextmanager
    def placed(self, node: ir.Node) -> Iterator[None]:
        """Put what is made meanwhile before ``node``."""
        outer, self._at = self._at, node
        try:
            yield
        finally:
            self._at = outer

    def at(self, node: ir.Node) -> None:
        """Put what is made from now on for this site before ``node``, which comes before it."""
        self._at = node

    def replace(self, old: ir.Value, new: ir.Value, keep: Sequence[ir.Node] = ()) -> None:
        """Let ``new``, made for this site, be what ``old`` was, under its name.

        The site may be the only user of ``old`` that is left; then what made it goes with the site.

        Args:
            old: The tensor before.
            new: The tensor now.
            keep: Nodes that read the old one still, since they go with the site.
        """
        for node in (old.producer(), self.site):
            if node is not None:
                self._lines[node] = Line.of(node)
        self._inherit(new, old)
        kept = [use for use in old.uses() if use.node is self.site or use.node in keep]
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        for use in kept:
            use.node.replace_input_with(use.idx, old)

    def move_readers(self, value: ir.Value) -> None:
        """Move what reads ``value``, directly or not, behind what makes it."""
        maker = value.producer()
        if maker is None or maker.graph is None or not value.uses():
            return
        later = set(reached((use.node for use in value.uses()), ir.Node.successors))
        ahead = itertools.takewhile(lambda x: x is not maker, maker.graph)
        moved = [x for x in ahead if x in later]
        maker.graph.remove(moved)
        maker.graph.insert_after(maker, moved)

    def drop(self, value: ir.Value) -> list[str]:
        """Remove what made ``value``, and what only that was using, if nothing reads it."""
        gone = remove_orphans([value], self._lines)
        self._dropped += gone
        return [line.text() for line in gone]

    def supplant(self, old: ir.Value, new: ir.Value) -> None:
        """As :meth:`replace`; what made ``old``, and only that, goes."""
        self.replace(old, new)
        self.drop(old)

    def extend(self, build: Callable[[], ir.Value]) -> ir.Value:
        """What ``build`` makes, at the end of the main graph."""
        self._end = self._view.model.graph
        try:
            return build()
        finally:
            self._end = None

    def append(self, output: ir.Value, build: Callable[[ir.Value], ir.Value]) -> None:
        """Let what ``build`` makes of an output of the graph be that output, under its name."""
        graph = self._view.model.graph
        places = [i for i, x in enumerate(graph.outputs) if x is output]
        new = self.extend(lambda: build(output))
        if new is output:
            return
        if (maker := output.producer()) is not None:
            maker.metadata_props[PASS_KEY] = self._by  # what it makes has another name
        name, output.name = output.name, self.new_name()
        new.name, new.type, new.shape = name, output.type, output.shape
        for place in places:
            graph.outputs[place] = new

    def finish(self) -> tuple[str, ...]:
        """End the repair of a site that stays; return what was added, as ONNX text."""
        added = tuple(line_of(node) for node in self._made if not stands_in_place(node))
        self._declare()
        self._site = self._at = None
        return added

    def repair(self, site: ir.Node, build: Callable[[], ir.Value | None]) -> Texts:
        """Repair ``site`` by what ``build`` makes of it; return (removed, added) as ONNX text.

        What it makes stands for the first output; if that is None the site stays, and may have
        other inputs.
        """
        before = line_of(site)
        self.start(site)
        value = build()
        if value is not None:
            return self.commit(value)
        same = line_of(site) == before  # it reads another tensor under its old name, at most
        added = self.finish()
        return ((), added) if same else ((before,), (*added, line_of(site)))

    def commit(self, value: ir.Value, *others: ir.Value) -> Texts:
        """As :meth:`swap`; return (removed, added) as ONNX text."""
        removed, added = self.swap(value, *others)
        return tuple(line.text() for line in removed), tuple(line.text() for line in added)

    def swap(self, value: ir.Value, *others: ir.Value) -> Edit:
        """Let ``value`` stand for the site's first output; return the nodes removed and added.

        A tensor made for this site takes the old tensor's name, type and shape; an existing one
        keeps its own, and a graph output that is replaced by it gets an Identity. Whatever only
        the site was using goes with it.

        Args:
            value: What stands for the first output.
            *others: What stands for the others, if the site has any that are used.
        """
        site = self.site
        before = [self._lines.get(site) or Line.of(site)]
        graph = site.graph
        if graph is None:
            raise RuntimeError(f"{site.name} is not in a graph")
        for old, new in zip(site.outputs, (value, *others), strict=False):
            # A shared value that nobody uses yet was made for this site: it may have its name.
            fresh = new.producer() in self._made and not users_of(new) and not new.is_graph_output()
            if not fresh and old.is_graph_output():
                new, fresh = self.make("Identity", new), True
            if fresh:
                self._inherit(new, old)
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        inputs = list(site.inputs)
        for body in bodies_of(site):
            inputs += discard(body)
        graph.remove(site, safe=True)
        before[:0] = [*self._dropped, *remove_orphans(inputs, self._lines)]
        self._made = [node for node in self._made if node.graph is not None]
        added = tuple([Line.of(node) for node in self._made if not stands_in_place(node)])
        if self._view.scope(graph)[-1] is self._view.model.graph:
            shapes.extend(self._view.model, self._made)
        self._declare()
        self._site = self._at = None
        return tuple(before), added

    def _declare(self) -> None:
        """Declare the types that ONNX's inference cannot find, of operators that it does not have.

        ONNX Runtime's quantizers read types from that inference, and fail where one is missing.
        """
        for node in self._made:
            if node.domain or not onnx.defs.has(node.op_type, self._view.opset(node), ""):
                for value in node.outputs:
                    dtype = self._view.shapes.dtype(value)
                    if value.name and value.type is None and dtype is not None:
                        value.type = ir.TensorType(dtype)

    def _inherit(self, value: ir.Value, old: ir.Value) -> None:
        node, site = value.producer(), self.site
        name, old.name = old.name, None
        value.name = name
        value.type, value.shape = old.type, old.shape
        value.doc_string = old.doc_string
        value.metadata_props.update(old.metadata_props)
        self._view.shapes.adopt(value, old)
        if node is not None:
            if node.op_type == site.op_type and old.producer() is site:
                node.name = site.name
            node.metadata_props.update({**site.metadata_props, PASS_KEY: self._by})

    def _home(self, sources: Sequence[ir.Value]) -> ir.Graph:
        graph = self.site.graph
        if graph is None:
            raise RuntimeError(f"{self.site.name} is not in a graph")
        scope = self._view.scope(graph)
        depths = [scope.index(x.graph) for x in sources if x.graph in scope]
        return scope[min(depths)] if depths else scope[-1]

    def _ancestor_in(self, graph: ir.Graph) -> ir.Node:
        node = self._at or self.site
        while node.graph is not None and node.graph is not graph:
            owner = self._view.owner(node.graph)
            if owner is None:
                raise RuntimeError(f"{self.site.name} is not inside {graph.name}")
            node = owner
        return node

    def new_name(self) -> str:
        """A name that no value and no node of the model has."""
        return self._names.new(self._by)

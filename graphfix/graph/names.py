"""New names for what passes make, which no value and no node of a model has in any scope."""

from collections import Counter

import onnx_ir as ir

from graphfix.graph.walks import all_graphs, bodies_of, nodes_of, top_graphs, values_of

_START = "gf_"
_META = "graphfix.names"


class NameMaker:
    """Makes new names for passes in one model, which it walks once the first is asked for.

    What was given once is not given again, also if it has gone: a name in a report is one tensor.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._taken: set[str] | None = None
        self._counts: Counter[str] = Counter()

    def new_name(self, by: str) -> str:
        """Return a new name for what the pass ``by`` makes."""
        if self._taken is None:  # most passes find nothing to make
            self._taken = _pass_names(self._model)
        prefix = pass_prefix(by)
        while (name := f"{prefix}{self._counts[prefix]}") in self._taken:
            self._counts[prefix] += 1
        self._counts[prefix] += 1
        return name

    def forget_taken(self) -> None:
        """Forget which names are taken: others may have given some."""
        self._taken = None


def pass_prefix(by: str) -> str:
    """Return the prefix of the names that the pass ``by`` gives."""
    return f"{_START}{by.replace('-', '_')}_"


def name_maker_of(model: ir.Model) -> NameMaker:
    """Return the name maker that is shared, or a new one of the model as it is now."""
    maker = model.meta.get(_META)
    return maker if isinstance(maker, NameMaker) else NameMaker(model)


def share_name_maker(model: ir.Model) -> None:
    """Let all passes share one walk over the names, until :func:`unshare_name_maker`."""
    model.meta[_META] = NameMaker(model)


def unshare_name_maker(model: ir.Model) -> None:
    """Share names no longer: whoever has the model may change it at will."""
    model.meta.pop(_META, None)


def _pass_names(model: ir.Model) -> set[str]:
    """Return the names in a model that begin as those of passes do."""
    names: list[str | None] = []
    for top in top_graphs(model):
        names += [x.name for x in top.inputs]
        names += top.initializers
        for node in nodes_of(top):  # once: there may be 100,000, for the name of one
            names.append(node.name)
            names += [x.name for x in node.outputs]
            for body in bodies_of(node):
                names += [x.name for x in body.inputs]
                names += body.initializers
    return {name for name in names if name and name.startswith(_START)}


def count_names(model: ir.Model) -> Counter[str]:
    """Count the values that have each name: those of two branches may share one."""
    # An input that has a default is an initializer as well.
    return Counter(x.name for x in dict.fromkeys(values_of(all_graphs(model))) if x.name)


def find_hiding_name(model: ir.Model) -> str | None:
    """Return the name of two values of which one would hide the other, or None."""
    pending: list[tuple[ir.Graph, set[str]]] = [(top, set()) for top in top_graphs(model)]
    while pending:
        graph, visible = pending.pop()
        own = [x.name for x in graph.inputs]
        own += [name for name, x in graph.initializers.items() if not x.is_graph_input()]
        own += [x.name for node in graph for x in node.outputs]
        for name in own:
            if name and name in visible:
                return name
            visible.add(name or "")
        pending += ((body, set(visible)) for node in graph for body in bodies_of(node))
    return None

"""Names for what passes make: such as no value and no node of a model has, in whatever scope."""

from collections import Counter

import onnx_ir as ir

from graphfix.graph.walks import all_graphs, bodies_of, nodes_of, tops_of, values_of

_START = "gf_"
_META = "graphfix.names"


class Names:
    """The names of one model that a pass may have given; it is walked when the first is asked for.

    What was given once is not given again, also if it has gone: a name in a report is one tensor.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._taken: set[str] | None = None
        self._counts: Counter[str] = Counter()

    def new(self, by: str) -> str:
        """A name for what the pass ``by`` makes."""
        if self._taken is None:  # most passes find nothing to make
            self._taken = _given(self._model)
        prefix = prefix_of(by)
        while (name := f"{prefix}{self._counts[prefix]}") in self._taken:
            self._counts[prefix] += 1
        self._counts[prefix] += 1
        return name

    def forget(self) -> None:
        """Somebody else has given names."""
        self._taken = None


def prefix_of(by: str) -> str:
    """How the names begin that the pass ``by`` gives."""
    return f"{_START}{by.replace('-', '_')}_"


def names_of(model: ir.Model) -> Names:
    """Those that are kept, or what the model has now."""
    kept = model.meta.get(_META)
    return kept if isinstance(kept, Names) else Names(model)


def keep(model: ir.Model) -> None:
    """Let all passes share one walk, until :func:`let_go`."""
    model.meta[_META] = Names(model)


def let_go(model: ir.Model) -> None:
    """Keep names no longer: whoever has the model may do with it what he likes."""
    model.meta.pop(_META, None)


def _given(model: ir.Model) -> set[str]:
    """The names that begin so."""
    names: list[str | None] = []
    for top in tops_of(model):
        names += [x.name for x in top.inputs]
        names += top.initializers
        for node in nodes_of(top):  # once: there may be 100,000, for the name of one
            names.append(node.name)
            names += [x.name for x in node.outputs]
            for body in bodies_of(node):
                names += [x.name for x in body.inputs]
                names += body.initializers
    return {name for name in names if name and name.startswith(_START)}


def counted(model: ir.Model) -> Counter[str]:
    """How many values have each name: those of two branches may share one."""
    # An input that has a default is an initializer as well.
    return Counter(x.name for x in dict.fromkeys(values_of(all_graphs(model))) if x.name)


def made_twice(model: ir.Model) -> str | None:
    """The name of two values of which one would hide the other, if there are any."""
    pending: list[tuple[ir.Graph, set[str]]] = [(top, set()) for top in tops_of(model)]
    while pending:
        graph, seen = pending.pop()
        own = [x.name for x in graph.inputs]
        own += [name for name, x in graph.initializers.items() if not x.is_graph_input()]
        own += [x.name for node in graph for x in node.outputs]
        for name in own:
            if name and name in seen:
                return name
            seen.add(name or "")
        pending += ((body, set(seen)) for node in graph for body in bodies_of(node))
    return None

"""ONNX's own backend tests, as they come with the ``onnx`` package: models, inputs, and outputs.

Most are made by ``onnx.backend.test.case.node`` when they are asked for, one operator each; some
lie as files beside it: models of several nodes, layers as PyTorch once exported them, and nine
whole networks with weights that are all alike.
"""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DATA = Path(onnx.backend.test.__file__).parent / "data"
_FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")

Sizes = Literal["plain", "named", "apart"]
"""How the dims of inputs are given: as numbers; by name, equal sizes by the same name; each by a
name of its own."""
SIZES: tuple[Sizes, ...] = ("plain", "named", "apart")

Value = np.ndarray[Any, Any] | list[Any] | None


@dataclass(frozen=True)
class Example:
    """What goes into a model, and what shall come out of it.

    Attributes:
        feeds: A value for each input: an array, or a list for a sequence.
        outputs: A value for each output, by name.
    """

    feeds: dict[str, Value]
    outputs: dict[str, Value]


@dataclass(frozen=True)
class Case:
    """One of ONNX's tests.

    Attributes:
        name: Its name, such as ``test_gather_0``.
        kind: ``node``, or the folder that it lies in.
        model: The model.
        examples: Inputs and outputs.
        rtol: How far outputs may be from those, as a share.
        atol: And in absolute numbers.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    examples: tuple[Example, ...]
    rtol: float
    atol: float

    def sized(self, sizes: Sizes) -> onnx.ModelProto:
        """A copy of the model whose inputs have their dims as ``sizes`` says.

        What it says of the shapes of other tensors is dropped where it would be of numbers.
        """
        proto = onnx.ModelProto()
        proto.CopyFrom(self.model)
        if sizes == "plain":
            return proto
        given = {x.name for x in proto.graph.initializer}
        for value in proto.graph.input:
            if value.name in given or not value.type.HasField("tensor_type"):
                continue
            for i, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.HasField("dim_value"):
                    size = dim.dim_value
                    name = re.sub(r"\W", "_", value.name)
                    dim.dim_param = f"d{size}" if sizes == "named" else f"{name}_{i}"
        for value in proto.graph.output:
            if value.type.HasField("tensor_type"):
                for dim in value.type.tensor_type.shape.dim:
                    dim.Clear()
        del proto.graph.value_info[:]
        return proto


@functools.cache
def cases() -> tuple[Case, ...]:
    """All of them, by name; each name is there once."""
    found = {case.name: case for case in (*_of_nodes(), *_of_folders(), *_of_networks())}
    return tuple(found[name] for name in sorted(found))


def _of_nodes() -> Iterator[Case]:
    np.random.seed(0)  # the generators draw from numpy's own state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what they compute, and of deprecated types
        made = load_model_tests(kind="node")
    for test in made:
        examples = tuple(
            _example(test.model, map(_value, inputs), map(_value, outputs))
            for inputs, outputs in test.data_sets
        )
        yield Case(test.name, "node", test.model, examples, test.rtol, test.atol)


def _of_folders() -> Iterator[Case]:
    for kind in _FOLDERS:
        for test in load_model_tests(kind=kind):
            folder = Path(test.model_dir)
            model = onnx.load(folder / "model.onnx")
            examples = tuple(
                _example(
                    model,
                    _read(each, "input", model.graph.input),
                    _read(each, "output", model.graph.output),
                )
                for each in sorted(folder.glob("test_data_set_*"))
            )
            yield Case(test.name, kind, model, examples, test.rtol, test.atol)


def _of_networks() -> Iterator[Case]:
    """The networks; ``onnx.backend.test.runner`` makes their inputs so."""
    for test in load_model_tests(kind="real"):
        path = DATA / "light" / Path(test.url).name
        model = onnx.load(path)
        given = {x.name for x in model.graph.initializer}
        feeds: dict[str, Value] = {}
        for value in model.graph.input:
            if value.name not in given:
                shape = [x.dim_value or 1 for x in value.type.tensor_type.shape.dim]
                count = int(np.prod(shape))
                feeds[value.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
        tensor = onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
        outputs: dict[str, Value] = {model.graph.output[0].name: numpy_helper.to_array(tensor)}
        yield Case(test.name, "real", model, (Example(feeds, outputs),), test.rtol, test.atol)


def _example(model: onnx.ModelProto, inputs: Iterable[Value], outputs: Iterable[Value]) -> Example:
    return Example(
        dict(zip((x.name for x in model.graph.input), inputs, strict=False)),
        dict(zip((x.name for x in model.graph.output), outputs, strict=False)),
    )


def _value(given: object) -> Value:
    if isinstance(given, onnx.TensorProto):
        return numpy_helper.to_array(given)
    if given is None or isinstance(given, list):
        return given
    return np.asarray(given)


def _read(folder: Path, stem: str, values: Iterable[onnx.ValueInfoProto]) -> Iterator[Value]:
    for i, value in enumerate(values):
        path = folder / f"{stem}_{i}.pb"
        if not path.exists():
            return
        kind = value.type.WhichOneof("value")
        if kind == "sequence_type":
            yield numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
        elif kind == "optional_type":
            yield numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
        else:
            yield numpy_helper.to_array(onnx.load_tensor(path))

"""Read the kernels of the WebGPU provider out of onnxruntime-webgpu, into a table of graphfix.

``python -m tests.webgpu.kernels`` writes ``kernels.csv`` of its facts; with names of operators it
prints their rows. That onnxruntime lists no kernels of the provider, so it is asked: for each
operator, each version of it and each type of each of its type variables, it loads a model of one
node and says where the node would run, and which of its inputs and outputs stay on the CPU. Nothing
runs. It takes three minutes.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as internals

from graphfix.runtime.process import worker_for
from graphfix.runtime.python import runner_for

FILE = "kernels.csv"
_SCRIPT = Path(__file__).with_name("place_models.py")
# A type variable is tried with these first; a combination that has a kernel is the base.
_COMMON = ("float", "int32", "uint8", "int64", "bool", "float16", "uint32", "int8")
_MOST_COMBINATIONS = 8
_BOTH = (False, True)  # without and with all that is optional
_BRANCH = onnx.parser.parse_graph(
    "b () => (float[1] z) { z = Constant <value = float[1] {1.0}> () }"
)
_OF_BRANCH = ("If", "V")  # a type that the branches have
# What onnxruntime must read in an attribute to load the node at all.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Einsum": {"equation": "ij,jk->ik"},
    "GridSample": {"mode": "bilinear"},
    "If": {"then_branch": _BRANCH, "else_branch": _BRANCH},
}
_HEADS = (
    *("op", "domain", "since_version", "supported_types"),
    *("cpu_inputs", "cpu_outputs", "refused_inputs"),
)
_DTYPES = {name.lower(): number for name, number in TensorProto.DataType.items()}

Types = dict[str, str]


@dataclass(frozen=True, eq=False)
class Probe:
    """A node to load: an operator with these types.

    Attributes:
        full: Whether it has all that is optional, or nothing of it.
        also: One optional input that it has nevertheless.
    """

    schema: Any
    types: Types
    full: bool
    also: int | None = None

    def model(self) -> bytes:
        """The model of one node."""
        inputs, outputs = self.ports(self.schema.inputs, self.also), self.ports(self.schema.outputs)
        node = helper.make_node(
            self.schema.name,
            [f"x{i}" if t else "" for i, t in enumerate(inputs)],
            [f"y{i}" if t else "" for i, t in enumerate(outputs)],
            domain=self.schema.domain,
            **self.attributes(),
        )
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info(f"x{i}", t, None) for i, t in enumerate(inputs) if t],
            [helper.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(outputs) if t],
        )
        # onnxruntime loads no opset before 7.
        opset = max(self.schema.since_version, 1 if self.schema.domain else 7)
        opsets = [helper.make_opsetid(self.schema.domain, opset)]
        if self.schema.domain:
            opsets.append(helper.make_opsetid("", 17))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return model.SerializeToString()  # type: ignore[no-any-return]

    def ports(self, parameters: Sequence[Any], also: int | None = None) -> list[int]:
        """The element type of each input or output, 0 for an absent one."""
        types = []
        for i, parameter in enumerate(parameters):
            wanted = self.full or i == also or "Optional" not in str(parameter.option)
            types.append(_DTYPES[self.type_of(parameter)] if wanted else 0)
        while types and not types[-1]:
            types.pop()
        return types or ([_DTYPES[self.type_of(parameters[0])]] if parameters else [])

    def type_of(self, parameter: Any) -> str:
        """The element type of a formal parameter."""
        return _element(self.types.get(parameter.typeStr, parameter.typeStr))

    def attributes(self) -> dict[str, Any]:
        """What must be said of it."""
        values = {
            name: _value_for(str(x.type))
            for name, x in self.schema.attributes.items()
            if x.required and name not in _ATTRIBUTES.get(self.schema.name, {})
        }
        values |= _ATTRIBUTES.get(self.schema.name, {})
        if self.schema.outputs:
            for name in {"to", "dtype"} & self.schema.attributes.keys():
                values[name] = _DTYPES[self.type_of(self.schema.outputs[0])]
        return values


def _element(text: str) -> str:
    return text.removeprefix("tensor(").removesuffix(")")


def _value_for(kind: str) -> Any:
    return next(
        value
        for word, value in (
            *(("INTS", [1]), ("FLOATS", [1.0]), ("STRINGS", ["a"])),
            *(("INT", 1), ("FLOAT", 1.0), ("STRING", "a")),
        )
        if kind.endswith(word)
    )


def schemas() -> Iterator[Any]:
    """Every version of every operator of tensors, without those that have graphs inside."""
    for schema in internals.get_all_operator_schema():
        if schema.domain not in ("", "com.microsoft") or schema.deprecated:
            continue
        unset = schema.attributes.keys() - _ATTRIBUTES.get(schema.name, {}).keys()
        kinds = [str(schema.attributes[x].type) for x in unset if schema.attributes[x].required]
        if any("GRAPH" in x or "TENSOR" in x for x in kinds):
            continue
        if _is_replaced_before_7(schema) or _is_inlined(schema):
            continue
        parameters = [*schema.inputs, *schema.outputs]
        if all(_dtypes_of(schema, x.typeStr) for x in parameters):
            yield schema


def _onnx_schema(schema: Any, opset: int) -> onnx.defs.OpSchema | None:
    """ONNX's own schema of an operator as of an opset; onnxruntime has some of its own."""
    try:
        return onnx.defs.get_schema(schema.name, opset, schema.domain)
    except onnx.defs.SchemaError:
        return None


def _is_replaced_before_7(schema: Any) -> bool:
    """Whether a later version of the operator holds in opset 7 already."""
    known = _onnx_schema(schema, 7) if schema.since_version < 7 else None
    return known is not None and known.since_version != schema.since_version


@functools.cache
def _cpu_kernels() -> set[tuple[str, str]]:
    kernels = internals.get_all_opkernel_def()
    return {(x.op_name, x.domain) for x in kernels if x.provider == "CPUExecutionProvider"}


def _is_inlined(schema: Any) -> bool:
    """Whether other operators take its place where no provider has it, such as CastLike."""
    if schema.domain or (schema.name, "") in _cpu_kernels():
        return False
    known = _onnx_schema(schema, schema.since_version)
    return known is not None and bool(known.has_function or known.has_context_dependent_function)


def _dtypes_of(schema: Any, variable: str) -> list[str]:
    """The element types that a type variable may be, the common ones first."""
    allowed = next(
        (x.allowed_type_strs for x in schema.type_constraints if x.type_param_str == variable),
        [variable],
    )
    dtypes = {_element(x) for x in allowed if x.startswith("tensor(")} & _DTYPES.keys()
    return [*(x for x in _COMMON if x in dtypes), *sorted(dtypes.difference(_COMMON))]


@dataclass
class Row:
    """What was found of one version of an operator."""

    schema: Any
    types: dict[str, set[str]] = field(default_factory=dict)
    cpu_inputs: set[int] = field(default_factory=set)
    cpu_outputs: set[int] = field(default_factory=set)
    refused_inputs: set[int] = field(default_factory=set)


def ask(probes: Sequence[Probe]) -> list[dict[str, Any]]:
    """Where each would run."""
    runner = runner_for("webgpu")
    answers: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "models.pickle"
        while len(answers) < len(probes):
            path.write_bytes(pickle.dumps([x.model() for x in probes[len(answers) :]]))
            out = subprocess.run(
                [*runner.command, str(_SCRIPT), str(path)], capture_output=True, check=False
            ).stdout
            answers += [json.loads(x) for x in out.splitlines() if x.startswith(b"{")]
            if len(answers) < len(probes):
                answers.append({"error": "the process died"})
    return answers


def is_there(answer: Mapping[str, Any]) -> bool:
    """Whether the node would run on WebGPU."""
    if error := answer.get("error"):
        return "/webgpu/" in error
    return not answer["cpu"]


def survey(names: Collection[str] = ()) -> list[Row]:
    """All kernels, or those of some operators."""
    rows = {_key(x): Row(x) for x in schemas() if not names or x.name in names}
    base_of: dict[Any, Probe] = {}

    def learn(probes: Sequence[Probe]) -> None:
        for probe, answer in zip(probes, ask(probes), strict=True):
            if not is_there(answer):
                continue
            base_of.setdefault(_key(probe.schema), probe)
            row = rows[_key(probe.schema)]
            for name, parameters in (
                ("cpu_inputs", probe.schema.inputs),
                ("cpu_outputs", probe.schema.outputs),
            ):
                given = [i for i, t in enumerate(probe.ports(parameters)) if t]
                getattr(row, name).update(given[i] for i in answer.get(name, ()))

    combinations = {key: _combinations(row.schema) for key, row in rows.items()}
    learn(
        [Probe(rows[key].schema, x[0], full) for key, x in combinations.items() for full in _BOTH]
    )
    others = {key: x for key, x in combinations.items() if key not in base_of}
    learn([Probe(rows[key].schema, x, False) for key, every in others.items() for x in every[1:]])
    more = [
        (variable, Probe(probe.schema, {**probe.types, variable: dtype}, full))
        for probe in base_of.values()
        for variable in probe.types
        for dtype in _dtypes_of(probe.schema, variable)
        for full in _BOTH
    ]
    for (variable, probe), answer in zip(more, ask([x for _, x in more]), strict=True):
        if is_there(answer):
            row = rows[_key(probe.schema)]
            row.types.setdefault(variable, set()).add(probe.types[variable])
    optional = [
        Probe(probe.schema, probe.types, full=False, also=i)
        for probe in base_of.values()
        for i, x in enumerate(probe.schema.inputs)
        if "Optional" in str(x.option) and not probe.full
    ]
    for probe, answer in zip(optional, ask(optional), strict=True):
        if "cpu" in answer and not is_there(answer) and probe.also is not None:
            rows[_key(probe.schema)].refused_inputs.add(probe.also)
    return [rows[x] for x in base_of]


def _combinations(schema: Any) -> list[Types]:
    """Types for all type variables of an operator, the common ones first."""
    variables = sorted({x.typeStr for x in (*schema.inputs, *schema.outputs)})
    choices = (_dtypes_of(schema, x) for x in variables)
    every = itertools.islice(itertools.product(*choices), _MOST_COMBINATIONS)
    return [dict(zip(variables, x, strict=True)) for x in every]


def _key(schema: Any) -> tuple[str, str, int]:
    return schema.domain, schema.name, schema.since_version


def table(names: Collection[str] = ()) -> str:
    """The kernels, as the file has them."""
    version = worker_for(runner_for("webgpu")).about["onnxruntime"]
    out = io.StringIO()
    out.write(f"onnxruntime-webgpu {version}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADS)
    for row in sorted(survey(names), key=lambda x: _key(x.schema)):
        types = ";".join(
            f"{name}=[{'|'.join(sorted(every))}]"
            for name, every in sorted(row.types.items())
            if not name.startswith("tensor(") and (row.schema.name, name) != _OF_BRANCH
        )
        writer.writerow(
            [row.schema.name, row.schema.domain, row.schema.since_version, types]
            + [
                "|".join(map(str, sorted(x)))
                for x in (row.cpu_inputs, row.cpu_outputs, row.refused_inputs)
            ]
        )
    return out.getvalue()


if __name__ == "__main__":
    if sys.argv[1:]:
        print(table(sys.argv[1:]), end="")
    else:
        with resources.as_file(resources.files("graphfix.providers.webgpu") / FILE) as path:
            path.write_text(table(), encoding="utf-8")

"""Nodes of each operator, with inputs, to be run on ONNX Runtime: what a trait is tested on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnxruntime
from onnx.reference import ReferenceEvaluator

from graphfix.ops.table import row_of

Array = npt.NDArray[np.generic]

OPSETS = (7, 9, 10, 11, 12, 13, 18, 20, 21, 23, 24, 26)
MICROSOFT = "com.microsoft"
_QUIET = onnxruntime.SessionOptions()
_QUIET.log_severity_level = 4
_QUIET.intra_op_num_threads = 1
_QUIET.inter_op_num_threads = 1
_QUIET.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


@dataclass(frozen=True)
class Sample:
    """A node with inputs.

    Attributes:
        operator: Its qualified name.
        opset: The version of the standard opset.
        inputs: The contents of its inputs; None where one is not given.
        attributes: Its attributes.
        data: The inputs that hold data; others are parameters.
        outputs: How many outputs it has.
    """

    operator: str
    opset: int
    inputs: tuple[Array | None, ...]
    attributes: dict[str, object] = field(default_factory=dict)
    data: tuple[int, ...] = (0,)
    outputs: int = 1

    def __post_init__(self) -> None:
        arrays = tuple(None if x is None else np.asarray(x) for x in self.inputs)
        object.__setattr__(self, "inputs", arrays)

    def __str__(self) -> str:
        shapes = [None if x is None else (x.dtype.name, x.shape) for x in self.inputs]
        return f"{self.operator}-{self.opset} {self.attributes} of {shapes}"

    def with_inputs(self, inputs: dict[int, Array]) -> Sample:
        """Return the same node with other contents of some inputs."""
        return replace(self, inputs=tuple(inputs.get(i, x) for i, x in enumerate(self.inputs)))

    def run(self) -> list[Array]:
        """Run the node on ONNX Runtime."""
        if self.operator in _NO_KERNEL:
            return [_reference(self)]
        session, names = _session(self.key(), self)
        feeds = {name: x for name, x in zip(names, self.inputs, strict=True) if x is not None}
        return session.run(None, feeds)

    def first(self) -> Array:
        """Return the first output, or all outputs of a Split as one."""
        outputs = self.run()
        return outputs[0] if len(outputs) == 1 else np.concatenate([x.reshape(-1) for x in outputs])

    def dims(self, array: Array) -> list[int | None]:
        """Return the shape of an input as the model says it."""
        # ONNX takes sizes of unknown length for none at all.
        return [*array.shape] if self.operator == "Resize" else [None] * array.ndim

    def key(self) -> str:
        """Return what two samples have in common that one session can run."""
        types = [None if x is None else (x.dtype.name, self.dims(x)) for x in self.inputs]
        return f"{self.operator} {self.opset} {self.attributes} {types} {self.outputs}"


_SESSIONS: dict[str, tuple[onnxruntime.InferenceSession, list[str]]] = {}


def _session(key: str, sample: Sample) -> tuple[onnxruntime.InferenceSession, list[str]]:
    if key not in _SESSIONS:
        domain, _, op_type = sample.operator.rpartition(".")
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(sample.inputs)]
        made = [f"y{i}" for i in range(sample.outputs)]
        node = onnx.helper.make_node(op_type, names, made, domain=domain, **sample.attributes)
        model = onnx.helper.make_model(
            onnx.helper.make_graph(
                [node],
                "sample",
                [
                    onnx.helper.make_tensor_value_info(
                        name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), sample.dims(x)
                    )
                    for name, x in zip(names, sample.inputs, strict=True)
                    if x is not None
                ],
                [onnx.ValueInfoProto(name=x) for x in made],
            ),
            opset_imports=[
                onnx.helper.make_opsetid("", sample.opset),
                onnx.helper.make_opsetid(MICROSOFT, 1),
            ],
            ir_version=8,
        )
        _SESSIONS[key] = (onnxruntime.InferenceSession(model.SerializeToString(), _QUIET), names)
    return _SESSIONS[key]


_NO_KERNEL = ("Swish",)  # ONNX Runtime 1.32 has none on the CPU


def _reference(sample: Sample) -> Array:
    """Run what ONNX itself says of an operator that ONNX Runtime does not have."""
    node = onnx.helper.make_node(sample.operator, ["x"], ["y"], **sample.attributes)
    evaluator = ReferenceEvaluator(node, opsets={"": sample.opset})
    with np.errstate(over="ignore"):
        return np.asarray(evaluator.run(None, {"x": sample.inputs[0]})[0])


def opsets_of(operator: str) -> list[int]:
    """Return one opset for each version of an operator that the table speaks of."""
    if "." in operator or operator == "SimplifiedLayerNormalization":
        return [17]
    versions = {}
    for opset in OPSETS:
        if onnx.defs.has(operator, "") and row_of(operator, opset) is not None:
            try:
                schema = onnx.defs.get_schema(operator, opset, "")
            except onnx.defs.SchemaError:
                continue
            if not schema.deprecated:
                versions[schema.since_version] = opset
    return list(versions.values())


def floats(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Return distinct random numbers of float32."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def labels(*shape: int, first: int = 1) -> Array:
    """Return distinct numbers of float32, each an integer."""
    return np.arange(first, first + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def ints(*values: int) -> Array:
    """Return a vector of int64."""
    return np.array(values, np.int64)


def _scalar(number: float) -> Array:
    return np.array(number, np.float32)


def bools(*shape: int, seed: int = 0) -> Array:
    """Return random booleans."""
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


# --- Element by element ---------------------------------------------------------------------------

_DOMAINS = {"Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.9, 0.9), "Acosh": (1, 5)}
_POSITIVE = ("Log", "Sqrt")
_ATTRIBUTES: dict[str, list[dict[str, object]]] = {
    "Elu": [{}, {"alpha": 0.5}],
    "Celu": [{}, {"alpha": 2.0}],
    "Selu": [{}, {"alpha": 1.5, "gamma": 1.2}],
    "LeakyRelu": [{}, {"alpha": 0.3}],
    "HardSigmoid": [{}, {"alpha": 0.4, "beta": 0.3}],
    "Shrink": [{}, {"lambd": 0.5, "bias": 1.0}],
    "ThresholdedRelu": [{}, {"alpha": -1.0}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "com.microsoft.QuickGelu": [{}, {"alpha": 1.0}],
    "Cast": [{"to": onnx.TensorProto.INT32}, {"to": onnx.TensorProto.DOUBLE}],
}
SHAPES = ((), (3,), (2, 3), (2, 1, 3))


def unary_samples(operator: str) -> Iterator[Sample]:
    """Yield nodes of an operator that works on its first input."""
    low, high = _DOMAINS.get(operator, (0.1, 4.0) if operator in _POSITIVE else (-2.0, 2.0))
    for opset in opsets_of(operator):
        for attributes in _ATTRIBUTES.get(operator, [{}]):
            for seed, shape in enumerate(SHAPES):
                if operator.startswith(MICROSOFT) and not shape:
                    continue
                x: Array = floats(*shape, low=low, high=high, seed=seed)
                if operator == "Not":
                    x = bools(*shape, seed=seed)
                elif operator == "BitwiseNot":
                    x = np.random.default_rng(seed).integers(-9, 9, shape, np.int64)
                yield from _with_parameters(Sample(operator, opset, (x,), attributes))


def _with_parameters(sample: Sample) -> Iterator[Sample]:
    """Yield a unary node with its parameters, at its opset."""
    x = sample.inputs[0]
    if sample.operator == "Clip" and sample.opset < 11:
        yield replace(sample, attributes={"min": -0.5, "max": 1.0})
    elif sample.operator == "Clip":
        yield replace(sample, inputs=(x, _scalar(-0.5), _scalar(1.0)))
        yield replace(sample, inputs=(x, None, _scalar(1.0)))
    elif sample.operator == "CastLike":
        yield replace(sample, inputs=(x, np.zeros(2, np.int32)))
        yield replace(sample, inputs=(x, np.zeros((), np.float64)))
    else:
        yield sample


_BROADCAST_SHAPES = (((), ()), ((3,), (2, 1)), ((2, 3), (3,)), ((1, 3), (2, 1)), ((2, 3), (2, 3)))
_BOOLEAN = ("And", "Or", "Xor")
_INTEGER = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
_MANY = ("Max", "Min", "Sum", "Mean")


def broadcast_samples(operator: str) -> Iterator[Sample]:
    """Yield nodes of an operator whose inputs broadcast."""
    for opset in opsets_of(operator):
        for seed, shapes in enumerate(_BROADCAST_SHAPES):
            if operator == "PRelu" and np.broadcast_shapes(*shapes) != shapes[0]:
                continue
            inputs = tuple(_operand(operator, opset, x, 2 * seed + i) for i, x in enumerate(shapes))
            attributes: dict[str, object] = {}
            if operator == "BitShift":
                attributes = {"direction": "LEFT"}
                inputs = tuple(abs(x.astype(np.int32)).astype(np.uint8) % 4 for x in inputs)
            if operator == "Mod" or (operator == "Where"):
                yield from _odd_ones(operator, opset, inputs)
                continue
            if operator == "com.microsoft.BiasGelu":
                if len(shapes[1]) == 1 and len(shapes[0]) > 1:
                    yield Sample(operator, opset, inputs, data=(0, 1))
                continue
            yield Sample(operator, opset, inputs, attributes, data=(0, 1))
            if operator in _MANY:
                third = _operand(operator, opset, (2, 3), seed + 50)
                yield Sample(operator, opset, (*inputs, third), data=(0, 1, 2))


def _odd_ones(operator: str, opset: int, inputs: tuple[Array, ...]) -> Iterator[Sample]:
    if operator == "Where":
        condition = bools(2, 3, seed=opset)
        yield Sample(operator, opset, (condition, *inputs), data=(0, 1, 2))
        return
    whole = tuple((x * 10).astype(np.int64) for x in inputs)
    yield Sample(operator, opset, (whole[0], np.where(whole[1] == 0, 3, whole[1])), data=(0, 1))
    yield Sample(operator, opset, inputs, {"fmod": 1}, data=(0, 1))


def _operand(operator: str, opset: int, shape: tuple[int, ...], seed: int) -> Array:
    if operator in _BOOLEAN:
        return bools(*shape, seed=seed)
    if operator in _INTEGER:
        return np.random.default_rng(seed).integers(-9, 9, shape, np.int64)
    low = 0.2 if operator == "Pow" else -2.0
    x = floats(*shape, low=low, seed=seed)
    if operator in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
        x = np.round(x)
    return x.astype(np.int64) if operator == "Equal" and opset < 11 else x


# --- What moves elements --------------------------------------------------------------------------


def _squeezes(operator: str, opset: int, shape: Sequence[int], axes: Sequence[int]) -> Sample:
    if opset < 13:
        return Sample(operator, opset, (labels(*shape),), {"axes": list(axes)})
    return Sample(operator, opset, (labels(*shape), ints(*axes)))


def _slices(
    opset: int, shape: Sequence[int], cuts: Sequence[tuple[int, int, int, int]], steps: bool = True
) -> Sample:
    """Return a Slice; cuts are (axis, start, end, step), steps from opset 10 on."""
    axes, starts, ends, jumps = zip(*cuts, strict=True)
    if opset < 10:
        attributes = {"axes": list(axes), "starts": list(starts), "ends": list(ends)}
        return Sample("Slice", opset, (labels(*shape),), attributes)
    inputs = (labels(*shape), ints(*starts), ints(*ends), ints(*axes))
    return Sample("Slice", opset, (*inputs, ints(*jumps)) if steps else inputs)


def move_samples(operator: str) -> Iterator[Sample]:
    """Yield nodes of an operator that moves elements, of several ranks."""
    for opset in opsets_of(operator):
        yield from _MOVES[operator](opset)


def _samples_of_reshape(opset: int) -> Iterator[Sample]:
    for shape, target in (((2, 6), (3, -1)), ((2, 3, 4), (0, -1)), ((6,), (1, 2, 3))):
        yield Sample("Reshape", opset, (labels(*shape), ints(*target)))
    if opset >= 14:
        yield Sample("Reshape", opset, (labels(2, 0), ints(0, 5)), {"allowzero": 1})


def _samples_of_flatten(opset: int) -> Iterator[Sample]:
    for axis in (0, 1, 2, 3, *((-1,) if opset >= 11 else ())):
        yield Sample("Flatten", opset, (labels(2, 3, 4),), {"axis": axis})
    yield Sample("Flatten", opset, (labels(2, 3, 4),))


def _samples_of_squeeze(opset: int) -> Iterator[Sample]:
    yield _squeezes("Squeeze", opset, (1, 2, 1, 3), (0, 2))
    yield Sample("Squeeze", opset, (labels(1, 2, 1),))
    if opset >= 11:
        yield _squeezes("Squeeze", opset, (1, 2, 1, 3), (-2,))


def _samples_of_unsqueeze(opset: int) -> Iterator[Sample]:
    yield _squeezes("Unsqueeze", opset, (2, 3), (0, 2))
    if opset >= 11:
        yield _squeezes("Unsqueeze", opset, (2, 3), (-1,))


def _samples_of_transpose(opset: int) -> Iterator[Sample]:
    yield Sample("Transpose", opset, (labels(2, 3, 4),))
    yield Sample("Transpose", opset, (labels(2, 3, 4),), {"perm": [1, 2, 0]})
    yield Sample("Transpose", opset, (labels(3),))


def _samples_of_slice(opset: int) -> Iterator[Sample]:
    yield _slices(opset, (4, 5), ((0, 1, 3, 1), (1, 0, 2**31 - 1, 1)))
    yield _slices(opset, (4, 5), ((1, -3, -1, 1),))
    if opset < 10:
        yield Sample("Slice", opset, (labels(4, 5),), {"starts": [1, 2], "ends": [9, 4]})
        return
    yield _slices(opset, (4, 5), ((-1, 4, 0, -2), (0, 0, 4, 3)))
    yield _slices(opset, (5,), ((0, 9, -9, -1),))
    yield _slices(opset, (5,), ((0, 2, 2**63 - 1, 1),), steps=False)
    yield Sample("Slice", opset, (labels(4, 5), ints(1, 2), ints(9, 4)))
    unnamed = (labels(4, 5), ints(1), ints(4), None, ints(2))
    yield Sample("Slice", opset, unnamed)


def _samples_of_split(opset: int) -> Iterator[Sample]:
    sizes: tuple[tuple[Array | None, ...], dict[str, object]]
    sizes = ((), {"split": [1, 3]}) if opset < 13 else ((ints(1, 3),), {})
    yield Sample("Split", opset, (labels(2, 4), *sizes[0]), {"axis": 1} | sizes[1], outputs=2)
    even: dict[str, object] = {"num_outputs": 2} if opset >= 18 else {}
    yield Sample("Split", opset, (labels(4, 2),), even, outputs=2)
    if opset >= 18:
        yield Sample("Split", opset, (labels(7),), {"num_outputs": 3}, outputs=3)


def _samples_of_gather(opset: int) -> Iterator[Sample]:
    yield Sample("Gather", opset, (labels(4, 3), ints(0, 2, 2)))
    yield Sample("Gather", opset, (labels(4, 3), ints(2, 0).reshape(1, 2)), {"axis": 1})
    if opset >= 11:
        yield Sample("Gather", opset, (labels(4, 3), np.array(-1, np.int64)), {"axis": -1})


def _samples_of_gather_elements(opset: int) -> Iterator[Sample]:
    yield Sample("GatherElements", opset, (labels(3, 3), ints(0, 2, 0, 1).reshape(2, 2)))
    where = ints(0, -1, 1).reshape(3, 1)
    yield Sample("GatherElements", opset, (labels(3, 3), where), {"axis": 1})


def _samples_of_gather_nd(opset: int) -> Iterator[Sample]:
    yield Sample("GatherND", opset, (labels(3, 4), ints(2, 1, 2, 1).reshape(2, 2)))
    yield Sample("GatherND", opset, (labels(3, 4), ints(2, 0).reshape(2, 1)))
    if opset >= 12:
        where = ints(1, 3).reshape(2, 1)
        yield Sample("GatherND", opset, (labels(2, 4), where), {"batch_dims": 1})


def _samples_of_concat(opset: int) -> Iterator[Sample]:
    inputs = (labels(2, 3), labels(2, 1, first=50))
    yield Sample("Concat", opset, inputs, {"axis": 1}, data=(0, 1))
    inputs = (labels(2, 3), labels(1, 3, first=50), labels(2, 3, first=90))
    yield Sample("Concat", opset, inputs, {"axis": 0}, data=(0, 1, 2))


def _samples_of_expand(opset: int) -> Iterator[Sample]:
    yield Sample("Expand", opset, (labels(3, 1), ints(2, 1, 4)))
    yield Sample("Expand", opset, (labels(3), ints(1)))


def _samples_of_tile(opset: int) -> Iterator[Sample]:
    yield Sample("Tile", opset, (labels(2, 3), ints(2, 1)))
    yield Sample("Tile", opset, (labels(3), ints(3)))


def _samples_of_compress(opset: int) -> Iterator[Sample]:
    yield Sample("Compress", opset, (labels(3, 2), np.array([True, False, True])), {"axis": 0})
    yield Sample("Compress", opset, (labels(3, 2), np.array([False, True, True])))


def _samples_of_depth_to_space(opset: int) -> Iterator[Sample]:
    for mode in ("DCR", "CRD") if opset >= 11 else (None,):
        attributes: dict[str, object] = {"blocksize": 2} | ({"mode": mode} if mode else {})
        yield Sample("DepthToSpace", opset, (labels(1, 8, 2, 3),), attributes)


def _samples_of_space_to_depth(opset: int) -> Iterator[Sample]:
    yield Sample("SpaceToDepth", opset, (labels(1, 2, 4, 6),), {"blocksize": 2})


def _samples_of_reverse_sequence(opset: int) -> Iterator[Sample]:
    attributes: dict[str, object] = {"batch_axis": 0, "time_axis": 1}
    yield Sample("ReverseSequence", opset, (labels(2, 4), ints(3, 1)), attributes)


_MOVES: dict[str, Callable[[int], Iterator[Sample]]] = {
    "Compress": _samples_of_compress,
    "Concat": _samples_of_concat,
    "DepthToSpace": _samples_of_depth_to_space,
    "Expand": _samples_of_expand,
    "Flatten": _samples_of_flatten,
    "Gather": _samples_of_gather,
    "GatherElements": _samples_of_gather_elements,
    "GatherND": _samples_of_gather_nd,
    "Identity": lambda opset: iter([Sample("Identity", opset, (labels(2, 3),))]),
    "Reshape": _samples_of_reshape,
    "ReverseSequence": _samples_of_reverse_sequence,
    "Slice": _samples_of_slice,
    "SpaceToDepth": _samples_of_space_to_depth,
    "Split": _samples_of_split,
    "Squeeze": _samples_of_squeeze,
    "Tile": _samples_of_tile,
    "Transpose": _samples_of_transpose,
    "Unsqueeze": _samples_of_unsqueeze,
}

# --- What mixes places ----------------------------------------------------------------------------


def _samples_along_axis(operator: str, opset: int) -> Iterator[Sample]:
    for shape in ((3,), (2, 3), (2, 3, 2)):
        x = floats(*shape, seed=len(shape))
        if len(shape) > 1:
            yield Sample(operator, opset, (x,))
        for axis in range(len(shape)):
            yield Sample(operator, opset, (x,), {"axis": axis})
        if opset >= 11:
            yield Sample(operator, opset, (x,), {"axis": -1})


def _samples_of_reduction(operator: str, opset: int) -> Iterator[Sample]:
    since = 13 if operator == "ReduceSum" else 18
    x = floats(2, 3, 2, low=0.2) if "Log" in operator else floats(2, 3, 2)
    yield Sample(operator, opset, (x,))
    for axes, keep in (((1,), 1), ((0, 2), 0), ((1, 2), 1)):
        attributes: dict[str, object] = {"keepdims": keep}
        if opset >= since:
            yield Sample(operator, opset, (x, ints(*axes)), attributes)
        else:
            yield Sample(operator, opset, (x,), attributes | {"axes": list(axes)})
    if opset >= since:
        yield Sample(operator, opset, (x,), {"noop_with_empty_axes": 1, "keepdims": 0})


def _samples_of_norm(operator: str, opset: int) -> Iterator[Sample]:
    x, last = floats(2, 3, 4), floats(4, seed=1)
    scale = floats(3, seed=2)
    if operator == "InstanceNormalization":
        yield Sample(operator, opset, (x, scale, scale))
    elif operator == "GroupNormalization":
        wide = floats(2, 4, 3)
        extra = floats(2 if opset < 21 else 4, seed=2)
        yield Sample(operator, opset, (wide, extra, extra), {"num_groups": 2})
    elif operator == "LayerNormalization":
        yield Sample(operator, opset, (x, last, last))
        yield Sample(operator, opset, (x, floats(3, 4, seed=3)), {"axis": 1})
    elif operator in ("RMSNormalization", "SimplifiedLayerNormalization"):
        yield Sample(operator, opset, (x, last))
        yield Sample(operator, opset, (x, last), {"axis": 2})
    elif operator == "MeanVarianceNormalization":
        yield Sample(operator, opset, (floats(2, 3, 2, 2),))
        yield Sample(operator, opset, (floats(2, 3, 2, 2),), {"axes": [1, 2]})
    elif operator == "LRN":
        yield Sample(operator, opset, (floats(2, 3, 2, 2),), {"size": 3})
    elif operator == "LpNormalization":
        yield from _samples_along_axis(operator, opset)
    elif operator == f"{MICROSOFT}.SkipLayerNormalization":
        yield Sample(operator, opset, (x, floats(2, 3, 4, seed=5), last, last), data=(0, 1))
    elif operator == f"{MICROSOFT}.SkipSimplifiedLayerNormalization":
        yield Sample(operator, opset, (x, floats(2, 3, 4, seed=5), last), data=(0, 1))


def _samples_of_scan(operator: str, opset: int) -> Iterator[Sample]:
    yield Sample(operator, opset, (floats(2, 3), np.array(1, np.int64)))
    yield Sample(operator, opset, (floats(2, 3), np.array(-2, np.int64)), {"reverse": 1})


def _samples_of_product(operator: str, opset: int) -> Iterator[Sample]:
    a, b = floats(2, 3, seed=1), floats(3, 4, seed=2)
    if operator == "Einsum":
        yield Sample(operator, opset, (a, b), {"equation": "ij,jk->ik"}, data=(0, 1))
    elif operator == f"{MICROSOFT}.MatMulNBits":
        weight = np.random.default_rng(0).integers(0, 256, (2, 1, 8), np.uint8)
        attributes: dict[str, object] = {"K": 16, "N": 2, "bits": 4, "block_size": 16}
        yield Sample(operator, opset, (floats(3, 16), weight, floats(2, seed=4)), attributes)
    elif operator == f"{MICROSOFT}.FusedGemm":
        yield Sample(operator, opset, (a, b), {"activation": "Relu"}, data=(0, 1))
    else:
        if operator == "Gemm" and opset < 11:
            yield Sample(operator, opset, (a, b, np.zeros(4, np.float32)), data=(0, 1))
            return
        yield Sample(operator, opset, (a, b), data=(0, 1))
        if operator != "Gemm":
            yield Sample(operator, opset, (floats(2, 2, 3), b), data=(0, 1))


def _samples_of_convolution(operator: str, opset: int) -> Iterator[Sample]:
    weight = floats(2, 2, 3, seed=3)
    yield Sample(operator, opset, (floats(1, 2, 6), weight), data=(0, 1))
    attributes: dict[str, object] = {"pads": [1, 1], "strides": [2]}
    yield Sample(operator, opset, (floats(1, 2, 6), weight), attributes, data=(0, 1))


def _samples_of_pool(operator: str, opset: int) -> Iterator[Sample]:
    x = floats(1, 2, 6)
    if operator.startswith("Global"):
        yield Sample(operator, opset, (x,))
        return
    yield Sample(operator, opset, (x,), {"kernel_shape": [2]})
    yield Sample(operator, opset, (x,), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]})


def mixing_samples(operator: str) -> Iterator[Sample]:
    """Yield nodes of an operator that combines elements of several places."""
    for opset in opsets_of(operator):
        row = row_of(operator, opset)
        builder = _MIXERS.get(row.kind) if row else None
        if builder is not None:
            yield from builder(operator, opset)


_MIXERS: dict[str, Callable[[str, int], Iterator[Sample]]] = {
    "convolve": _samples_of_convolution,
    "global_pool": _samples_of_pool,
    "local": _samples_of_norm,
    "norm": _samples_of_norm,
    "pool": _samples_of_pool,
    "product": _samples_of_product,
    "reduce": _samples_of_reduction,
    "scan": _samples_of_scan,
    "softmax": _samples_along_axis,
}

UNTESTED = {
    f"{MICROSOFT}.BiasSoftmax",  # no kernel on the CPU
    f"{MICROSOFT}.GroupNorm",
    f"{MICROSOFT}.SkipGroupNorm",
    "DeformConv",  # an offset for each place
    f"{MICROSOFT}.EmbedLayerNormalization",
    f"{MICROSOFT}.FusedGemm",  # its activation is chosen by an attribute
    "CausalConvWithState",
    "GlobalLpPool",
}
"""Operators of a kind that has samples, without a kernel to run or too unlike the others."""
_QUANTIZED = "quantized"


def _others(operator: str) -> Iterator[Sample]:
    for opset in opsets_of(operator):
        if operator == "Trilu":
            yield Sample(operator, opset, (floats(3, 3),))
            yield Sample(operator, opset, (floats(2, 3, 2), np.array(1, np.int64)), {"upper": 0})
        elif operator == "BatchNormalization":
            scale = floats(3, low=0.5)
            yield Sample(operator, opset, (floats(2, 3, 2), scale, scale, scale, scale))
        elif operator in ("ArgMax", "ArgMin"):
            yield Sample(operator, opset, (floats(2, 3),), {"axis": 1})
            yield Sample(operator, opset, (floats(2, 3),), {"keepdims": 0})
        elif operator == "TopK":
            k = {"k": 2} if opset < 10 else {}
            yield Sample(operator, opset, (floats(2, 3), *(() if k else (ints(2),))), k, outputs=2)
        elif operator == "Col2Im":
            yield Sample(operator, opset, (floats(1, 4, 4), ints(3, 3), ints(2, 2)))
        elif operator in ("Shape", "Size"):
            yield Sample(operator, opset, (floats(2, 3),))


@cache
def samples_of(operator: str) -> tuple[Sample, ...]:
    """Return nodes of an operator of the table, or none if there is nothing to run it on."""
    row = row_of(operator)
    assert row is not None
    if operator in UNTESTED or _QUANTIZED in row.traits:
        return ()
    if operator in _MOVES:
        return tuple(move_samples(operator))
    if row.kind == "unary":
        return tuple(unary_samples(operator))
    if row.kind in ("broadcast", "one_way"):
        return tuple(broadcast_samples(operator))
    return (*mixing_samples(operator), *_others(operator))

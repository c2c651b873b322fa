"""What decides the shape of a result, which inputs are places, and what changes from run to run."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphfix import ops
from graphfix.ops.table import row_of, rows, rows_by_operator
from tests.ops.samples import Array, Sample, floats, ints, samples_of

# A sample for each operator, and for each input that says sizes other contents of it.
_SCALES = np.array([2, 1], np.float32)
SIZES: dict[str, list[tuple[Sample, dict[int, Array]]]] = {
    "Reshape": [(Sample("Reshape", 13, (floats(6), ints(2, 3))), {1: ints(3, 2)})],
    "Squeeze": [(Sample("Squeeze", 13, (floats(1, 2, 1), ints(0))), {1: ints(2)})],
    "Unsqueeze": [(Sample("Unsqueeze", 13, (floats(2, 3), ints(0))), {1: ints(1)})],
    "Expand": [(Sample("Expand", 13, (floats(1, 3), ints(2, 3))), {1: ints(4, 3)})],
    "Tile": [(Sample("Tile", 13, (floats(1, 3), ints(2, 3))), {1: ints(4, 3)})],
    "Slice": [
        (
            Sample("Slice", 13, (floats(4, 5), ints(0), ints(4), ints(0), ints(1))),
            {1: ints(1), 2: ints(3), 3: ints(1), 4: ints(2)},
        )
    ],
    "Split": [(Sample("Split", 13, (floats(4), ints(1, 3)), outputs=2), {1: ints(2, 2)})],
    **{
        x: [(Sample(x, 18, (floats(2, 3, low=1), ints(0))), {1: ints(1)})]
        for x in sorted(ops.REDUCES)
    },
    "TopK": [(Sample("TopK", 13, (floats(2, 3), ints(1)), outputs=2), {1: ints(2)})],
    "MaxUnpool": [
        (
            Sample(
                "MaxUnpool",
                11,
                (floats(1, 1, 2), ints(0, 3).reshape(1, 1, 2), ints(1, 1, 4)),
                {"kernel_shape": [2], "strides": [2]},
            ),
            {2: ints(1, 1, 5)},
        )
    ],
    "Pad": [
        (Sample("Pad", 18, (floats(2, 3), ints(1, 1), None, ints(0))), {1: ints(2, 1), 3: ints(1)})
    ],
    "CenterCropPad": [(Sample("CenterCropPad", 18, (floats(4, 3), ints(2, 3))), {1: ints(6, 3)})],
    "Col2Im": [
        (Sample("Col2Im", 18, (floats(1, 4, 4), ints(3, 3), ints(2, 2))), {1: ints(2, 5)}),
        (Sample("Col2Im", 18, (floats(1, 6, 4), ints(2, 4), ints(2, 1))), {2: ints(1, 3)}),
    ],
    "Resize": [
        (Sample("Resize", 10, (floats(2, 3), _SCALES)), {1: _SCALES + 1}),
        (Sample("Resize", 13, (floats(2, 3), None, _SCALES)), {2: _SCALES + 1}),
        (Sample("Resize", 18, (floats(2, 3), None, None, ints(4, 3))), {3: ints(5, 4)}),
    ],
    "Upsample": [(Sample("Upsample", 9, (floats(2, 3), _SCALES)), {1: _SCALES + 1})],
    "AffineGrid": [
        (Sample("AffineGrid", 20, (floats(1, 2, 3), ints(1, 1, 2, 3))), {1: ints(1, 1, 4, 3)})
    ],
    "OneHot": [
        (
            Sample("OneHot", 11, (ints(0, 1), ints(3), np.array([0, 1], np.float32))),
            {1: ints(4)},
        )
    ],
    "ConstantOfShape": [(Sample("ConstantOfShape", 9, (ints(2, 3),)), {0: ints(3, 2)})],
    "Range": [
        (
            Sample("Range", 11, tuple(np.array(x, np.int64) for x in (0, 6, 1))),
            {i: np.array(x, np.int64) for i, x in enumerate((1, 7, 2))},
        )
    ],
    **{
        x: [(Sample(x, 17, (np.array(4, np.int64),)), {0: np.array(5, np.int64)})]
        for x in ("BlackmanWindow", "HammingWindow", "HannWindow")
    },
    "MelWeightMatrix": [
        (
            Sample(
                "MelWeightMatrix",
                17,
                (
                    *(np.array(x, np.int64) for x in (4, 16, 8000)),
                    *(np.array(x, np.float32) for x in (0, 4000)),
                ),
            ),
            {0: np.array(5, np.int64), 1: np.array(32, np.int64)},
        )
    ],
    "DFT": [
        (Sample("DFT", 17, (floats(1, 8, 1), np.array(8, np.int64))), {1: np.array(4, np.int64)})
    ],
    "STFT": [
        (
            Sample(
                "STFT",
                17,
                (floats(1, 16, 1), np.array(2, np.int64), None, np.array(4, np.int64)),
            ),
            {1: np.array(4, np.int64), 3: np.array(8, np.int64)},
        )
    ],
    "NonMaxSuppression": [
        (
            Sample(
                "NonMaxSuppression",
                11,
                (
                    np.array([[[0, 0, 1, 1], [3, 3, 4, 4]]], np.float32),
                    np.array([[[0.9, 0.8]]], np.float32),
                    np.array([2], np.int64),
                ),
            ),
            {2: np.array([1], np.int64)},
        )
    ],
}


@pytest.mark.parametrize("operator", sorted(ops.TAKES_SIZES))
def test_these_inputs_and_no_others_decide_the_shape(operator: str) -> None:
    decide = set()
    for sample, others in SIZES[operator]:
        row = row_of(operator, sample.opset)
        assert row is not None
        shapes = [x.shape for x in sample.run()]
        for index, contents in others.items():
            assert index in row.sizes
            assert [x.shape for x in sample.with_inputs({index: contents}).run()] != shapes
        decide |= {*others}
        if operator in ("STFT", "DFT", "MelWeightMatrix", "NonMaxSuppression", "OneHot"):
            continue
        for index, x in enumerate(sample.inputs):
            if x is not None and index not in row.sizes and index not in row.indices:
                again = sample.with_inputs({index: x[::-1].copy() if x.ndim else x})
                assert [y.shape for y in again.run()] == shapes
    assert decide == {i for row in rows_by_operator()[operator] for i in row.sizes}


def test_every_operator_of_sizes_has_a_sample() -> None:
    assert SIZES.keys() == ops.TAKES_SIZES


# Data, indices and more, for each operator that takes places in another input.
_PLACES: dict[str, Sample] = {
    "Gather": Sample("Gather", 13, (floats(3, 2), ints(0, 2))),
    "GatherElements": Sample("GatherElements", 13, (floats(3, 2), ints(0, 2).reshape(1, 2))),
    "GatherND": Sample("GatherND", 13, (floats(3, 2), ints(0, 2).reshape(2, 1))),
    "Scatter": Sample("Scatter", 10, (floats(3, 1), ints(0, 2).reshape(2, 1), floats(2, 1))),
    "ScatterElements": Sample(
        "ScatterElements", 13, (floats(3, 1), ints(0, 2).reshape(2, 1), floats(2, 1))
    ),
    "ScatterND": Sample("ScatterND", 13, (floats(3, 1), ints(0, 2).reshape(2, 1), floats(2, 1))),
}


@pytest.mark.parametrize("operator", sorted(_PLACES))
def test_a_place_beyond_the_data_is_refused(operator: str) -> None:
    sample = _PLACES[operator]
    (index,) = row_of(operator, sample.opset).indices  # type: ignore[union-attr]
    sample.run()
    beyond = sample.inputs[index] + 1000
    with pytest.raises(Exception, match=r"(?i)out of|indices|invalid"):
        sample.with_inputs({index: beyond}).run()


def test_every_operator_of_places_is_known() -> None:
    others = {"OneHot", "MaxUnpool", "TensorScatter"}  # they count or fill, and refuse otherwise
    assert others | _PLACES.keys() == ops.TAKES_INDICES


@pytest.mark.parametrize("operator", sorted(x for x in rows_by_operator() if samples_of(x)))
def test_the_shape_is_that_of_an_input(operator: str) -> None:
    for sample in samples_of(operator):
        row = row_of(operator, sample.opset)
        assert row is not None
        shape = sample.run()[0].shape
        if row.shape_of == "all":
            assert shape == np.broadcast_shapes(*(sample.inputs[i].shape for i in sample.data))
        elif row.shape_of:
            assert shape == sample.inputs[int(row.shape_of)].shape, sample


@pytest.mark.parametrize("operator", sorted(x for x in rows_by_operator() if samples_of(x)))
def test_no_input_gives_its_shape_unsaid(operator: str) -> None:
    """An operator whose row says nothing of the shape changes it in some sample."""
    row = row_of(operator)
    assert row is not None
    if not row.shape_of:
        pairs = [(x.run()[0].shape, x.inputs[0].shape) for x in samples_of(operator)]
        assert any(made != first for made, first in pairs)


@pytest.mark.parametrize("operator", sorted(ops.READS_ONLY_SHAPE - ops.RANDOM))
def test_contents_do_not_matter(operator: str) -> None:
    first, second = (Sample(operator, 13, (floats(2, 3, seed=i),)).first() for i in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("operator", sorted(ops.READS_ONLY_SHAPE & ops.RANDOM))
def test_drawn_numbers_have_the_shape_of_an_input(operator: str) -> None:
    """And the same sequence begins anew in a session, so that it does not depend on contents."""
    made = []
    for i in range(2):
        attributes: dict[str, object] = {
            "seed": 3.0,
            "mean" if "Normal" in operator else "low": 0.0,
        }
        sample = Sample(operator, 13, (floats(2, 3, seed=i),), attributes | {"dtype": 1})
        fresh = replace(sample, opset=13 + i)  # a session of its own
        made.append(fresh.first())
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("operator", sorted(ops.RANDOM))
def test_random_numbers_differ_from_run_to_run(operator: str) -> None:
    chances = np.full((1, 64), 0.5, np.float32)
    attributes: dict[str, object] = {"shape": [64]} if not operator.endswith("Like") else {}
    inputs = () if attributes else (chances,)
    if operator in ("Multinomial", "Bernoulli"):
        attributes, inputs = {"sample_size": 64} if operator == "Multinomial" else {}, (chances,)
    sample = Sample(operator, 15, inputs, attributes)
    assert sample.first().tolist() != sample.first().tolist()


def test_nothing_that_has_samples_is_random_unsaid() -> None:
    for operator in rows_by_operator():
        for sample in samples_of(operator)[:1]:
            np.testing.assert_array_equal(sample.first(), sample.first(), operator)


_COUNTED = {
    "NonZero": [Sample("NonZero", 13, (x,)) for x in (ints(0, 1, 2), ints(0, 0, 2))],
    "Unique": [Sample("Unique", 11, (x,)) for x in (ints(0, 1, 2), ints(0, 0, 2))],
    "Compress": [
        Sample("Compress", 11, (ints(1, 2), np.array(x))) for x in ([True, False], [True, True])
    ],
    "NonMaxSuppression": [
        replace(SIZES["NonMaxSuppression"][0][0]).with_inputs({0: np.array([x], np.float32)})
        for x in ([[0, 0, 1, 1], [3, 3, 4, 4]], [[0, 0, 1, 1], [0, 0, 1, 1]])
    ],
}


@pytest.mark.parametrize("operator", sorted(_COUNTED))
def test_contents_decide_how_many(operator: str) -> None:
    first, second = (x.first().shape for x in _COUNTED[operator])
    assert first != second


def test_what_counts_contents_counts_or_runs_a_body() -> None:
    assert _COUNTED.keys() == ops.COUNTS_CONTENTS - ops.HAS_BODY


# --- By the schemas -------------------------------------------------------------------------------

CONTRIB = {
    (f"{x.domain}." if x.domain else "") + x.name: x
    for x in state.get_all_operator_schema()
    if x.domain in ("", "com.microsoft")
}


@pytest.fixture(scope="module")
def schemas() -> dict[str, list[onnx.defs.OpSchema]]:
    grouped: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and row_of(schema.name, schema.since_version):
            grouped.setdefault(schema.name, []).append(schema)
    for operator in rows_by_operator():
        if operator not in grouped:
            grouped[operator] = [CONTRIB[operator]]
    return grouped


def _type_text(parameter: object) -> str:
    return str(getattr(parameter, "typeStr", None) or getattr(parameter, "type_str", ""))


def _keeps_type(schema: onnx.defs.OpSchema) -> bool:
    first, made = schema.inputs[0], schema.outputs[0]
    one = len(getattr(first, "types", ())) == 1 and made.types == first.types
    return one or _type_text(first) == _type_text(made)


def test_the_type_of_the_first_input_is_kept(schemas: dict[str, list[onnx.defs.OpSchema]]) -> None:
    """Both ways: what the schemas say of an operator is what the table says."""
    for operator, found in schemas.items():
        usable = [x for x in found if x.inputs and x.outputs and not x.deprecated]
        keeps = bool(usable) and all(map(_keeps_type, usable))
        if operator in ops.KEEPS_TYPE:
            assert keeps, operator
        elif "." not in operator and operator not in ops.SEQUENCES | ops.HAS_BODY:
            assert not keeps, operator


def _allowed(schema: onnx.defs.OpSchema) -> set[str]:
    return {y for x in schema.type_constraints for y in x.allowed_type_strs}


def test_a_body_is_a_graph_among_the_attributes(
    schemas: dict[str, list[onnx.defs.OpSchema]],
) -> None:
    graph = onnx.defs.OpSchema.AttrType.GRAPH
    for operator, found in schemas.items():
        if "." not in operator and operator != "SimplifiedLayerNormalization":
            has = any(x.type == graph for schema in found for x in schema.attributes.values())
            assert has == (operator in ops.HAS_BODY), operator


def test_sequences_are_said_by_types(schemas: dict[str, list[onnx.defs.OpSchema]]) -> None:
    for operator in ops.SEQUENCES:
        allowed = {x for schema in schemas[operator] for x in _allowed(schema)}
        assert any(x.startswith(("seq(", "optional(")) for x in allowed)
    for operator, found in schemas.items():
        if operator in ops.SEQUENCES | ops.HAS_BODY | ops.named("Identity") or "." in operator:
            continue
        for schema in found:
            for parameter in (*schema.inputs, *schema.outputs):
                types = getattr(parameter, "types", ())
                assert not any(x.startswith("seq(") for x in types), operator


def test_quantized_operators_take_or_make_small_integers(
    schemas: dict[str, list[onnx.defs.OpSchema]],
) -> None:
    small = {"tensor(uint8)", "tensor(int8)"}
    for operator in ops.COMPUTES_QUANTIZED:
        for schema in schemas[operator]:
            constraints = getattr(schema, "type_constraints", ())
            few = [{*x.allowed_type_strs} for x in constraints if len(x.allowed_type_strs) < 12]
            assert any(small & allowed for allowed in few) or any(
                "int8" in _type_text(x) for x in (*schema.inputs, *schema.outputs)
            ), operator
    assert {x for x in schemas if x.rpartition(".")[2].endswith("QuantizeLinear")} | {
        x for x in schemas if x.endswith("DequantizeLinear")
    } == ops.QUANTIZES
    whole = {x for x in ops.QUANTIZES if "Dequantize" not in x}
    assert whole == ops.ROUNDS_TO_INTEGERS
    made = Sample("QuantizeLinear", 13, (floats(3), np.array(0.1, np.float32))).first()
    assert made.dtype == np.uint8
    assert ops.ROUNDS_TO_INTEGERS < ops.QUANTIZES


def test_sizes_and_indices_are_inputs_that_exist(
    schemas: dict[str, list[onnx.defs.OpSchema]],
) -> None:
    for row in rows():
        for index in (*row.sizes, *row.indices):
            widest = max(len(x.inputs) for x in schemas[row.operator])
            assert index < widest, row

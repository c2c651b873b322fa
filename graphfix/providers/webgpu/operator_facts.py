"""What WebGPU does with operators, whatever their version: ``operators.csv``, as sets.

From survey.csv and edges.csv, of onnxruntime-webgpu 1.27.0 on a software Vulkan device:

loses_nan
    It makes a number of NaN.
overflows
    In float16 it computes in float16: squares pass 65504, and the mean of a constant row is off.
fails_when_empty
    A run fails where its input is empty and its result is not.
many_keys
    Of more keys than a subgroup has lanes other numbers come out, through Vulkan.
"""

from graphfix.providers.operator_table import operators_with

LOSES_NAN = operators_with(__package__, "loses_nan")
"""They make a number of NaN."""
OVERFLOWS_IN_FLOAT16 = operators_with(__package__, "overflows")
"""In float16 their squares pass 65504, and the result is wrong."""
FAILS_WHEN_EMPTY = operators_with(__package__, "fails_when_empty")
"""A run fails where their input is empty and their result is not."""
WRONG_OF_MANY_KEYS = operators_with(__package__, "many_keys")
"""Of more keys than a subgroup has lanes they are wrong, through Vulkan."""

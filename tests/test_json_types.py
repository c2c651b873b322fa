"""What is read from the metadata of a model is read with a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix import json_types
from graphfix.cache_axes import cache_input
from graphfix.errors import ModelError
from graphfix.facts import fixed_inputs
from graphfix.lengths import length_input

if TYPE_CHECKING:
    from collections.abc import Callable

READERS: dict[str, tuple[str, Callable[[ir.Model], Any]]] = {
    "lengths": (length_input.KEY, length_input.LengthInput.from_metadata),
    "caches": (cache_input.KEY, cache_input.CacheInput.all_from_metadata),
    "inputs": (fixed_inputs.METADATA_KEY, fixed_inputs.fixed_input_texts),
}
CACHE = '[{"input": "x", "dim": "T", "size": %s, "padded": [["x", 1, %s]], "states": []}]'
TEXTS = {
    "no JSON": "{",
    "lists in lists": "[" * 100_000,
    "as deep as Python goes": '{"input": ' + "[" * 700 + "]" * 700 + ', "axis": "x.1"}',
    "objects in objects": '{"a":' * 300 + "1" + "}" * 300,
    "a long text": '"' + "a" * (1 << 20) + '"',
    "a number without end": CACHE % ("1e999", "0"),
    "a number past every float": CACHE % ("4", "1" + "0" * 400),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", TEXTS)
def test_what_nobody_would_write_is_refused(reader: str, text: str) -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[T] y) { y = Relu (x) }'
    )
    key, read = READERS[reader]
    model.metadata_props[key] = TEXTS[text]
    with pytest.raises(ModelError, match=key):
        read(model)


def test_what_graphfix_writes_is_read() -> None:
    assert json_types.parse_json('{"a": [[1, 2], ["]]", 3]]}') == {"a": [[1, 2], ["]]", 3]]}
    with pytest.raises(ValueError, match="more than 16 levels"):
        json_types.parse_json("[" * 17 + "]" * 17)

"""Names that inputs and outputs had before a pass changed them, as a model's metadata lists them.

Passes have more than one turn: one that finds its output under no name asks here whether it was
changed already.
"""

import json
from collections.abc import Iterable

import onnx_ir as ir

from graphfix import json_types
from graphfix.errors import ModelError

KEY = "graphfix.former"
"""The entry of ``metadata_props`` that lists them."""


def former_names(model: ir.Model) -> frozenset[str]:
    """Return the names that inputs, outputs and dims of the model had before.

    Raises:
        ModelError: The entry is malformed.
    """
    text = model.metadata_props.get(KEY, "[]")
    try:
        names = json_types.parse_json(text)
    except ValueError as error:
        raise ModelError(f"the model's {KEY}={text[:80]!r} is malformed: {error}") from error
    if not isinstance(names, list):
        raise ModelError(f"the model's {KEY}={text[:80]!r} lists no names")
    return frozenset(map(str, names))


def record_former(model: ir.Model, names: Iterable[str]) -> None:
    """Add names to the metadata of ``model``."""
    model.metadata_props[KEY] = json.dumps(sorted(former_names(model) | {*names}))

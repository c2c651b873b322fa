"""Input of a repaired model that holds the valid lengths, as its metadata names it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from graphfix import json_types
from graphfix.errors import ModelError

if TYPE_CHECKING:
    import onnx_ir as ir

KEY = "graphfix.lengths"
"""The entry of ``metadata_props`` that names the input of valid lengths."""

Kind = Literal["lengths", "mask"]


@dataclass(frozen=True)
class LengthInput:
    """The input of a repaired model that says where the valid part of each row ends.

    Attributes:
        input: Its name.
        axis: The axis that it counts along, such as ``audio.2``.
        kind: ``lengths`` for int64 [B] or [1], in units of that axis; ``mask`` for [B, T], or with
            dims of 1 as in [B, 1, T] or [B, T, 1]: 1 where a frame is valid, then 0.
    """

    input: str
    axis: str
    kind: Kind

    @property
    def padded_place(self) -> tuple[str, int]:
        """Return the name of the padded input, and which axis of it is padded."""
        name, _, axis = self.axis.rpartition(".")
        return name, int(axis)

    @classmethod
    def from_metadata(cls, model: ir.Model) -> LengthInput | None:
        """Return what the metadata of ``model`` says; None if it says nothing.

        Raises:
            ModelError: The entry is malformed, or names an input that the model does not have.
        """
        text = model.metadata_props.get(KEY)
        if text is None:
            return None
        try:
            data: Any = json_types.parse_json(text)
            length_input = cls(data["input"], data["axis"], data.get("kind", "lengths"))
            name, _ = length_input.padded_place
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"the model's {KEY}={text[:80]!r} is malformed: {error!r}") from error
        if length_input.kind not in ("lengths", "mask"):
            raise ModelError(
                f"the model's {KEY} has kind {length_input.kind!r}, not lengths or mask"
            )
        names = [x.name for x in model.graph.inputs]
        for input_name in (length_input.input, name):
            if input_name not in names:
                raise ModelError(
                    f"the model's {KEY} names an input {input_name!r} that it does not have; "
                    f"it has {', '.join(map(repr, names))}"
                )
        return length_input

    def write_metadata(self, model: ir.Model) -> None:
        """Write it into the metadata of ``model``."""
        model.metadata_props[KEY] = json.dumps(asdict(self))

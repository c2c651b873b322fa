"""Families of models by name: how to build a small one, and what to feed it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import transformers as hf
from torch import Tensor, nn

BATCH, TIME = "batch", "time"
LAYERS, WIDTH, HEADS, VOCABULARY, BANDS = 2, 64, 4, 120, 40
"""Sizes of the small models: real ones differ in these numbers, not in what a layer computes."""

Axes = dict[int, str]
Sizes = dict[str, object]
ModelTable = dict[str, tuple[str, str, Sizes]]


@dataclass(frozen=True)
class Example:
    """A small model and how to export it.

    Attributes:
        module: The model, with random weights.
        inputs: One tensor for each input, in order.
        axes: The symbolic dims of each input, in the same order.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    axes: tuple[Axes, ...]


Build = Callable[[], Example]
FAMILIES: dict[str, Build] = {}
KINDS: dict[str, str] = {}


def register_family(name: str, kind: str) -> Callable[[Build], Build]:
    """Return a decorator that adds the builder of a family."""

    def add_family(build: Build) -> Build:
        if name in FAMILIES:
            raise ValueError(f"the family {name!r} is registered twice")
        FAMILIES[name], KINDS[name] = build, kind
        return build

    return add_family


def register_models(
    kind: str, table: ModelTable, common: Sizes, make_example: Callable[[nn.Module], Example]
) -> None:
    """Register families that transformers has: by name, its config, its model, and their sizes.

    Args:
        kind: The kind of the families.
        table: The families.
        common: The sizes that all have, unless the table says else.
        make_example: Makes an example of a model.
    """

    def build_example(config: str, model: str, sizes: Sizes) -> Example:
        return make_example(getattr(hf, model)(getattr(hf, config)(**common | sizes)))

    for name, row in table.items():
        register_family(name, kind)(functools.partial(build_example, *row))


class Adapter(nn.Module):
    """Call a model with its inputs by name, and return the tensors that a user reads.

    Args:
        model: The model.
        names: The argument that each input is passed as; none where order is enough.
        results: The fields of its output to return; the first tensor if none are named.
        full: Whether to pass a padding mask that shows all of the first input: without one,
            transformers looks for packed rows, for which TorchScript's exporter has no operator.
        **fixed: What every call passes besides.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        results: Sequence[str] = (),
        *,
        full: bool = False,
        **fixed: object,
    ) -> None:
        super().__init__()
        self.full = full
        self.model, self.names, self.results, self.fixed = model, names, results, fixed

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the chosen tensors of one call."""
        named = dict(zip(self.names, inputs, strict=False))
        if self.full:
            named["attention_mask"] = torch.ones(inputs[0].shape[:2], dtype=torch.int64)
        output = self.model(*inputs[len(named) :], **named, **self.fixed)
        if self.results:
            return tuple(getattr(output, name) for name in self.results)
        return take_first_tensor(output)


class Method(nn.Module):
    """Call a method of a model other than forward, such as the decoder of a codec."""

    def __init__(self, model: nn.Module, name: str, **fixed: object) -> None:
        super().__init__()
        self.model, self.name, self.fixed = model, name, fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the first tensor that the method computes."""
        return take_first_tensor(getattr(self.model, self.name)(*inputs, **self.fixed))


class AdaptedStep(nn.Module):
    """Call a streaming model with all inputs, and return all its tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what the model returns."""
        return self.model(*inputs)


def take_first_tensor(output: object) -> Tensor:
    """Return the first tensor of an output, of a tuple or of a mapping of outputs."""
    if isinstance(output, Tensor):
        return output
    parts = output.values() if hasattr(output, "values") else output
    return take_first_tensor(next(iter(parts)))


def make_token_ids(length: int = 12) -> Tensor:
    """Return random ids of two sentences."""
    return torch.randint(3, VOCABULARY, (2, length))


def make_padding_mask(length: int = 12, padded: int = 3) -> Tensor:
    """Return the mask of two sentences, of which the second is shorter."""
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, length - padded :] = 0
    return mask


def make_text_example(
    model: nn.Module, *results: str, mask: bool = True, **fixed: object
) -> Example:
    """Return an example that reads token ids and, by default, their padding mask."""
    inputs = (make_token_ids(), make_padding_mask()) if mask else (make_token_ids(),)
    names = ("input_ids", "attention_mask")[: len(inputs)]
    adapted = Adapter(model, names, results, **fixed)
    return Example(adapted, inputs, ({0: BATCH, 1: TIME},) * len(inputs))


def make_audio_example(
    model: nn.Module, *results: str, samples: int = 4000, mask: bool = True, **fixed: object
) -> Example:
    """Return an example that reads samples and, by default, their padding mask."""
    names, inputs = ("input_values", "attention_mask"), (torch.randn(2, samples),)
    if mask:
        inputs += (make_padding_mask(samples, samples // 4),)
    adapted = Adapter(model, names[: len(inputs)], results, **fixed)
    return Example(adapted, inputs, ({0: BATCH, 1: TIME},) * len(inputs))


def make_frames_example(
    model: nn.Module,
    bands: int,
    names: Sequence[str] = ("input_features", "attention_mask"),
    *,
    frames: int = 64,
    channels_first: bool = False,
    **fixed: object,
) -> Example:
    """Return an example that reads frames of features and, if it has a name, their mask."""
    shape = (2, bands, frames) if channels_first else (2, frames, bands)
    inputs: tuple[Tensor, ...] = (torch.randn(shape),)
    axes: tuple[Axes, ...] = ({0: BATCH, 2 if channels_first else 1: TIME},)
    if len(names) > 1:
        inputs += (make_padding_mask(frames, frames // 4),)
        axes += ({0: BATCH, 1: TIME},)
    return Example(Adapter(model, names, **fixed), inputs, axes)


def make_plain_example(
    module: nn.Module, *inputs: Tensor, axes: Sequence[Axes] | None = None
) -> Example:
    """Return an example of a module whose inputs are [batch, time, ...] unless axes say else."""
    chosen = tuple(axes) if axes is not None else ({0: BATCH, 1: TIME},) * len(inputs)
    return Example(Adapter(module, ()), inputs, chosen)

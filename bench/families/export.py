"""Exports of all families by both exporters of torch, kept in a folder.

Run as ``python -m bench.families.export [--to FOLDER] [NAME ...]``: writes ``NAME.ts.onnx`` and
``NAME.dy.onnx``, and a ``.txt`` with the reason in the place of an export that failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
from torch.export import Dim

from bench.families import FAMILIES
from bench.families.family import Example

EXPORTS = Path(__file__).resolve().parents[2] / "build" / "rent" / "exports"
EXPORTERS = {"ts": 17, "dy": 18}
"""Each exporter with the opset that it is asked for: TorchScript's, and dynamo's."""


def export_family(name: str, exporter: str, path: Path, *, attention: str = "") -> None:
    """Write the export of one family.

    Args:
        name: The family.
        exporter: ``ts`` or ``dy``.
        path: The file to write.
        attention: The attention that transformers is asked for, if not its own choice.

    Raises:
        Exception: What the exporter raises.
    """
    torch.manual_seed(0)
    example = FAMILIES[name]()
    example.module.eval()
    _vary_constants(example.module)
    models = [x for x in example.module.modules() if hasattr(x, "set_attn_implementation")]
    for model in models if attention else ():
        model.set_attn_implementation(attention)
    names = [f"input_{i}" for i in range(len(example.inputs))]
    with torch.no_grad():
        if exporter == "ts":
            _export_torchscript(example, names, path)
        else:
            _export_dynamo(example, names, path)


def _vary_constants(module: torch.nn.Module) -> None:
    """Change weights that are all 0 or all 1, as training does: such sums and products fold."""
    statistics = (x for name, x in module.named_buffers() if ".running_" in f".{name}")
    for weight in (*module.parameters(), *statistics):
        if weight.is_floating_point() and weight.numel() > 1 and weight.unique().numel() == 1:
            weight.data += 0.1 * torch.rand_like(weight)


def _export_with_fallback(name: str, exporter: str, path: Path) -> None:
    """Export a family; where TorchScript does not know its attention, with a plain one."""
    try:
        export_family(name, exporter, path)
    except Exception:
        if exporter != "ts":
            raise
        export_family(name, exporter, path, attention="eager")


def _export_torchscript(example: Example, names: list[str], path: Path) -> None:
    output = example.module(*example.inputs)
    count = 1 if isinstance(output, torch.Tensor) else len(output)
    torch.onnx.export(
        example.module,
        example.inputs,
        str(path),
        input_names=names,
        output_names=[f"output_{i}" for i in range(count)],
        dynamic_axes=dict(zip(names, example.axes, strict=True)),
        opset_version=EXPORTERS["ts"],
        dynamo=False,
    )


def _export_dynamo(example: Example, names: list[str], path: Path) -> None:
    """Export with each dim kept symbolic; where torch refuses, with those that it can keep."""
    for kind in (Dim.DYNAMIC, Dim.AUTO):
        try:
            torch.onnx.export(
                example.module,
                example.inputs,
                str(path),
                input_names=names,
                dynamic_shapes=_dynamic_shapes(example, kind),
                opset_version=EXPORTERS["dy"],
                external_data=False,
                dynamo=True,
                verbose=False,
            )
        except Exception:
            if kind is Dim.AUTO:
                raise
        else:
            return


def _dynamic_shapes(example: Example, kind: object) -> tuple[object, ...]:
    """Return the symbolic dims by argument; those that ``*inputs`` takes are one argument."""
    dims = [dict.fromkeys(axes, kind) for axes in example.axes]
    named = example.module.forward.__code__.co_argcount - 1
    return (*dims[:named], tuple(dims[named:])) if len(dims) > named else tuple(dims)


def export_all(names: list[str], folder: Path) -> None:
    """Export what the folder does not hold yet, and note why an export failed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for exporter in EXPORTERS:
            path = folder / f"{name}.{exporter}.onnx"
            failure = path.with_suffix(".txt")
            if path.exists() or failure.exists():
                continue
            start, draft = time.perf_counter(), path.with_suffix(".part")
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    _export_with_fallback(name, exporter, draft)
                draft.replace(path)
                outcome = "done"
            except Exception as error:  # whatever an exporter raises is the answer
                outcome = f"{type(error).__name__}: {error}"
                failure.write_text(f"{outcome}\n\n{traceback.format_exc()}", encoding="utf-8")
                draft.unlink(missing_ok=True)
            seconds = time.perf_counter() - start
            line = " ".join(outcome.split())[:160]
            print(f"{name}.{exporter} {seconds:.0f} s {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Export the families that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--to", type=Path, default=EXPORTS, help="the folder to write to")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.backends.mha.set_fastpath_enabled(False)  # TorchScript has no name for it
    export_all(asked.names or list(FAMILIES), asked.to)


if __name__ == "__main__":
    main()

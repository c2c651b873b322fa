"""Reads the kernels of the CPU provider out of onnxruntime, into a table of graphfix.

``python -m tests.providers.directml.cpu_table`` writes ``cpu_kernels.csv`` of its facts.
"""

from __future__ import annotations

import csv
import io
from importlib import resources

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as internals

FILE = "cpu_kernels.csv"
_OPEN = 2**31 - 1

Types = dict[str, frozenset[str]]


def table() -> str:
    """The kernels of the CPU provider of this onnxruntime, as the file has them."""
    by_version: dict[tuple[str, int, int], list[Types]] = {}
    for kernel in internals.get_all_opkernel_def():
        if kernel.provider != "CPUExecutionProvider" or kernel.domain not in ("", "ai.onnx"):
            continue
        first, last = kernel.version_range
        types = {
            name: frozenset(x[len("tensor(") : -1] for x in every)
            for name, every in kernel.type_constraints.items()
            if all(x.startswith("tensor(") for x in every)  # what takes sequences is not listed
        }
        by_version.setdefault((kernel.op_name, first, last), []).append(types)
    out = io.StringIO()
    out.write(f"onnxruntime {onnxruntime.__version__}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["op", "first", "last", "types"])
    for (op, first, last), kernels in sorted(by_version.items()):
        for types in sorted(map(_as_text, _joined(kernels))):
            writer.writerow([op, first, "" if last == _OPEN else last, types])
    return out.getvalue()


def _joined(kernels: list[Types]) -> list[Types]:
    """Kernels of which no two differ in the types of one variable alone."""
    kept: list[Types] = []
    for types in kernels:
        for other in kept:
            differing = [x for x in types if types[x] != other.get(x)]
            if types.keys() == other.keys() and len(differing) <= 1:
                for name in differing:
                    other[name] |= types[name]
                break
        else:
            kept.append(dict(types))
    return kept if len(kept) == len(kernels) else _joined(kept)


def _as_text(types: Types) -> str:
    return ";".join(f"{name}={'|'.join(sorted(every))}" for name, every in sorted(types.items()))


if __name__ == "__main__":
    with resources.as_file(resources.files("graphfix.providers.directml") / FILE) as path:
        path.write_text(table(), encoding="utf-8")

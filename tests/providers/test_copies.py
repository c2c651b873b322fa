"""Tensors that are copied between the devices."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from graphfix.providers.copies import find_copies
from graphfix.providers.directml.kernel_table import Kernel

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N] x, float[N] w) => (float[N] y, float[N] z)
    { a = Neg (x) b = Abs (a) c = Exp (b) y = Add (c, a) z = Mul (w, y) }"""


def copies(*on_device: str, **changes: object) -> list[tuple[str | None, str]]:
    graph = ir.from_onnx_text(TEXT).graph
    kernel = replace(KERNEL, **changes)
    kernels = {node: kernel for node in graph if node.outputs[0].name in on_device}
    return [(value.name, where) for value, where in find_copies(graph, kernels)]


KERNEL = Kernel("Neg", "", 1, {}, (), (), True, None, "")


def test_nothing_is_copied_on_one_device() -> None:
    assert copies() == []
    assert copies("a", "b", "c", "y", "z") == []


def test_a_tensor_is_copied_once_for_each_direction() -> None:
    assert copies("b", "y") == [
        ("a", True),
        ("c", True),
        ("b", False),
        ("y", False),
    ]
    assert copies("a", "c") == [("b", True), ("a", False), ("c", False)]


def test_inputs_are_carried_over_unless_both_sides_use_them() -> None:
    graph = ir.from_onnx_text(TEXT.replace("Mul (w, y)", "Mul (x, y)")).graph
    kernels = {graph[0]: KERNEL}
    found = [(value.name, where) for value, where in find_copies(graph, kernels)]
    assert ("x", True) in found
    assert ("w", True) not in copies("z")


def test_what_a_kernel_has_on_the_cpu() -> None:
    every = ("a", "b", "c", "y", "z")
    assert copies(*every, cpu_inputs=(1,)) == [("a", False), ("y", False)]

"""What runs a shipped folder needs numpy and ONNX Runtime alone."""

import subprocess
import sys

# All that importing graphfix.shipped loads beyond what numpy and onnxruntime load themselves.
PROGRAM = """
import importlib, pkgutil, sys
import numpy, onnxruntime
loaded = {*sys.modules}
import graphfix.shipped
for module in pkgutil.iter_modules(graphfix.shipped.__path__, "graphfix.shipped."):
    importlib.import_module(module.name)
print(*sorted({*sys.modules} - loaded - sys.stdlib_module_names))
"""
ROOMS = {"errors", "paths", "version", "wording"}
ROOMS |= {"providers", "providers.table"}
ROOMS |= {f"runtime{x}" for x in ("", ".ort_paths", ".port", ".run_errors")}


def test_shipped_imports_numpy_and_onnxruntime_and_little_of_graphfix() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    modules = {x for x in done.stdout.split() if x.split(".")[0] not in sys.stdlib_module_names}
    assert {x.split(".")[0] for x in modules} <= {"graphfix", "numpy"}
    inner = {x.removeprefix("graphfix.") for x in modules if x.startswith("graphfix.")}
    assert "shipped.session" in inner
    assert {x for x in inner if x.split(".")[0] != "shipped"} == ROOMS

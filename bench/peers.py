"""What each tool makes of a model: one tool, one model, one process.

    build/peers/bin/python bench/peers.py onnxslim model.onnx out.onnx
    .venv/bin/python bench/peers.py graphfix:directml model.onnx out.onnx
    build/peers/bin/python bench/peers.py --versions

Each tool is used as its own documentation shows first, without options for this or that model;
onnxruntime.transformers with the model_type of the family, where its manual has one. The tools have
a Python of their own, at the versions of the group ``peers`` in pyproject.toml.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

TOOLS = {
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "transformers": "onnxruntime.transformers",
    "ort_fusions": "onnxscript's ort_fusions",
    "olive": "olive optimize",
}
"""The tools beside graphfix, and what they are called in the table."""
PACKAGES = {
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "transformers": "onnxruntime",
    "ort_fusions": "onnxscript",
    "olive": "olive-ai",
}
"""The package that each comes in."""
GRAPHFIX = "graphfix:"
# What the manual of onnxruntime.transformers has a model_type for, by a word of the export's name.
MODEL_TYPES = {"t5": "t5", "whisper": "bart", "gpt2": "gpt2", "qwen3": "qwen3"}


def convert(tool: str, source: Path, target: Path) -> None:
    """Write what a tool makes of ``source``.

    Raises:
        SystemExit: The tool says itself that its result is not to be used.
    """
    import onnx

    if tool.startswith(GRAPHFIX):
        from graphfix import job

        report = job.repair_file(source, target, tool.removeprefix(GRAPHFIX))
        if report.output is None:
            raise SystemExit(str(report.verdict))
    elif tool == "onnxslim":
        import onnxslim

        onnx.save(onnxslim.slim(onnx.load(source)), target)
    elif tool == "onnxsim":
        import onnxsim

        made, same = onnxsim.simplify(onnx.load(source))
        if not same:
            raise SystemExit("its own check says that the result differs")
        onnx.save(made, target)
    elif tool == "transformers":
        from onnxruntime.transformers import optimizer

        name = source.parent.name if source.stem == "model" else source.stem
        kind = next((x for word, x in MODEL_TYPES.items() if word in name), "bert")
        optimizer.optimize_model(str(source), model_type=kind).save_model_to_file(str(target))
    elif tool == "ort_fusions":
        import onnx_ir as ir
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        model, _ = optimize_for_ort(ir.load(source))
        ir.save(model, target)
    elif tool == "olive":
        olive(source, target)
    else:
        raise SystemExit(f"no such tool: {tool}")


def olive(source: Path, target: Path) -> None:
    """Run ``olive optimize``, which writes a folder with the model in it."""
    import onnx

    command = "import sys; from olive.cli.launcher import main; sys.exit(main())"
    with tempfile.TemporaryDirectory() as folder:  # its cache goes there, too
        options = ["-m", str(source.resolve()), "-o", "made", "--precision", "fp32"]
        done = subprocess.run(
            [sys.executable, "-P", "-c", command, "optimize", *options, "--disable_telemetry"],
            cwd=folder,
            env={**os.environ, "OLIVE_DISABLE_TELEMETRY": "1"},
            stdout=subprocess.DEVNULL,
        )
        if done.returncode:
            raise SystemExit(f"olive optimize ended with code {done.returncode}")
        onnx.save(onnx.load(Path(folder, "made", "model.onnx")), target)


def versions() -> dict[str, str]:
    """Return the versions of the packages that are here."""
    found = {}
    for package in dict.fromkeys(PACKAGES.values()):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def main() -> None:
    """The command line."""
    if sys.argv[1] == "--versions":
        print(json.dumps(versions()))
        return
    convert(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))


if __name__ == "__main__":
    main()

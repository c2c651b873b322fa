"""What each tool makes of a model: one tool, one model, one process.

    python bench/peers.py onnxslim model.onnx out.onnx
    python bench/peers.py graphfix:directml model.onnx out.onnx
    python bench/peers.py --attentions model.onnx

Each tool is used as its own documentation shows first, without options for this or that model;
onnxruntime.transformers with the model_type of the family, where its manual has one.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections import Counter
from pathlib import Path

TOOLS = {
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "transformers": "onnxruntime.transformers",
    "ort_fusions": "onnxscript's ort_fusions",
}
"""The tools beside graphfix, and what they are called in the table."""
PACKAGES = {
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    "transformers": "onnxruntime",
    "ort_fusions": "onnxscript",
}
"""The package that each comes in."""
GRAPHFIX = "graphfix:"
# What the manual of onnxruntime.transformers has a model_type for, by a word of the export's name.
MODEL_TYPES = {"t5": "t5", "whisper": "bart", "gpt2": "gpt2", "qwen3": "qwen3"}

# Operators that are a whole attention; the standard's and ONNX Runtime's.
ATTENTIONS = frozenset(
    {"Attention", "MultiHeadAttention", "GroupQueryAttention", "DecoderMaskedMultiHeadAttention"}
    | {"DecoderMaskedSelfAttention", "PackedAttention", "PackedMultiHeadAttention", "QAttention"}
    | {"SparseAttention", "PagedAttention", "LongformerAttention"}
)
# What weights pass between their Softmax and the product with the values.
_THROUGH = frozenset(
    {"Cast", "Dropout", "Where", "Mul", "Reshape", "Transpose", "Expand", "Unsqueeze", "Squeeze"}
    | {"Identity", "IsNaN", "Slice", "Concat", "Add"}
)
_PRODUCTS = frozenset({"MatMul", "Einsum", "FusedMatMul", "MatMulInteger", "Gemm"})


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
        if importlib.util.find_spec("torch") is None:
            # It looks up torch's version, for ROCm only, and does without the rest.
            stand_in = types.ModuleType("torch")
            stand_in.version = types.SimpleNamespace(hip=None)  # type: ignore[attr-defined]
            sys.modules["torch"] = stand_in
        from onnxruntime.transformers import optimizer

        name = source.parent.name if source.stem == "model" else source.stem
        kind = next((x for word, x in MODEL_TYPES.items() if word in name), "bert")
        optimizer.optimize_model(str(source), model_type=kind).save_model_to_file(str(target))
    elif tool == "ort_fusions":
        import onnx_ir as ir
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        model, _ = optimize_for_ort(ir.load(source))
        ir.save(model, target)
    else:
        raise SystemExit(f"no such tool: {tool}")


def attentions(path: Path) -> dict[str, int]:
    """How many attentions a file has as one operator each (``fused``), and in pieces (``open``)."""
    import onnx_ir as ir

    model = ir.load(path)
    nodes = list(model.graph.all_nodes())
    for function in model.functions.values():
        nodes += function.all_nodes()
    ops = Counter(node.op_type for node in nodes)
    pieces = sum(node.op_type == "Softmax" and _weighs(node) for node in nodes)
    return {"fused": sum(ops[op] for op in ATTENTIONS), "open": pieces}


def _weighs(softmax: object) -> bool:
    """Whether what a Softmax makes are the weights of a product."""
    pending, seen = [softmax], {softmax}
    while pending:
        for value in pending.pop().outputs:  # type: ignore[attr-defined]
            for user in value.consumers():
                if user.op_type in _PRODUCTS:
                    return True
                if user.op_type in _THROUGH and user not in seen:
                    seen.add(user)
                    pending.append(user)
    return False


def main() -> None:
    """The command line."""
    if sys.argv[1] == "--attentions":
        print(json.dumps(attentions(Path(sys.argv[2]))))
        return
    convert(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))


if __name__ == "__main__":
    main()

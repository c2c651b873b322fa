"""Say where the node of each model runs; for the Python of ``make webgpu``, which has no graphfix.

Reads a pickled list of models (bytes) from the file that it is given, and writes a line of JSON for
each: the operators on the CPU, and which inputs and outputs of the model are there; or what ONNX
Runtime said.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

_PROVIDER = "WebGpuExecutionProvider"


def place(model: bytes) -> dict[str, object]:
    """Where the nodes of a model run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        session = onnxruntime.InferenceSession(model, options, providers=[_PROVIDER])
        # Only what runs on the CPU is listed.
        parts = session.get_provider_graph_assignment_info()
        return {
            "cpu": [node.op_type for part in parts for node in part.get_nodes()],
            "cpu_inputs": _on_cpu(session.get_input_memory_infos()),
            "cpu_outputs": _on_cpu(session.get_output_memory_infos()),
        }
    except Exception as error:  # onnxruntime raises a dozen unrelated types
        return {"error": str(error)[:500]}


def _on_cpu(places: Sequence[Any]) -> list[int]:
    return [i for i, x in enumerate(places) if x.name == "Cpu"]


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    for given in pickle.loads(Path(sys.argv[1]).read_bytes()):
        print(json.dumps(place(given)), flush=True)

"""The only import of Olive: ``GraphFix``, graphfix as a pass of a workflow.

Olive finds a pass by its package configuration. This prints Olive's own with ``GraphFix`` in it::

    python -m graphfix.integrations.olive > package.json
    olive run --config workflow.json --package-config package.json
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from olive.exception import OlivePassError
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.package_config import OlivePackageConfig
from olive.passes import Pass
from olive.passes.pass_config import PassConfigParam

from graphfix.errors import GraphfixError
from graphfix.job.fix import fix
from graphfix.proof.compare import Tolerance

_log = logging.getLogger(__name__)
_OPTIONS: dict[str, tuple[Any, object, str]] = {
    "profile": (str, "directml", "profiles and passes, as `graphfix run -p` takes them"),
    "verify": (bool, True, "whether to prove that the result computes the same"),
    "atol": (float, None, "the largest difference allowed; 1e-4 by default"),
    "dims": (dict[str, list[int]], None, "sizes to verify at, by the name of the symbolic dim"),
    "feeds": (str, None, "an .npz file with an array for each input, to verify with"),
    "external_data": (str, "auto", "where the weights go: auto, keep, inline or separate"),
    "budget": (float, None, "about how many seconds the proof may take"),
}


class GraphFix(Pass):  # type: ignore[misc]
    """Repairs a model for DirectML, and fails if the result does not compute the same."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, Any]:  # noqa: ANN401
        return {
            name: PassConfigParam(type_=kind, default_value=default, description=text)
            for name, (kind, default, text) in _OPTIONS.items()
        }

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> Any:  # noqa: ANN401
        source = Path(model.model_path)
        target = Path(resolve_onnx_path(output_model_path, source.name))
        options = {name: getattr(config, name) for name in _OPTIONS}
        profile, verify, atol = (options.pop(name) for name in ("profile", "verify", "atol"))
        tolerance = None if atol is None else Tolerance(max_abs=atol)
        try:
            report = fix(source, profile, target, check=verify, tolerance=tolerance, **options)
        except GraphfixError as error:
            raise OlivePassError(str(error)) from error
        _log.info("%s", report)
        if constants := model.constant_inputs_file_name:
            shutil.copy2(source.with_name(constants), target.with_name(constants))
        return ONNXModelHandler(
            model_path=str(target.parent),
            onnx_file_name=target.name,
            inference_settings=model.inference_settings,
            use_ort_extensions=model.use_ort_extensions,
            constant_inputs_file_name=constants,
        )


def package_config() -> dict[str, Any]:
    """Return Olive's package configuration with ``GraphFix`` in it, for ``olive.workflows.run``."""
    own = Path(OlivePackageConfig.get_default_config_path()).read_text(encoding="utf-8")
    config: dict[str, Any] = json.loads(own)
    every = {f"supported_{x}": ["*"] for x in ("providers", "accelerators", "precisions")}
    config["passes"]["GraphFix"] = {"module_path": "graphfix.integrations.olive.GraphFix", **every}
    return config


if __name__ == "__main__":
    print(json.dumps(package_config(), indent=2))

"""Olive's OnnxFloatToFloat16 over some models, by a Python that has olive-ai.

    PYTHON bench/float16_olive.py FOLDER MODEL...

Olive brings torch and more, and may want other versions than graphfix: so it has a Python of its
own. ``FOLDER/NAME.onnx`` is written, or ``FOLDER/NAME.txt`` with what was raised.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Convert each model."""
    sys.path.pop(0)  # this folder has a float16.py of its own
    import onnx
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.float16_conversion import OnnxFloatToFloat16

    into = Path(sys.argv[1])
    settings = {"keep_io_types": True}
    for source in map(Path, sys.argv[2:]):
        name = source.parent.name if source.stem == "model" else source.stem
        try:
            made = create_pass_from_dict(OnnxFloatToFloat16, settings, disable_search=True)
            result = made.run(ONNXModelHandler(str(source)), str(into / f"{name}.olive"))
            onnx.save(onnx.load(result.model_path), into / f"{name}.onnx")
        except Exception as error:  # whatever a converter raises
            (into / f"{name}.txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main()

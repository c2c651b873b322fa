"""What a wheel must hold, and what not. Run as ``python tests/wheel.py FILE.whl``."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def faults(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = [x.relative_to(ROOT).as_posix() for x in (ROOT / "graphfix").rglob("*.py")]
    wanted += [
        f"graphfix/{x.relative_to(ROOT).as_posix()}" for x in (ROOT / "passes").rglob("*.py")
    ]
    wanted += ["graphfix/py.typed", "graphfix/show/templates/report.html"]
    wanted += ["graphfix/cli/completion.ps1"]
    wanted += ["graphfix/models/sensevoice/model.onnx"]
    wanted += ["graphfix/providers/webgpu/kernels.csv"]
    wanted += ["graphfix/providers/directml/errors.toml", "graphfix/providers/directml/ops.csv"]
    wanted += ["graphfix/ops/table.csv"]
    found = [f"{name} is missing" for name in wanted if name not in held]
    tops = {name.partition("/")[0] for name in held}
    found += [f"{top}/ is not graphfix's to install" for top in sorted(tops) if _strange(top)]
    return found


def _strange(top: str) -> bool:
    return top != "graphfix" and not top.endswith(".dist-info")


if __name__ == "__main__":
    problems = faults(Path(sys.argv[1]))
    print("\n".join(problems) or f"{sys.argv[1]}: as it should be")
    sys.exit(bool(problems))

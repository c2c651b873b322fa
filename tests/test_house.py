"""The house stands: imports go down only and in no circle, and each dependency has one door."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"graphfix": ROOT / "graphfix", "graphfix.passes": ROOT / "passes"}

# From the top floor down; each room, or file beside the rooms, imports only what stands below it.
FLOORS = (
    "cli",
    "graphfix",
    "model_zoo",
    "testing",
    "integrations",
    "shipping",
    "job",
    "show",
    "benchmark",
    "half",
    "engine",
    "passes",
    "adapters",
    "rules",
    "probing",
    "proof",
    "core",
    "caches",
    "feeds",
    "lengths",
    "shipped",
    "runtime",
    "directml",
    "editing",
    "facts",
    "files",
    "ops",
    "graph",
    "spec",
    "json_types",
    "wording",
    "paths",
    "errors",
    "version",
)
# Who may import what is not ours; onnx, onnx-ir and numpy are what the house is built of.
DOORS = {
    "click": {"cli"},
    "dask": {"model_zoo"},
    "distributed": {"model_zoo"},
    "filelock": {"files", "runtime"},
    "google": {"files"},
    "jinja2": {"show"},
    "olive": {"integrations"},
    "onnx_graphsurgeon": {"adapters"},
    "onnx_shape_inference": {"facts"},
    "onnxruntime": {"runtime", "shipped"},
    "onnxscript": {"adapters"},
    "psutil": {"runtime"},
    "rich": {"cli"},
    "sympy": {"facts", "lengths"},
}


def _modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = _modules()


def _room(module: str) -> str:
    _, _, inside = module.partition(".")
    return inside.split(".")[0] or "graphfix"


def _names(module: str, path: Path) -> set[str]:
    """All that a file imports, at any place, for types only too; as written in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module if path.name == "__init__.py" else module.rpartition(".")[0]
            source = ".".join(x for x in (above if node.level else "", node.module) if x)
            found |= {f"{source}.{alias.name}" for alias in node.names}
    return found


def _files(module: str, path: Path) -> set[str]:
    """The files of ours that a file imports."""
    found = set()
    for name in _names(module, path):
        if name in MODULES:
            found.add(name)
        elif name.rpartition(".")[0] in MODULES:
            found.add(name.rpartition(".")[0])
    return found - {module}


def test_every_room_has_a_floor() -> None:
    assert {_room(module) for module in MODULES} <= {*FLOORS, "__main__"}


def test_an_import_goes_down_only() -> None:
    up = {}
    for module, path in MODULES.items():
        here = _room(module)
        below = FLOORS[FLOORS.index(here) + 1 :] if here in FLOORS else FLOORS
        up[module] = {x for x in _files(module, path) if _room(x) not in (here, *below)}
    assert not {module: found for module, found in up.items() if found}


def test_no_two_files_import_each_other() -> None:
    graph = {module: _files(module, path) for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_each_dependency_has_its_door() -> None:
    wrong = set()
    for module, path in MODULES.items():
        taken = {name.split(".")[0] for name in _names(module, path)} & DOORS.keys()
        wrong |= {(module, name) for name in taken if _room(module) not in DOORS[name]}
    assert not wrong, f"each is for another room: {DOORS}"

"""Passes by name: those in the folder, those of installed packages, those of a file.

A pass in the folder is read as text until it is used: its name is its file's, and its manual is
a docstring, so ``graphfix passes`` imports neither onnx-ir nor a pass.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphfix.errors import PluginError, UsageError
from graphfix.providers.table import PROVIDERS, DeviceEp, Ep
from graphfix.spec import options
from graphfix.wording import did_you_mean, kebab_case

if TYPE_CHECKING:
    import types
    from collections.abc import Mapping

    from graphfix.core import Check, Pass

GROUP = "graphfix.passes"
_HELPERS = "common"  # the folder of passes/ that holds no pass

# Named lists of passes, in the order that the passes need: shapes that tell the truth first; what
# has masks and guards inside before masks, and these before guards that they make needless; rows
# that Pads move before the Pads are taken apart. What the repairs leave over is folded, and
# Reshapes come last, since other passes may write some.
_TRUE_SHAPES = "fresh-shapes"
_REPAIRS = (
    *("loadable", "split-sequence", "older-operators", "bool-cast", "clip-minmax", "skew-gather"),
    *("pad-amounts", "pad-slice", "pad-empty"),
    *("mask-lookup", "table-rows", "log-buckets", "additive-mask", "finite-mask", "drop-nan-guard"),
    *("scatter-mask", "centre-variance", "cumsum-index", "matmul-vector", "matmul-4d"),
    *("logsumexp-shift", "lp-norm", "nbits-inputs", "resize-4d", "roi-size"),
    *("reverse-2d", "unflatten-heads", "gather-int64"),
    *("convtranspose-pads", "convtranspose-2d", "pool-pads"),
    *("opset-ceiling", "quantize-axis", "slice-start", "slice-gather", "gemm-bias"),
    *("slice-gate", "keep-output", "host-output", "fold", "reshape-allowzero"),
)
# An attention takes the biases of its inputs, so it is fused first; a Gelu has a factor of its own.
FUSIONS = (
    *("stack-tables", "gemm-matmul", "split-packed", "fuse-residual"),
    *("fuse-rotary", "unpad-heads", "fuse-attention", "group-heads", "turn-back"),
    *("join-conditions", "fuse-projections", "join-products", "fuse-gelu"),
    *("fuse-softplus", "fuse-snake", "scale-weights", "merge-biases", "fuse-spectrum"),
    *("split-gate", "fuse-norm", "fuse-affine", "fuse-matmul", "mask-select"),
)
SAVINGS = (
    *FUSIONS,
    *("log-buckets", "skew-gather", "unflatten-heads", "table-rows", "mask-lookup", "scatter-mask"),
    "drop-nan-guard",
)
"""Passes of profiles that only save kernels; the others repair what fails or is wrong."""
# Folded first, too: the others then see what a raw export computes from constants.
_FAST = (_TRUE_SHAPES, "fold", *_REPAIRS, *FUSIONS, "slice-gate", "fold")
# ONNX Runtime's CPU kernel for a residual sum and its norm is slower than one for each; FastGelu is
# there what DirectML's is not.
_CPU = {"fuse-norm": "fuse-norm:residual=no", "fuse-gelu": "fuse-gelu:approximate=yes"}
# It has no kernel for FusedMatMul and com.microsoft's DequantizeLinear, and attends wrongly through
# Vulkan: see docs/providers.md.
_NOT_ON_WEBGPU = frozenset({"fuse-matmul", "quantize-axis", "fuse-attention", "fuse-projections"})
PROFILES: dict[str, tuple[str, ...]] = {
    "directml": (_TRUE_SHAPES, *_REPAIRS),
    "fast": _FAST,
    "fast-webgpu": tuple(x for x in _FAST if x not in _NOT_ON_WEBGPU),
    "fast-cpu": tuple(_CPU.get(x, x) for x in _FAST),
}
COUNTED_ON: Mapping[str, DeviceEp] = {"directml": "dml", "fast": "dml", "fast-webgpu": "webgpu"}
"""The provider whose kernels a profile must not add to."""

_NO_PASS = "defines no pass named {!r}; a pass is named after its file"
_plugins: dict[str, type[Check]] = {}


@dataclass(frozen=True)
class Entry:
    """A pass as a line of ``graphfix passes``: known without importing it where possible."""

    name: str
    summary: str
    safety: str
    source: str


def profile_for(name: str, ep: Ep) -> str:
    """Return the profile that a name stands for on a provider: ``fast`` is not one for all."""
    return PROVIDERS[ep].profile if name == "fast" else name


def pass_names() -> list[str]:
    """Return the names of every pass and check that can be used, sorted."""
    return sorted({*_builtin_files(), *_entry_points(), *_plugins})


def list_entries() -> list[Entry]:
    """Return every pass with its first sentence, by name."""
    listing = [_read_entry(name, file) for name, file in _builtin_files().items()]
    for name in sorted({*_entry_points(), *_plugins}):
        cls = pass_class(name)
        summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
        listing.append(Entry(name, summary, getattr(cls, "safety", "check"), cls.__module__))
    return sorted(listing, key=lambda entry: entry.name)


def pass_class(name: str) -> type[Check]:
    """Return the class of the pass, or of the rule of ``check``, called ``name``.

    Raises:
        UsageError: There is none; the message suggests the nearest.
        PluginError: It comes from another package and cannot be loaded.
    """
    if name in _plugins:
        return _plugins[name]
    if name in _builtin_files():
        file = _builtin_files()[name]
        module = importlib.import_module(f"graphfix.passes.{file.parent.name}.{file.stem}")
        for cls in _passes_in(module):
            if cls.name == name:
                return cls
        raise PluginError(f"{module.__name__}: {_NO_PASS.format(name)}")
    point = _entry_points().get(name)
    if point is None:
        if (rule := _rule_classes().get(name)) is not None:
            return rule
        raise UsageError(unknown_pass_message(name))
    try:
        loaded = point.load()
    except Exception as error:  # whatever another package's import raises
        raise PluginError(f"the pass {name} of {point.value} cannot be loaded: {error}") from error
    return _require_check_class(loaded, f"entry point {point.value}", name)


def make_pass(name: str, option_texts: Mapping[str, str] | None = None) -> Check:
    """Make the pass ``name`` with options given as text."""
    return options.make_instance(pass_class(name), name, option_texts or {})


def get_pass(name: str, **values: object) -> Pass:
    """Make the pass ``name`` with typed options: ``get_pass("additive-mask", floor=-1e3)``."""
    cls = pass_class(name)
    try:
        instance: Pass = cls(**values)  # type: ignore[assignment]
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from error
    return instance


def load_plugin(path: str | Path) -> list[str]:
    """Register the passes that a Python file defines; return their names.

    Raises:
        PluginError: The file cannot be run, defines no pass, or names one that exists.
    """
    path = Path(path)
    spec = importlib.util.spec_from_file_location(f"graphfix_plugin_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PluginError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise PluginError(f"{path}: {type(error).__name__}: {error}") from error
    classes = _passes_in(module)
    if not classes:
        raise PluginError(f"{path}: defines no pass (a subclass of graphfix.Pass with a name)")
    for cls in classes:
        if cls.name in _builtin_files() or (cls.name in _entry_points()):
            raise PluginError(f"{path}: a pass named {cls.name!r} exists already; rename yours")
        _plugins[cls.name] = cls
    return [cls.name for cls in classes]


def unknown_pass_message(name: str) -> str:
    """Return the sentence for a name that is neither a pass nor a profile."""
    if not name:
        return f"there is no pass {name!r}: a comma is too many"
    hint = did_you_mean(name.lower(), [*pass_names(), *PROFILES, *_rule_classes()], cutoff=0.5)
    return f"there is no pass {name!r}{hint} 'graphfix passes' lists them"


def _rule_classes() -> Mapping[str, type[Check]]:
    from graphfix.rules import rules

    return rules()


@functools.cache
def _builtin_files() -> Mapping[str, Path]:
    spec = importlib.util.find_spec("graphfix.passes")
    if spec is None or spec.origin is None:
        raise PluginError("graphfix.passes is not installed; run 'pip install -e .' in the project")
    files = (x for x in Path(spec.origin).parent.glob("*/[a-z]*.py") if x.parent.name != _HELPERS)
    return {file.stem.replace("_", "-"): file for file in sorted(files)}


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _read_entry(name: str, file: Path) -> Entry:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and name in (
            kebab_case(node.name),
            _read_class_constant(node, "name"),
        ):
            summary = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            return Entry(
                name,
                summary,
                _read_class_constant(node, "safety") or "exact",
                f"passes/{file.parent.name}/{file.name}",
            )
    raise PluginError(f"{file}: {_NO_PASS.format(name)}")


def _read_class_constant(cls: ast.ClassDef, name: str) -> str | None:
    for node in cls.body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=found), value=ast.Constant(value=value))
                | ast.Assign(targets=[ast.Name(id=found)], value=ast.Constant(value=value))
            ) if found == name:
                return str(value)
    return None


def _passes_in(module: types.ModuleType) -> list[type[Check]]:
    from graphfix.core import Check

    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and issubclass(cls, Check)
        and cls.__module__ == module.__name__
        and not inspect.isabstract(cls)
    ]


def _require_check_class(cls: object, where: str, name: str) -> type[Check]:
    from graphfix.core import Check

    if not (isinstance(cls, type) and issubclass(cls, Check)):
        raise PluginError(f"{where}: {name} is not a subclass of graphfix.Pass or graphfix.Check")
    return cls

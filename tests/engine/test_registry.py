"""Passes by name: those in the folder, those of packages, those of a file."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import onnx
import pytest

from graphfix.core import Check, Pass
from graphfix.engine import pipeline, registry
from graphfix.errors import PluginError, UsageError
from graphfix.providers.webgpu.placement import TABLE
from graphfix.spec.manual import manual_of

PLUGIN = '''
import onnx_ir as ir
from dataclasses import dataclass
from typing import ClassVar
import graphfix

@dataclass(frozen=True)
class Mine(graphfix.Pass):
    """Does nothing.

    More of it."""
    name: ClassVar[str] = "{name}"
    def sites(self, model): return iter(())
    def repair(self, model): return iter(())
'''


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {})


def plugin(folder: Path, name: str = "mine", text: str = PLUGIN) -> Path:
    path = folder / "mine.py"
    path.write_text(text.replace("{name}", name))
    return path


def test_a_pass_of_the_folder() -> None:
    names = registry.pass_names()
    assert names == sorted(names)
    assert "additive-mask" in names
    assert "pattern" not in names  # a helper of several families
    assert registry.pass_class("additive-mask").name == "additive-mask"
    made = registry.make_pass("additive-mask", {"floor": "-1e3"})
    assert made == registry.get_pass("additive-mask", floor=-1e3)
    assert registry.make_pass("additive-mask") == registry.get_pass("additive-mask")


def test_each_pass_is_listed_without_its_import() -> None:
    entries = {x.name: x for x in registry.list_entries()}
    assert [*entries] == registry.pass_names()
    entry = entries["mask-length"]
    assert (entry.safety, entry.source) == ("conditional", "passes/masks/mask_length.py")
    assert entry.summary.endswith(".")
    assert "\n" not in entry.summary
    assert entries["fold"].safety == "exact"
    assert entries["fuse-attention"].safety == "valid-rows"


@pytest.mark.parametrize("profile", registry.PROFILES)
def test_profiles_name_passes(profile: str) -> None:
    names = [x.partition(":")[0] for x in registry.PROFILES[profile]]
    assert {*names} <= {*registry.pass_names()}
    assert names[0] == "fresh-shapes"


def test_a_rule_of_check_is_found_by_its_name() -> None:
    rule = next(iter(registry._rule_classes()))
    assert issubclass(registry.pass_class(rule), Check)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "there is no pass '': a comma is too many"),
        ("additiv-mask", "there is no pass 'additiv-mask'.*additive-mask.*'graphfix passes' lists"),
        ("Additive-Mask", "additive-mask"),
        ("directm", "directml"),
        ("zzzzzz", "^there is no pass 'zzzzzz'. 'graphfix passes' lists them$"),
    ],
)
def test_a_name_that_is_none(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        registry.pass_class(name)


def test_options_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match=r"^additive-mask: "):
        registry.get_pass("additive-mask", depth=3)
    with pytest.raises(UsageError, match=r"^fix-dims: "):
        registry.get_pass("fix-dims", dims=(("T", 0),))


def test_a_plugin_is_a_pass_as_others(tmp_path: Path) -> None:
    assert registry.load_plugin(plugin(tmp_path)) == ["mine"]
    assert "mine" in registry.pass_names()
    cls = registry.pass_class("mine")
    assert issubclass(cls, Pass)
    entry = next(x for x in registry.list_entries() if x.name == "mine")
    assert (entry.summary, entry.safety) == ("Does nothing.", "exact")
    assert entry.source == cls.__module__ == "graphfix_plugin_mine"
    # Another file of the name takes its place.
    again = registry.load_plugin(plugin(tmp_path))
    assert again == ["mine"]
    assert registry.pass_class("mine") is not cls


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"defines no pass \(a subclass of graphfix.Pass with a name\)"),
        ("from graphfix import Pass", "defines no pass"),
        ("raise ValueError('no')", "ValueError: no"),
        ("def (", "SyntaxError"),
        (PLUGIN.replace("{name}", "additive-mask"), "'additive-mask' exists already; rename yours"),
    ],
)
def test_a_plugin_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    before = registry.pass_names()
    with pytest.raises(PluginError, match=message):
        registry.load_plugin(plugin(tmp_path, text=text))
    assert registry.pass_names() == before


def test_a_file_that_is_no_plugin(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.py", tmp_path, tmp_path / "text.txt"):
        with pytest.raises(PluginError, match="not a Python file"):
            registry.load_plugin(path)
    (tmp_path / "text.txt").write_text("x = 1")
    with pytest.raises(PluginError, match="not a Python file"):
        registry.load_plugin(tmp_path / "text.txt")


def test_passes_of_installed_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def point(name: str, value: str) -> EntryPoint:
        return EntryPoint(name, value, registry.GROUP)

    points = {
        "theirs": point("theirs", "graphfix.core:Pass"),
        "broken": point("broken", "no_such_module:Pass"),
        "other": point("other", "pathlib:Path"),
        "thing": point("thing", "graphfix.version:__version__"),
    }
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    assert {*points} <= {*registry.pass_names()}
    assert registry.pass_class("theirs") is Pass
    with pytest.raises(PluginError, match="the pass broken of no_such_module:Pass cannot be"):
        registry.pass_class("broken")
    for name in ("other", "thing"):
        with pytest.raises(PluginError, match=f"{name} is not a subclass of graphfix.Pass"):
            registry.pass_class(name)
    with pytest.raises(PluginError, match="'theirs' exists already"):
        registry.load_plugin(plugin(tmp_path, "theirs"))


def test_a_file_of_the_folder_names_its_pass(tmp_path: Path) -> None:
    path = tmp_path / "other_name.py"
    path.write_text('class OtherName:\n    """Says it."""\n    safety = "conditional"\n')
    entry = registry._read_entry("other-name", path)
    assert (entry.summary, entry.safety) == ("Says it.", "conditional")
    path.write_text('class Thing:\n    """Says it."""\n    name: str = "other-name"\n')
    assert registry._read_entry("other-name", path).safety == "exact"
    path.write_text("class Thing:\n    pass\n")
    with pytest.raises(PluginError, match="defines no pass named 'other-name'"):
        registry._read_entry("other-name", path)


def test_fast_is_what_fits_the_provider() -> None:
    assert registry.profile_for("fast", "webgpu") == "fast-webgpu"
    assert registry.profile_for("fast", "dml") == registry.profile_for("fast", "cpu") == "fast"
    assert registry.profile_for("directml", "webgpu") == "directml"
    names = [x.name for x in pipeline.parse_passes("fast", "webgpu")]
    assert names == [x.partition(":")[0] for x in registry.PROFILES["fast-webgpu"]]
    assert not {"fuse-attention", "fuse-matmul", "fuse-projections"} & set(names)


def test_the_profile_of_webgpu_makes_only_what_it_has_a_kernel_for() -> None:
    def contrib(text: str) -> set[str]:
        nodes = onnx.parser.parse_model(text).graph.node
        return {node.op_type for node in nodes if node.domain == "com.microsoft"}

    names = [x.partition(":")[0] for x in registry.PROFILES["fast-webgpu"]]
    manuals = [manual_of(registry.pass_class(x)) for x in names]
    made = {op for x in manuals for op in contrib(x.after) - contrib(x.before)}
    assert made
    assert not {x for x in made if not TABLE.versions(x, "com.microsoft")}

"""What is written for people: it is complete, it is not stale, and it runs."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import pytest

import graphfix
from graphfix import docs, job, registry
from graphfix.cli import group, main
from graphfix.proof.compare import Tolerance

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_spec = importlib.util.spec_from_file_location("wheels", Path(__file__).parents[1] / "wheel.py")
wheel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(wheel)
MODELS = sorted(x.name for x in (ROOT / "models").iterdir() if x.is_dir())


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the models that README names, to run its commands in."""
    (tmp_path / "models/sensevoice").mkdir(parents=True)
    model = (ROOT / "models/sensevoice/model.onnx").read_bytes()
    (tmp_path / "models/sensevoice/model.onnx").write_bytes(model)
    (tmp_path / "model.onnx").write_bytes(model)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(registry, "_plugins", {})
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def block(name: str) -> str:
    """The block of README that is marked with ``<!-- tested: name -->``."""
    found = re.search(rf"<!-- tested: {name} -->\n```\w*\n(.*?)\n```", README, re.DOTALL)
    assert found, f"README.md has no block that is marked as tested: {name}"
    return found[1]


def printed(capsys: pytest.CaptureFixture[str], command: str) -> list[str]:
    capsys.readouterr()
    assert main(command.split()[1:]) == 0
    return capsys.readouterr().out.splitlines()


def without_numbers(lines: list[str]) -> list[str]:
    """Without what may differ from one processor to the next: the differences and their notes."""
    kept, label = [], ""
    for line in lines:
        label = line[:12].strip() if line[:12].strip() else label
        if label not in ("verified", "note"):
            kept.append(line)
    return kept


class TestReadme:
    def test_the_generated_pages_are_not_stale(self) -> None:
        for path, text in docs.pages(ROOT).items():
            now = path.read_text(encoding="utf-8") if path.exists() else ""
            assert now == text, f"{path.name} is stale: run 'make docs'"

    def test_it_prints_what_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        command, *shown = block("run").splitlines()
        assert without_numbers(printed(capsys, command[2:])) == without_numbers(shown)

    def test_the_place_that_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        command = "graphfix run models/sensevoice/model.onnx --diff --dry-run"
        out = "\n".join(line.strip() for line in printed(capsys, command))
        assert block("diff") in out

    def test_the_plugin_is_complete(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("square.py").write_text(block("plugin"), encoding="utf-8")
        command, *shown = block("plugin-run").splitlines()
        assert printed(capsys, command[2:])[: len(shown)] == shown

    def test_the_library_does_what_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        exec(compile(block("library"), "README.md", "exec"), {})
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "additive-mask 10 repairs 0 near misses"
        assert lines[-1].startswith("True ")

    def test_every_command_that_is_shown_is_one(self) -> None:
        blocks = re.findall(r"```(?:sh|console)\n(.*?)```", README, re.DOTALL)
        commands = re.findall(r"^(?:\$ )?graphfix (\w+) (.*)$", "\n".join(blocks), re.MULTILINE)
        assert len(commands) > 5
        for verb, rest in commands:
            known = {o for p in group.commands[verb].params for o in p.opts}
            assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", f" {rest.partition('#')[0]}")) <= known

    def test_every_verb_and_option_is_explained(self) -> None:
        for name, command in group.commands.items():
            assert f"graphfix {name}" in README, f"README.md does not mention graphfix {name}"
            assert command.help
            for option in command.params:
                if isinstance(option, click.Option):
                    assert option.help, f"graphfix {name} {option.opts[0]} has no help"

    def test_every_model_is_listed(self) -> None:
        assert set(re.findall(r"\(models/([\w-]+)/model\.toml\)", README)) == set(MODELS)

    def test_links_to_files_lead_somewhere(self) -> None:
        pages = (ROOT / "README.md", ROOT / "passes/README.md")
        for page in pages:
            text = page.read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text):
                assert (page.parent / target).exists(), f"{page}: {target}"

    def test_every_public_name_has_a_home(self) -> None:
        for name in graphfix.__all__:
            assert getattr(graphfix, name) is not None


class TestMakefile:
    def test_help_lists_every_target(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
        helped = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, check=True)
        assert set(re.findall(r"^  make (\w+) ", helped.stdout.decode(), re.M)) == targets

    def test_readme_names_no_other_target(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in re.findall(r"`make (\w+)`", README):
            assert f"\n{target}:" in text


class TestWheel:
    @pytest.mark.parametrize(
        ("name", "says"),
        [(None, None), ("passes/extra.py", "passes/ is not"), ("tests/a.py", "tests/ is not")],
    )
    def test_what_a_wheel_must_hold(
        self, tmp_path: Path, name: str | None, says: str | None
    ) -> None:
        held = [f"graphfix/passes/{x.name}" for x in (ROOT / "passes").glob("*.py")]
        held += [
            "graphfix/py.typed",
            "graphfix/cli/__init__.py",
            "graphfix/show/templates/report.html",
        ]
        held += ["graphfix/cuda/ops.csv", "graphfix/directml/ops.csv"]
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            for file in (*held, "graphfix-1.dist-info/METADATA", *([name] if name else [])):
                archive.writestr(file, "")
        found = wheel.faults(tmp_path / "a.whl")
        assert bool(found) == bool(says)
        assert says is None or found[0].startswith(says)

    def test_a_missing_pass_is_named(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            archive.writestr("graphfix/py.typed", "")
        assert "graphfix/passes/additive_mask.py is missing" in wheel.faults(tmp_path / "a.whl")


class TestModels:
    def test_there_are_some(self) -> None:
        assert {"sensevoice", "qwen3-asr"} < set(MODELS)
        assert len(MODELS) >= 6

    @pytest.mark.parametrize("name", MODELS)
    def test_it_is_repaired_as_its_recipe_says(self, name: str, tmp_path: Path) -> None:
        folder = ROOT / "models" / name
        recipe = tomllib.loads((folder / "model.toml").read_text(encoding="utf-8"))
        report = job.repair_file(
            folder / "model.onnx",
            tmp_path / "out.onnx",
            recipe["passes"],
            dims=recipe["dims"],
            tolerance=Tolerance(**recipe["tolerance"]),
        )
        assert report.verdict is not None
        assert report.verdict["ok"], report.verdict["summary"]
        assert not report.verdict["dropped"]
        repairs = {p.name: len(p.changes) for p in report.passes if p.changes}
        misses = {p.name: len(p.skips) for p in report.passes if p.skips}
        assert repairs == {k: v for k, v in recipe["expect"]["repairs"].items() if v}
        assert misses == recipe["expect"].get("near-misses", {})

    @pytest.mark.parametrize("name", MODELS)
    def test_it_says_where_it_comes_from(self, name: str) -> None:
        folder = ROOT / "models" / name
        recipe = tomllib.loads((folder / "model.toml").read_text(encoding="utf-8"))
        for key in ("name", "shows", "source", "license", "exporter", "weights"):
            assert recipe[key]
        script = (folder / "export.py").read_text(encoding="utf-8")
        compile(script, "export.py", "exec")
        package = recipe["source"].split(",")[0]
        assert package in script, f"{name}/export.py does not install {package}"

    @pytest.mark.parametrize("name", MODELS)
    def test_it_is_small_and_names_nobody(self, name: str) -> None:
        data = (ROOT / "models" / name / "model.onnx").read_bytes()
        assert len(data) < 1_000_000
        assert not re.search(rb"/(?:root|home|Users|work)/", data)


def test_the_version_is_in_the_help() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from graphfix.cli import main; main(['--version'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert graphfix.__version__ in done.stdout

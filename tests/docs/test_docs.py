"""What is written for people: it is complete, it is not stale, and it runs."""

from __future__ import annotations

import ast
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import soundfile

import graphfix
from graphfix import graph, job
from graphfix.cli import group, main
from graphfix.engine import registry
from graphfix.proof.compare import Tolerance
from graphfix.runtime.local_session import Session
from graphfix.show import manual_pages
from tests import wheel

ROOT = Path(__file__).parents[2]
# What docs/api.md lists besides graphfix itself; of a module without names, all that is public.
API = {
    "graphfix.testing": (),
    "graphfix.integrations.olive": (),
    "graphfix.adapters.rewrite_rules": ("RulesPass",),
    "graphfix.adapters.surgeon": ("SurgeonPass",),
    "graphfix.job.task": ("Options",),
    "graphfix.proof.verify": ("Options",),
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *(ROOT / x for x in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "passes/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
# Of these the blocks are the models of manuals; tests/passes and tests/rules run them.
MANUALS = {ROOT / "passes/README.md", ROOT / "docs/rules.md"}
# The blocks that a test of its own runs: here, in tests/integrations, and the recipe in
# tests/model_zoo/test_zoo.py.
TESTED = {
    "diff",
    "library",
    "tutorial",
    "square.py",
    "wrong.py",
    "entry-point",
    "recipe",
    "session",
    "program",
    "host",
}
# And in tests/shipped/test_hosts.py.
TESTED |= {f"hosts-{x}" for x in ("python", "node", "cpp", "cpp-directml", "csharp")}
TESTED |= {"greedy", "steps", "fix", "hook", "action", "defaults", "olive", "torch", "quantize"}
CACHES = [f"past_key_values.{i}.{x}" for i in range(2) for x in ("key", "value")]


@dataclass(frozen=True)
class Block:
    """A block of code in a page; its mark is in ``<!-- tested: mark -->`` above it."""

    page: Path
    kind: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text.partition(chr(10))[0]}"


def blocks(page: Path, text: str) -> list[Block]:
    found = re.findall(
        r"(?:<!-- tested: (\S+) -->\n)?^```(\w*)\n(.*?)\n^```$", text, re.DOTALL | re.MULTILINE
    )
    return [Block(page, kind, mark, body) for mark, kind, body in found]


BLOCKS = [
    x
    for page in PAGES
    if page not in MANUALS
    for x in blocks(page, page.read_text(encoding="utf-8"))
]
SHOWN = [x for x in BLOCKS if x.kind == "console"]
MODELS = sorted(x.parent.name for x in (ROOT / "models").glob("*/model.onnx"))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the models that the pages name, to run their commands in."""
    for name in MODELS:
        (tmp_path / "models" / name).mkdir(parents=True)
        model = (ROOT / "models" / name / "model.onnx").read_bytes()
        (tmp_path / "models" / name / "model.onnx").write_bytes(model)
    (tmp_path / "model.onnx").write_bytes((ROOT / "models/sensevoice/model.onnx").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(registry, "_plugins", {})
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def marked(name: str) -> str:
    """The one block of all pages that is marked with ``<!-- tested: name -->``."""
    (found,) = [x for x in BLOCKS if x.mark == name]
    return found.text


def printed(capsys: pytest.CaptureFixture[str], command: str) -> list[str]:
    """What a command writes to stdout; paths of Windows as the pages have them."""
    capsys.readouterr()
    assert main(command.split()[1:]) in (0, 1)
    out = capsys.readouterr().out
    paths = re.compile(r"models[\\/][\w-]+[\\/][\w.]+")
    return paths.sub(lambda x: x[0].replace("\\", "/"), out).splitlines()


def without_numbers(lines: list[str]) -> list[str]:
    """Without what may differ from one processor to the next: the differences and their notes."""
    kept, label = [], ""
    for line in lines:
        label = line[:12].strip() if line[:12].strip() else label
        if label not in ("numbers", "note"):
            kept.append(line)
    return kept


def parts(shown: list[str]) -> list[list[str]]:
    """What stands between the lines of three dots."""
    found: list[list[str]] = [[]]
    for line in shown:
        if line == "...":
            found.append([])
        else:
            found[-1].append(line)
    return found


def follows(whole: list[str], part: list[str]) -> int:
    """Where the lines of ``part`` end in ``whole``; -1 if they are not there in a row."""
    starts = range(len(whole) - len(part) + 1)
    return next((i + len(part) for i in starts if whole[i : i + len(part)] == part), -1)


def compare(shown: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a block's command, and hold what it prints to what the page shows."""
    command, *lines = shown.text.splitlines()
    assert command.startswith("$ graphfix ")
    whole, wanted = without_numbers(printed(capsys, command[2:])), parts(lines)
    if len(wanted) == 1:
        assert whole == without_numbers(lines)
    first = without_numbers(wanted[0])
    assert whole[: len(first)] == first
    for part in wanted:
        end = follows(whole, without_numbers(part))
        assert end >= 0, "\n".join(["not printed:", *part, "but:", *whole])
        whole = whole[end:]


class TestSnippets:
    """Every block of code in README and docs/ is run, or it is an error."""

    def test_there_are_some(self) -> None:
        assert len(SHOWN) >= 5
        assert {x.page.name for x in SHOWN} > {"README.md", "check.md"}

    @pytest.mark.parametrize("page", sorted({x.page for x in SHOWN}), ids=lambda x: x.name)
    def test_it_prints_what_is_shown(self, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for other in BLOCKS:  # what a page has saved as a file
            if other.page == page and other.mark.endswith(".py"):
                Path(other.mark).write_text(other.text + "\n", encoding="utf-8")
        for shown in SHOWN:  # in order: what one command wrote, the next may read
            if shown.page == page:
                compare(shown, capsys)

    def test_no_block_goes_untested(self) -> None:
        for x in BLOCKS:
            known = x.kind in ("console", "sh") or x.mark in TESTED
            assert known, f"{x}: a block of {x.kind or 'no language'} that no test runs"
            assert x.kind != "console" or not x.mark, f"{x}: is run anyway, and needs no mark"

    def test_no_test_is_left_without_its_block(self) -> None:
        marks = [x.mark for x in BLOCKS if x.mark]
        assert sorted(marks) == sorted(TESTED)

    def test_a_block_that_nobody_tests_is_seen(self) -> None:
        text = "# A\n\n```python\n1 + 1\n```\n\n<!-- tested: a -->\n```toml\nx = 1\n```\n"
        found = [(x.kind, x.mark, x.text) for x in blocks(ROOT / "a.md", text)]
        assert found == [("python", "", "1 + 1"), ("toml", "a", "x = 1")]

    def test_the_place_that_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        command = "graphfix run models/sensevoice/model.onnx --diff --dry-run"
        out = "\n".join(line.strip() for line in printed(capsys, command))
        assert marked("diff") in out

    def test_the_line_of_the_library_does_what_is_shown(self) -> None:
        exec(compile(marked("fix"), "fix.md", "exec"), {})
        assert Path("model.fixed.onnx").is_file()

    def test_the_line_of_the_library_holds_for_a_model_with_a_mask(self) -> None:
        # Its rows of length 0 differ, as the passes promise no more: Python takes that promise too.
        shutil.copy("models/bert/model.onnx", "model.onnx")
        exec(compile(marked("fix"), "fix.md", "exec"), {})
        assert Path("model.fixed.onnx").is_file()

    def test_the_library_does_what_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        exec(compile(marked("library"), "library.md", "exec"), {})
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "additive-mask 10 repairs 0 near misses"
        assert lines[-1].startswith("True ")

    def test_the_story_of_ship_goes_as_it_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = "models/sensevoice_audio/model.onnx"
        assert main(["ship", source, "--container", "T=16000", "-o", "shipped"]) == 0
        capsys.readouterr()
        exec(compile(marked("session"), "session.py", "exec"), {})
        assert capsys.readouterr().out == "(1, 11, 50)\n"

        clip = np.random.default_rng(1).standard_normal(9000).astype(np.float32) / 10
        soundfile.write("clip.wav", clip, 16000, subtype="FLOAT")
        feeds = {
            "audio": clip[None, :],
            "language": np.array([0], np.int32),
            "textnorm": np.array([14], np.int32),
        }
        with Session(source, optimize=False) as original:
            wanted = original.run(feeds)["ctc_logits"]
        monkeypatch.setattr(sys, "argv", ["tokens.py", "clip.wav"])
        exec(compile(marked("program"), "tokens.py", "exec"), {})
        assert capsys.readouterr().out.split() == [str(x) for x in wanted[0].argmax(-1)]

        held: dict[str, Any] = {}
        exec(compile(marked("host"), "host.py", "exec"), held)
        (found,) = held["run"](feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        imported = re.findall(r"^(?:import|from) (\w+)", marked("host"), re.MULTILINE)
        assert set(imported) <= {"json", "math", "pathlib", "numpy", "onnxruntime"}

    def test_the_tutorial_goes_as_it_is_told(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["demo"]) == 0
        assert main(["ship", "demo.onnx", "--container", "T=100", "-o", "shipped"]) == 0
        capsys.readouterr()
        exec(compile(marked("tutorial"), "tutorial.py", "exec"), {})
        assert capsys.readouterr().out.splitlines() == [
            "['speech', 'speech_lengths', 'language', 'textnorm']",
            "(1, 77, 50)",
        ]

    def test_the_story_of_a_decoder_goes_as_it_is_told(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = "models/qwen3-decoder/model.onnx"
        told = ["--cache", "64", "--container", "S=1,16", "-o", "decoder"]
        assert main(["ship", source, *told]) == 0
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["greedy.py", "7"])
        exec(compile(marked("greedy"), "greedy.py", "exec"), {})
        found = [int(x) for x in capsys.readouterr().out.split()]

        held: dict[str, Any] = {}
        exec(compile(marked("steps"), "steps.py", "exec"), held)
        assert held["tokens_after"](7, 20) == found

        with Session(source, optimize=False) as original:
            states = {k: np.zeros((1, 2, 0, 8), np.float32) for k in CACHES}
            tokens = [7]
            for past in range(20):
                mask = np.ones((1, past + 1), np.int64)
                ids = np.array([tokens[-1:]], np.int64)
                made = original.run({"input_ids": ids, "attention_mask": mask, **states})
                states = {k: made[k.replace("past_key_values", "present")] for k in CACHES}
                tokens.append(int(made["logits"][0, -1].argmax()))
        assert tokens[1:] == found

    def test_the_entry_point_leads_to_the_pass_that_is_shown(self) -> None:
        points = tomllib.loads(marked("entry-point"))["project"]["entry-points"]
        assert list(points) == [registry.GROUP]
        ((name, target),) = points[registry.GROUP].items()
        held: dict[str, object] = {"__name__": "square"}
        exec(compile(marked("square.py"), "square.py", "exec", dont_inherit=True), held)
        assert getattr(held[target.partition(":")[2]], "name", None) == name

    def test_every_command_that_is_shown_is_one(self) -> None:
        text = "\n".join(x.text for x in BLOCKS if x.kind in ("sh", "console"))
        commands = re.findall(
            r"^(?:\$ )?(?:.* )?(?:\S*/)?graphfix ([a-z]+)\b(.*)$", text, re.MULTILINE
        )
        assert len(commands) > 30
        for verb, rest in commands:
            params = group.commands[verb].params
            known = {o for p in params for o in (*p.opts, *p.secondary_opts)}
            told = re.findall(r"(?<=\s)--?[a-z][a-z0-9-]*", f" {rest.partition('#')[0]}")
            assert set(told) <= known

    def test_every_other_command_is_of_a_tool_that_we_name(self) -> None:
        known = r"graphfix|make|dask worker|python -m venv|\.venv/bin/[a-z]+"
        known += r"|pip install (\.|onnxruntime-)|pip uninstall -y onnxruntime-"
        known += r"|olive run|optimum-cli|python -m (graphfix|onnxruntime_genai)\.[\w.]+|mkdir|cp"
        known += r"|npm install|node|g\+\+|dotnet add"
        tools = re.compile(rf"(\$ )?({known}|cat \w+\.onnx \| graphfix) ?")
        for x in BLOCKS:
            for line in x.text.splitlines() if x.kind == "sh" else ():
                assert tools.match(line), f"{x}: {line}"


class TestPages:
    def test_the_generated_pages_are_not_stale(self) -> None:
        for path, text in manual_pages.render_pages(ROOT).items():
            now = path.read_text(encoding="utf-8") if path.exists() else ""
            assert now == text, f"{path.name} is stale: run 'make docs'"

    def test_readme_is_read_to_the_end(self) -> None:
        assert len(README.splitlines()) <= 200

    def test_every_verb_and_option_is_explained(self) -> None:
        for name, command in group.commands.items():
            assert f"graphfix {name}" in README, f"README.md does not mention graphfix {name}"
            assert command.help
            for option in command.params:
                if isinstance(option, click.Option):
                    assert option.help, f"graphfix {name} {option.opts[0]} has no help"

    def test_every_page_is_in_readme(self) -> None:
        linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", README))
        assert linked == {x.name for x in (ROOT / "docs").glob("*.md")}

    def test_every_page_is_in_the_contents_of_the_site(self) -> None:
        named = re.findall(r'"([\w/-]+)",', (ROOT / "docs/conf.py").read_text(encoding="utf-8"))
        for page in PAGES:
            name = page.relative_to(ROOT).with_suffix("").as_posix()
            assert name in ("README", "CONTRIBUTING") or name in named, name

    def test_the_api_reference_has_every_public_name(self) -> None:
        """With the first line of its docstring; the site has all of it."""
        wanted = {}
        for name in graphfix.__all__:
            if name != "__version__":
                wanted[f"graphfix.{name}"] = getattr(graphfix, name).__doc__
        for name in graph.__all__:
            wanted[f"graphfix.graph.{name}"] = getattr(graph, name).__doc__
        for module, only in API.items():
            path = (ROOT / module.replace(".", "/")).with_suffix(".py")
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                    continue
                if node.name in only or not (only or node.name.startswith("_")):
                    wanted[f"{module}.{node.name}"] = ast.get_docstring(node)
        page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
        listed = dict(re.findall(r"^- `(graphfix[.\w]+)`: (.*)$", page, re.MULTILINE))
        for name, text in wanted.items():
            first = re.sub(r":\w+:`([^`]+)`", r"`\1`", text.splitlines()[0]).replace("``", "`")
            assert listed.pop(name, "") == first, f"docs/api.md: {name}"
        assert not listed

    def test_every_model_is_listed(self) -> None:
        zoo = (ROOT / "docs/zoo.md").read_text(encoding="utf-8")
        assert set(re.findall(r"\(\.\./models/([\w-]+)/model\.toml\)", zoo)) == set(MODELS)

    @pytest.mark.parametrize("page", PAGES, ids=lambda x: x.name)
    def test_links_lead_somewhere(self, page: Path) -> None:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", text):
            there = page.parent / target if target else page
            assert there.exists(), f"{page}: {target}"
            if heading:
                heads = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in heads}
                assert heading in slugs, f"{page}: {target}#{heading}"

    def test_no_other_target_of_make_is_named(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        for page in PAGES:
            for target in re.findall(r"[`\n]make (\w[\w-]*)", page.read_text(encoding="utf-8")):
                assert f"\n{target}:" in text, f"{page.name}: make {target}"

    def test_every_public_name_has_a_home(self) -> None:
        for name in graphfix.__all__:
            assert getattr(graphfix, name) is not None


class TestMakefile:
    @pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
    def test_help_lists_every_target(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
        helped = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, check=True)
        assert set(re.findall(r"^  make ([\w-]+) ", helped.stdout.decode(), re.M)) == targets


class TestWorkflow:
    """What runs on other machines is what README says."""

    def test_it_runs_the_two_commands_on_each_system_and_python(self) -> None:
        yaml = pytest.importorskip("yaml")
        text = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
        job = yaml.safe_load(text)["jobs"]["test"]
        matrix = job["strategy"]["matrix"]
        assert {x.partition("-")[0] for x in matrix["os"]} == {"ubuntu", "windows", "macos"}
        least = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        least = least["project"]["requires-python"].removeprefix(">=")
        assert matrix["python"][0] == least
        assert all(isinstance(x, str) for x in matrix["python"])  # 3.10 is not 3.1
        (two,) = (x.text.splitlines() for x in BLOCKS if "make install &&" in x.text)
        on_unix = [x["run"] for x in job["steps"] if x.get("if") == "runner.os != 'Windows'"]
        assert on_unix == [*two, "make test-rest"]
        by_hand = next(x.text for x in BLOCKS if "python -m venv" in x.text).splitlines()
        on_windows = [x["run"] for x in job["steps"] if x.get("if") == "runner.os == 'Windows'"]
        shown = [x.replace("/Scripts/", "/bin/") for x in "\n".join(on_windows).split("\n") if x]
        assert [x for x in shown if "graphfix run" not in x] == by_hand[:4]
        assert two[0].partition("&& ")[2] in shown

    def test_what_runs_before_a_commit_is_what_make_runs(self) -> None:
        yaml = pytest.importorskip("yaml")
        config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
        hooks = [x["entry"].split()[2:4] for repo in config["repos"] for x in repo["hooks"]]
        assert hooks == [["ruff", "check"], ["ruff", "format"], ["mypy"]]


class TestWheel:
    @pytest.mark.parametrize(
        ("name", "says"),
        [(None, None), ("passes/extra.py", "passes/ is not"), ("tests/a.py", "tests/ is not")],
    )
    def test_what_a_wheel_must_hold(
        self, tmp_path: Path, name: str | None, says: str | None
    ) -> None:
        held = [x.relative_to(ROOT).as_posix() for x in (ROOT / "graphfix").rglob("*.py")]
        passes = (ROOT / "passes").rglob("*.py")
        held += [f"graphfix/{x.relative_to(ROOT).as_posix()}" for x in passes]
        held += ["graphfix/py.typed", "graphfix/show/templates/report.html"]
        held += ["graphfix/cli/completion.ps1"]
        held += ["graphfix/models/sensevoice/model.onnx"]
        held += ["graphfix/providers/directml/errors.toml", "graphfix/providers/directml/ops.csv"]
        held += ["graphfix/providers/webgpu/kernels.csv", "graphfix/ops/table.csv"]
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            for file in (*held, "graphfix-1.dist-info/METADATA", *([name] if name else [])):
                archive.writestr(file, "")
        found = wheel.faults(tmp_path / "a.whl")
        assert bool(found) == bool(says)
        assert says is None or found[0].startswith(says)

    def test_a_missing_pass_is_named(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            archive.writestr("graphfix/py.typed", "")
        assert "graphfix/passes/masks/additive_mask.py is missing" in wheel.faults(
            tmp_path / "a.whl"
        )


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
        assert report.verdict.ok, report.verdict
        assert not report.verdict.dropped
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


def test_python_dash_m_is_the_same() -> None:
    for arguments in (["--version"], ["passes"]):
        by_module, by_name = (
            subprocess.run([sys.executable, *start, *arguments], capture_output=True, check=True)
            for start in (
                ["-m", "graphfix"],
                ["-c", "import sys; from graphfix.cli import main; sys.exit(main())"],
            )
        )
        assert by_module.stdout == by_name.stdout
        assert by_module.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "graphfix", "run"], capture_output=True, check=False
    )
    assert wrong.returncode == 2
    assert b"graphfix: error: " in wrong.stderr

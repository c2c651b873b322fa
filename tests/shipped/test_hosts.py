"""The hosts of docs/hosts give what graphfix.Session gives, and have no graphfix."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest

import graphfix
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests import browser
from tests.loading import module_at
from tests.passes.cached import FORMS, WIDTH, table
from tests.shipping.conftest import saved
from tests.shipping.test_first_call import CONTAINERS, source_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Arrays = dict[str, np.ndarray[Any, Any]]
    Commands = dict[str, list[str]]

ROOT = Path(__file__).parents[2]
HOSTS, DRIVERS = ROOT / "docs/hosts", Path(__file__).parent / "hosts"
FETCHED = Path(os.environ.get("GRAPHFIX_HOSTS", ROOT / "build/hosts"))
OPSET = '<ir_version: 8, opset_import: ["" : 17]>\n'
# Two sizes that follow from the length, one of them from the other; a share of the longest row.
FRAMED = (
    OPSET
    + """framed (float[B, T] x, float[B] share) => (float[B, 1, F] y, float[B, 1, H] z)
<float[1, 1, 7] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}, int64 nought = {0}, int64 one = {1},
 int64[1] first = {1}>
{ n = Shape <start = 1, end = 2> (x) k = Squeeze (n) f = Cast <to = 1> (k)
  l = Mul (share, f) r = Range (nought, k, one) q = Cast <to = 1> (r)
  u = Unsqueeze (l, first) c = Less (q, u) m = Cast <to = 1> (c) s = Mul (x, m)
  e = Unsqueeze (s, first) y = Conv <strides = [3]> (e, w)
  z = MaxPool <kernel_shape = [2], strides = [2]> (y) }"""
)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def frames(folder: Path) -> tuple[Path, list[Arrays]]:
    source = saved(FRAMED, folder / "framed.onnx")
    assert ship_file(source, folder / "out", parse_containers(["T=16,40", "B=3"])).ok
    text = (folder / "out/graphfix.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    share = next(x for x in manifest["inputs"] if x["name"] == "share")
    share["kind"] = "relative-lengths"
    (folder / "out/graphfix.json").write_text(json.dumps(manifest), encoding="utf-8")
    clips = [(10, 1), (11, 2), (16, 3), (17, 1), (39, 2), (40, 3)]
    return folder / "out", [{"x": drawn(b, n), "share": np.ones(b, np.float32)} for n, b in clips]


def masked(folder: Path) -> tuple[Path, list[Arrays]]:
    from tests.shipping.conftest import MASKED

    source = saved(MASKED, folder / "masked.onnx")
    assert ship_file(source, folder / "out", parse_containers(["T=6,16", "B=3"])).ok
    calls = [(5, 1, 5), (6, 3, 4), (9, 2, 9), (16, 1, 1)]
    return folder / "out", [
        {
            "x": drawn(rows, length, 4),
            "mask": np.tile((np.arange(length) < valid).astype(np.int64), (rows, 1)),
        }
        for length, rows, valid in calls
    ]


def pooled(folder: Path) -> tuple[Path, list[Arrays]]:
    from tests.shipping.conftest import MEAN

    source = saved(MEAN, folder / "mean.onnx")
    assert ship_file(source, folder / "out", parse_containers(["T=8,20"])).ok
    clips = [{"x": drawn(1, 4, n), "language": np.array([n % 5])} for n in (3, 8, 9, 20)]
    return folder / "out", clips


def steps(form: str, counts: Sequence[int], folder: Path, cache: Sequence[int]) -> Any:
    source = saved(OPSET + FORMS[form], folder / "decoder.onnx")
    sizes = parse_containers(["S=1,4", "B=2"])
    assert ship_file(source, folder / "out", sizes, cache=cache).ok
    calls, length = [], 0
    for count in counts:
        length += count
        feeds = {"x": drawn(2, count, WIDTH)}
        if "] mask)" in FORMS[form]:
            feeds["mask"] = (np.arange(length) >= np.array([[0], [1]])).astype(np.int64)
        calls.append(feeds)
    return folder / "out", calls


def caches(folder: Path) -> tuple[Path, list[Arrays]]:
    found: tuple[Path, list[Arrays]] = steps("causal and mask", [6, 1, 1, 5, 3], folder, (8, 16))
    return found


def rolling(folder: Path) -> tuple[Path, list[Arrays]]:
    found: tuple[Path, list[Arrays]] = steps("rolling", [7, 1, 4, 13, 1, 1], folder, ())
    return found


def encoded(folder: Path) -> tuple[Path, list[Arrays]]:
    source = source_in(folder)
    assert ship_file(source, folder / "out", CONTAINERS, cache=(12,)).ok
    first, second = drawn(1, 4, 4), drawn(1, 6, 4)
    calls = [{"x": drawn(1, n, 4)} for n in (3, 1, 5, 1)]
    calls[0]["encoded"], calls[2]["encoded"] = first, second
    return folder / "out", calls


@pytest.fixture(scope="module", params=[frames, masked, pooled, caches, rolling, encoded])
def shipped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Arrays], list[Arrays]]:
    """A folder, calls of it, and what the session gives for them."""
    build: Callable[[Path], tuple[Path, list[Arrays]]] = request.param
    folder, calls = build(tmp_path_factory.mktemp(build.__name__))
    session = graphfix.Session(folder, ["CPUExecutionProvider"])
    if session.manifest.stream is None:
        names = [x.name for x in session.get_outputs()]
        results = [session.run(names, x) for x in calls]
    else:
        stream = session.stream()
        names = stream.outputs
        results = [stream.run(names, x) for x in calls]
    return folder, calls, [dict(zip(names, x, strict=True)) for x in results]


@pytest.fixture(scope="session")
def node() -> list[str]:
    """What runs the host in JavaScript."""
    if not shutil.which("node") or not (FETCHED / "node_modules/onnxruntime-node").is_dir():
        pytest.skip("needs node, and onnxruntime-node: make hosts")
    return ["node", *map(str, (DRIVERS / "drive.mjs", FETCHED, HOSTS / "host.mjs"))]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Compile C++ against the library that Python's onnxruntime has; return what runs it."""
    include = FETCHED / "usr/include"
    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
    if not shutil.which("g++") or not include.is_dir() or library is None:
        pytest.skip("needs g++, the headers of ONNX Runtime (make hosts), and its library")
    folder = tmp_path_factory.mktemp("cpp")
    (folder / "libonnxruntime.so.1").symlink_to(library)

    def compiled(source: Path, *more: str) -> list[str]:
        program = str(folder / source.stem)
        command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program, *more]
        command += [f"-I{x}" for x in (HOSTS, include, include / "onnxruntime")]
        command += [str(source), str(folder / "libonnxruntime.so.1"), f"-Wl,-rpath,{folder}"]
        subprocess.run(command, check=True)
        return [program]

    return compiled


@pytest.fixture(scope="session")
def cpp(compiled: Callable[..., list[str]]) -> list[str]:
    """What runs the host in C++."""
    return compiled(DRIVERS / "drive.cpp")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Compile C# with a compiler that has its references, if there is one; return what runs it."""
    compiler, runtime = (
        shlex.split(os.environ.get(x, "")) for x in ("GRAPHFIX_CSC", "GRAPHFIX_DOTNET")
    )
    if not compiler or not runtime:
        pytest.skip("needs a C# compiler in GRAPHFIX_CSC, and what runs it in GRAPHFIX_DOTNET")
    folder = tmp_path_factory.mktemp("csharp")

    def built(source: Path) -> list[str]:
        program = str(folder / f"{source.stem}.dll")
        command = [*compiler, "-target:exe", f"-out:{program}", str(HOSTS / "host.cs"), str(source)]
        subprocess.run(command, check=True)
        return [*runtime, program]

    return built


@pytest.fixture(scope="session")
def csharp(built: Callable[..., list[str]]) -> list[str]:
    """What runs the host in C#."""
    return built(DRIVERS / "drive.cs")


def driven(command: list[str], folder: Path, calls: Sequence[Arrays], work: Path) -> list[Arrays]:
    """Run calls by another program; its files have the numbers as text, which loses nothing."""
    plain = [
        {
            name: {"type": str(x.dtype), "dims": x.shape, "data": x.ravel().tolist()}
            for name, x in call.items()
        }
        for call in calls
    ]
    (work / "calls.json").write_text(json.dumps(plain), encoding="utf-8")
    done = subprocess.run(
        [*command, str(folder), str(work / "calls.json"), str(work / "results.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((work / "results.json").read_text(encoding="utf-8"))
    return [
        {k: np.array(x["data"], x["type"]).reshape(x["dims"]) for k, x in result.items()}
        for result in results
    ]


def require_same(found: list[Arrays], wanted: list[Arrays]) -> None:
    assert len(found) == len(wanted)
    for mine, its in zip(found, wanted, strict=True):
        assert mine.keys() == its.keys()
        for name, array in its.items():
            assert mine[name].dtype == array.dtype
            np.testing.assert_allclose(mine[name], array, rtol=1e-6, atol=1e-6)


def test_python(shipped: tuple[Path, list[Arrays], list[Arrays]]) -> None:
    folder, calls, wanted = shipped
    module = module_at(HOSTS / "host.py")
    host = module.Host(folder)
    runner = host if host.manifest["stream"] is None else module.Stream(host)
    require_same([runner.run(x) for x in calls], wanted)


@pytest.mark.parametrize("language", ["node", "cpp", "csharp"])
def test_other_languages(
    language: str,
    shipped: tuple[Path, list[Arrays], list[Arrays]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    folder, calls, wanted = shipped
    command: list[str] = request.getfixturevalue(language)
    require_same(driven(command, folder, calls, tmp_path), wanted)


# The page


def marked(name: str, prompt: str = "7") -> str:
    """Return the block of the page that is marked with a name, with another prompt."""
    text = (ROOT / "docs/hosts.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- tested: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    return str(block).replace("7", prompt)


# A decoder whose mask says for each new token what it sees, and is added to the scores. What it
# caches of a token follows from what that token sees.
CAUSAL = (
    OPSET
    + f"""text (int64[1, S] tokens, float[1, S, total] attention_mask,
    float[1, past, 4] past_key, float[1, past, 4] past_value)
    => (float[1, S, 8] logits, float[1, grown, 4] present_key, float[1, grown, 4] present_value)
<{table("embedding", 8, 4)}, {table("wk", 4, 4)}, {table("wv_", 4, 4)}, {table("head_", 4, 8)}>
{{ h = Gather (embedding, tokens) k = MatMul (h, wk)
  present_key = Concat <axis = 1> (past_key, k)
  turned = Transpose <perm = [0, 2, 1]> (present_key) scores = MatMul (h, turned)
  hidden = Add (scores, attention_mask) weights = Softmax <axis = -1> (hidden)
  first = MatMul (weights, present_key) v = MatMul (first, wv_)
  present_value = Concat <axis = 1> (past_value, v)
  second = MatMul (weights, present_value) logits = MatMul (second, head_) }}"""
)


@pytest.fixture(scope="module", params=["of the page", "with a row per token"])
def decoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, list[str]]:
    """A folder with a decoder, a prompt, and the tokens that follow it."""
    folder = tmp_path_factory.mktemp("page")
    source, name, prompt = ROOT / "models/qwen3-decoder/model.onnx", "input_ids", [7]
    if request.param != "of the page":
        source, name, prompt = saved(CAUSAL, folder / "causal.onnx"), "tokens", [0, 5, 6, 1]
    sizes = parse_containers(["S=1,4"])
    done = ship_file(source, folder / "decoder", sizes, cache=(32,))
    assert done.ok, str(done.whole)
    stream = graphfix.Session(folder / "decoder", ["CPUExecutionProvider"]).stream()
    tokens, new = [], prompt
    for _ in range(20):
        mask = np.ones((1, stream.length + len(new)), np.int64)
        if request.param != "of the page":
            below = np.tri(len(new), stream.length + len(new), stream.length)
            mask = np.where(below, 0, -1e4).astype(np.float32)[None]
        (logits,) = stream.run(None, {name: np.array([new]), "attention_mask": mask})
        new = [int(logits[0, -1].argmax())]
        tokens += new
    assert len({*tokens}) > 1
    return folder, ", ".join(map(str, prompt)), [str(x) for x in tokens]


Decoder = tuple[Path, str, list[str]]


def require_tokens(command: list[str], decoder: Decoder) -> None:
    folder, _, tokens = decoder
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == tokens


def test_the_program_in_python(decoder: Decoder) -> None:
    code = f"import sys; sys.path.insert(0, {str(HOSTS)!r})\n{marked('hosts-python', decoder[1])}"
    require_tokens([sys.executable, "-c", code], decoder)


@pytest.mark.usefixtures("node")
def test_the_program_in_javascript(decoder: Decoder) -> None:
    folder = decoder[0]
    shutil.copy(HOSTS / "host.mjs", folder)
    (folder / "tokens.mjs").write_text(marked("hosts-node", decoder[1]), encoding="utf-8")
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(FETCHED / "node_modules")
    require_tokens(["node", "tokens.mjs"], decoder)


def test_the_program_in_cpp(
    compiled: Callable[..., list[str]], decoder: Decoder, tmp_path: Path
) -> None:
    (tmp_path / "tokens.cpp").write_text(marked("hosts-cpp", decoder[1]), encoding="utf-8")
    require_tokens(compiled(tmp_path / "tokens.cpp"), decoder)


def test_the_options_for_directml_in_cpp(
    compiled: Callable[..., list[str]], tmp_path: Path
) -> None:
    declared = (
        "ORT_API_STATUS(OrtSessionOptionsAppendExecutionProvider_DML, OrtSessionOptions*, int);"
    )
    text = marked("hosts-cpp-directml")
    (tmp_path / "options.cpp").write_text(
        f'#include "host.hpp"\nextern "C" {declared}\nint main() {{ {text} }}', encoding="utf-8"
    )
    compiled(tmp_path / "options.cpp", "-fsyntax-only")


def test_the_program_in_csharp(
    built: Callable[..., list[str]], decoder: Decoder, tmp_path: Path
) -> None:
    (tmp_path / "tokens.cs").write_text(marked("hosts-csharp", decoder[1]), encoding="utf-8")
    require_tokens(built(tmp_path / "tokens.cs"), decoder)


class Serving(http.server.SimpleHTTPRequestHandler):
    """A folder; the page says to the server what it shows in the end."""

    WATCH = """<script>
        const shown = document.getElementById("tokens");
        const tell = () => fetch("/", {method: "POST", body: shown.textContent});
        new MutationObserver(tell).observe(shown, {childList: true});
        </script></html>"""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        page = (HOSTS / "browser.html").read_text(encoding="utf-8").replace("</html>", self.WATCH)
        page = page.replace("[7]", f"[{self.server.prompt}]")  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self) -> None:
        shown = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(204)
        self.end_headers()
        self.server.shown.append(shown)  # type: ignore[attr-defined]
        self.server.told.set()  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        """Say nothing of each file."""


SOFTWARE_GPU = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
)


@browser.needed
@pytest.mark.parametrize("decoder", ["of the page"], indirect=True)
@pytest.mark.parametrize(
    ("provider", "flags"), [("wasm", ("--disable-gpu",)), ("webgpu", SOFTWARE_GPU)]
)
def test_the_page_in_a_browser(
    provider: str, flags: Sequence[str], decoder: Decoder, tmp_path: Path
) -> None:
    if not (FETCHED / "node_modules/onnxruntime-web").is_dir():
        pytest.skip("needs onnxruntime-web: make hosts")
    folder, prompt, tokens = decoder
    shutil.copytree(folder / "decoder", tmp_path / "decoder")
    shutil.copy(HOSTS / "host.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(FETCHED / "node_modules")
    handler = functools.partial(Serving, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.shown, server.told = [], threading.Event()  # type: ignore[attr-defined]
        server.prompt = prompt  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [browser.BROWSER, "--headless", "--no-sandbox", "--disable-background-networking"]
        command += [*flags, f"--user-data-dir={tmp_path / 'profile'}"]
        process = subprocess.Popen(
            [*command, f"http://127.0.0.1:{server.server_port}/"], stderr=subprocess.DEVNULL
        )
        try:
            server.told.wait(180)  # type: ignore[attr-defined]
        finally:
            process.terminate()
            process.wait(30)
            server.shutdown()
        (shown,) = server.shown  # type: ignore[attr-defined]
    used, _, text = shown.partition(": ")
    if provider == "webgpu" and used == "wasm":
        pytest.skip("this Chromium has no adapter for WebGPU")
    assert (used, text.split()) == (provider, tokens)

"""`graphfix run` over a pair that is there, killed at moments that nobody has chosen.

How long is GRAPHFIX_KILL_SECONDS; GRAPHFIX_KILL_SEED draws the same moments again.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime

from graphfix import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = float(os.environ.get("GRAPHFIX_KILL_SECONDS", "8"))
SEED = int(os.environ.get("GRAPHFIX_KILL_SEED", time.time_ns()))

SIZE = 1 << 20  # elements of the weights that lie beside the model


def make(path: Path, value: int) -> Path:
    """A model of the number ``value``: one in it, one in the weights, and the square comes out."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[T, 4] x) => (float[N, 2] y)
        <int64[2] s = {-1, 2}>
        { h = Mul (w, inside)  a = ReduceMax <keepdims = 0> (h)  b = Add (x, a)
          y = Reshape <allowzero = 1> (b, s) }"""
    )
    for name, size in (("w", SIZE), ("inside", 1)):
        weight = np.full(size, value, np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(proto, path)
    return path


def computed(path: Path) -> int:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.zeros((3, 4), np.float32)})
    (number,) = np.unique(y)
    return round(float(number) ** 0.5)


def refers_to(proto: onnx.ModelProto) -> str:
    """The file beside the model that its weights are in."""
    (name,) = {
        entry.value
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return name


def listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Reader(threading.Thread):
    """Reads the pair again and again, as a program does that has never heard of graphfix."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.count = path, 0
        self.wrong: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                model = self.path.read_bytes()
                seen = self._numbers(model)
                if len(seen) != 1 and self.path.read_bytes() == model:
                    self.wrong.append(f"one name, two models: {seen}")
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
            self.count += 1

    def _numbers(self, model: bytes) -> set[float]:
        """What the model and its weights are of; nothing if the weights are not there."""
        proto = onnx.load_model_from_string(model)
        (inside,) = (x for x in proto.graph.initializer if x.name == "inside")
        (number,) = onnx.numpy_helper.to_array(inside)
        try:
            beside = np.fromfile(self.path.with_name(refers_to(proto)), np.float32)
        except FileNotFoundError:  # right only if the model that named them is gone as well
            return set()
        return {float(number), *np.unique(beside).tolist()} | (
            {-1.0} if beside.size < SIZE else set()
        )


@contextmanager
def reading(path: Path) -> Iterator[Reader | None]:
    if sys.platform == "win32":  # what is read there cannot be replaced, and is not
        yield None
        return
    reader = Reader(path)
    reader.start()
    yield reader
    reader.done.set()
    reader.join()


def test_killed_at_any_moment(tmp_path: Path) -> None:
    drawn = random.Random(SEED)
    print(f"GRAPHFIX_KILL_SEED={SEED}")
    # A process that has imported all it needs, and one that is forked from it for each run: else
    # most of the time would go into imports, during which nothing can be lost.
    posix = sys.platform != "win32"
    context = multiprocessing.get_context("forkserver" if posix else "spawn")
    if posix:
        context.set_forkserver_preload(["graphfix.cli", "graphfix.job", "onnxruntime", "onnx"])
    sources = {number: make(tmp_path / f"{number}.onnx", number) for number in (2, 3)}
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "o.onnx"

    def begin(number: int) -> multiprocessing.process.BaseProcess:
        words = ["run", str(sources[number]), "-o", str(target), "--external-data", "separate"]
        words += ["-p", "reshape-allowzero", "--no-kernels", "--dims", "T=2,3"]  # a short run
        process = context.Process(target=cli.main, args=(words,))
        process.start()
        return process

    def to_the_end(number: int) -> None:
        begin(number).join()
        assert computed(target) == number
        left = refers_to(onnx.load(target, load_external_data=False))
        assert listing(folder) == {"o.onnx", left}, "what a killed run leaves, the next one sweeps"

    to_the_end(2)
    start = time.monotonic()
    to_the_end(2)
    whole = time.monotonic() - start
    now, left, kills, replaced = 2, 0, 0, 0
    with reading(target) as reader:
        while time.monotonic() - start < SECONDS or kills < 3:
            new = 5 - now
            before = listing(folder)
            process = begin(new)
            if drawn.random() < 0.8:  # most are killed once they have begun to write
                while process.is_alive() and listing(folder) == before:
                    time.sleep(0.001)
                process.join(drawn.uniform(0, whole / 2))
            else:
                process.join(drawn.uniform(0, whole))
            process.kill()
            process.join()
            kills += 1
            found = computed(target)
            assert found in (now, new), f"after kill {kills}"
            replaced += found != now
            left += len(listing(folder)) > 2
            now = found
            if drawn.random() < 0.2:
                to_the_end(now := drawn.choice([2, 3]))
    to_the_end(5 - now)
    print(f"{kills} kills: {replaced} after the model had its name, {left} left something")
    if reader is not None:
        print(f"read {reader.count} times meanwhile")
        assert not reader.wrong, reader.wrong[:3]
        assert reader.count > kills

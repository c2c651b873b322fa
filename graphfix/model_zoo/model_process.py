"""The work on one model, in a process of its own: if the model kills it, the others go on.

A request can be made plain data, with the bytes of the model's files if it goes to another machine;
the answer is the model's row of the zoo, plain data too. ``python -m graphfix.model_zoo FOLDER``
runs the request in a folder.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from graphfix.errors import ModelError
from graphfix.model_zoo import cache, gates
from graphfix.model_zoo.figures import Json, merge_figures
from graphfix.model_zoo.recipe import Recipe
from graphfix.model_zoo.zoo_job import ZooJob
from graphfix.providers.table import Ep
from graphfix.runtime.scratch import ScratchFolder
from graphfix.version import __version__
from graphfix.wording import Tell

TRAVELS = 200_000_000
"""A model of more bytes than this does not travel: its folder must be there under the same path."""
JOB_SECONDS = 3600.0
_POLL_SECONDS = 0.2
_PACKAGE = __name__.rpartition(".")[0]  # python -m runs its __main__
_running: set[subprocess.Popen[bytes]] = set()
_SHOWN = ("id", "name", "shows", "source", "license", "exporter", "weights", "passes", "notes")


@dataclasses.dataclass(frozen=True)
class Request:
    """One model to work on.

    Attributes:
        recipe: What to do.
        ep: Where the repaired model is to run.
        key: Of the result, see :func:`graphfix.model_zoo.cache.key_of`.
    """

    recipe: Recipe
    ep: Ep
    key: str

    def to_json(self) -> Json:
        """Return the request as plain data, for a process that sees the same files."""
        recipe = dataclasses.asdict(self.recipe)
        paths = {key: str(recipe[key].absolute()) for key in ("model", "feeds") if recipe[key]}
        return {"recipe": {**recipe, **paths}, "ep": self.ep, "key": self.key}

    def to_send(self) -> Json:
        """Return the request as plain data for another machine, with the contents of its files.

        Files that are too large, or not in the model's folder, are to be found there by their path.
        """
        data, files = self.to_json(), self.recipe.files
        folder = self.recipe.model.parent
        inside = all(x.is_relative_to(folder) and ".." not in x.parts for x in files)
        if inside and sum(file.stat().st_size for file in files) <= TRAVELS:
            data["contents"] = {x.relative_to(folder).as_posix(): x.read_bytes() for x in files}
            for key in ("model", "feeds"):  # by the name that its content has
                if (path := getattr(self.recipe, key)) is not None:
                    data["recipe"][key] = path.relative_to(folder).as_posix()
        return data


def read_request(data: Json, folder: Path) -> Request:
    """Read a request from plain data; write the files that came with it into ``folder``.

    Raises:
        ModelError: The files did not come with it, and are not here.
    """
    for name, content in data.get("contents", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    recipe = dict(data["recipe"])
    for key in ("model", "feeds"):
        if (name := recipe[key]) is None:
            continue
        recipe[key] = folder / name  # what did not come with it has a whole path
        if not recipe[key].is_file():
            raise ModelError(
                f"{name} is not on this machine, and it is too large to be sent: let its "
                "folder be found here under the same path"
            )
    return Request(Recipe(**recipe), data["ep"], data["key"])


def run_request(request: Request, tell: Tell = lambda _: None) -> Json:
    """Run all stages here and judge them; return the row of the model."""
    from graphfix.model_zoo import stages  # seconds of imports

    start = time.perf_counter()
    recipe, ep = request.recipe, request.ep
    with ScratchFolder() as scratch:
        results = stages.run_stages(
            ZooJob(recipe, ep, scratch.path / "model.fixed.onnx", tell=tell)
        )
    figures = merge_figures(results)
    judged = gates.judge_gates(recipe, ep, results, figures)
    return _make_row(request, judged, figures, results, round(time.perf_counter() - start, 3))


def failed_row(request: Request, reason: str) -> Json:
    """Return the row of a model whose work did not end; it is tried again next time."""
    gate = {"gate": "work", "ok": False, "text": reason}
    return {**_make_row(request, [gate], merge_figures({}), {}, 0.0), "key": ""}


def run_in_process(request: Request, tell: Tell = lambda _: None) -> Json:
    """Run a request in a new process; return its row, also if it dies or takes an hour."""
    with ScratchFolder() as scratch:
        folder = scratch.path
        (folder / "request.json").write_text(json.dumps(request.to_json()), encoding="utf-8")
        error_file = folder / "stderr"
        with error_file.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PACKAGE, str(folder)],
                stdin=subprocess.PIPE,  # whose end it hears when we are killed
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # What it cannot remove because it was ended goes with this folder.
                env={**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))},
            )
        _running.add(process)
        end, stage = time.monotonic() + JOB_SECONDS, folder / "stage"
        try:
            while _is_still_running(process):
                if time.monotonic() > end:
                    reason = f"its process did not end within {JOB_SECONDS / 60:.0f} minutes"
                    return failed_row(request, reason)
                with suppress(OSError):  # it has not begun
                    tell(stage.read_text(encoding="utf-8") or "starting")
        finally:
            _running.remove(process)
            process.kill()  # where it has not ended by itself
            process.wait()
            process.stdin.close()  # type: ignore[union-attr]
        answer = cache.load_row(folder / "row.json")
        if answer is not None:
            return answer
        error_lines = error_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        words = f": {error_lines[-1]}" if error_lines else ""
        return failed_row(request, f"its process died, exit code {process.returncode}{words}")


def _is_still_running(process: subprocess.Popen[bytes]) -> bool:
    """Wait for a moment, and return whether the process still runs."""
    try:
        process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def end_processes(*, at_once: bool = False) -> None:
    """End the running processes."""
    for process in list(_running):
        if at_once:
            process.kill()
        else:
            process.terminate()


def _make_row(
    request: Request, judged: list[Json], figures: Json, stages: Json, seconds: float
) -> Json:
    """Return the row of one model; it is ok if no gate failed."""
    return {
        "schema": cache.SCHEMA,
        "graphfix": __version__,
        "key": request.key,
        "ep": request.ep,
        **{key: getattr(request.recipe, key) for key in _SHOWN},
        "ok": all(gate["ok"] is not False for gate in judged),
        "reason": next((gate["text"] for gate in judged if gate["ok"] is False), ""),
        "gates": judged,
        "figures": figures,
        "stages": stages,
        "seconds": seconds,
    }

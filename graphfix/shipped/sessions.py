"""The sessions of ONNX Runtime that a shipped folder's files are run in."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import onnxruntime
from onnxruntime import InferenceSession, SessionOptions

from graphfix.errors import ModelError
from graphfix.runtime.ort_paths import WEIGHTS_FOLDER, readable
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import reason_of

_DIRECTML, _CPU = "DmlExecutionProvider", "CPUExecutionProvider"


class Sessions:
    """A session for each file, made when it is first asked for; for use from several threads.

    Args:
        providers: As for onnxruntime; None for DirectML where there is one, then the CPU.
        options: Options for every session; DirectML's own are set besides.
        share: Whether the sessions share the memory of their weights, and pack none of them.

    Attributes:
        providers: Those that every session is made with.
        made: The sessions that there are.
        running: What is held while one of them runs, where the provider demands that.
    """

    def __init__(
        self, providers: Sequence[Any] | None, options: SessionOptions | None, *, share: bool
    ) -> None:
        self.providers = list(_default_providers() if providers is None else providers)
        self.made: dict[Path, InferenceSession] = {}
        self._options = options
        self._share = share
        self._making = threading.Lock()
        # DirectML runs one thing at a time, and says so by undefined behaviour.
        self.running = threading.Lock() if self.on_directml else nullcontext()

    @property
    def on_directml(self) -> bool:
        """Whether DirectML is among the providers."""
        return _DIRECTML in [x[0] if isinstance(x, tuple) else x for x in self.providers]

    def get(self, path: Path) -> InferenceSession:
        """The session of a file.

        Raises:
            ModelError: ONNX Runtime rejects it.
        """
        if (made := self.made.get(path)) is not None:
            return made
        with self._making:
            if path not in self.made:
                self.made[path] = self._make(path)
            return self.made[path]

    def run(
        self,
        session: InferenceSession,
        wanted: Sequence[str],
        fed: Mapping[str, Array],
        run_options: onnxruntime.RunOptions | None = None,
    ) -> list[Array]:
        """What a session gives, one at a time where the provider demands it."""
        with self.running:
            return cast("list[Array]", session.run(wanted, fed, run_options))

    def clear(self) -> None:
        """Let go of every session."""
        with self._making:
            self.made.clear()

    def _make(self, path: Path) -> InferenceSession:
        options = self._options or _quiet()
        if self.on_directml:  # what DirectML demands
            options.enable_mem_pattern = False
            options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        source, weights = readable(str(path))
        if weights is not None:
            options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
        if self._share:
            options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            return onnxruntime.InferenceSession(source, options, providers=self.providers)
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            reason = reason_of(error)
            raise ModelError(f"{path}: ONNX Runtime does not load it: {reason}") from error


def _default_providers() -> list[Any]:
    """DirectML where there is one, and the CPU for what it does not run."""
    known = onnxruntime.get_available_providers()
    # The device that the containers were proved on. Without one ONNX Runtime asks DXCore, which
    # older Windows has not, and falls back to the CPU with a line on standard output.
    wanted = [(_DIRECTML, {"device_id": 0})] if _DIRECTML in known else []
    return [*wanted, _CPU]


def _quiet() -> SessionOptions:
    options = SessionOptions()
    options.log_severity_level = 3
    return options

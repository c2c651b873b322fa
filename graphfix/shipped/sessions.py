"""The ONNX Runtime sessions that run the files of a shipped folder."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import onnxruntime
from onnxruntime import InferenceSession, SessionOptions

from graphfix.errors import ModelError, UsageError
from graphfix.runtime.ort_paths import WEIGHTS_FOLDER, openable_source
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import reason_of

_DIRECTML, _CPU = "DmlExecutionProvider", "CPUExecutionProvider"


class SessionPool:
    """One session per file, created on first use; safe to use from several threads.

    Args:
        providers: As for onnxruntime; None for DirectML where it is available, then the CPU.
        options: Options for every session; DirectML's own are set besides.
        share: Whether the sessions share the memory of their weights, and prepack none of them.

    Attributes:
        providers: The execution providers of every session.
        open_sessions: The open session of each file.
        run_lock: Held while a session runs, where the provider runs one at a time.
    """

    def __init__(
        self, providers: Sequence[Any] | None, options: SessionOptions | None, *, share: bool
    ) -> None:
        self.providers = list(_default_providers() if providers is None else providers)
        self.open_sessions: dict[Path, InferenceSession] = {}
        self._options = options
        self._share = share
        self._create_lock = threading.Lock()
        # DirectML allows one run at a time; two at once are undefined behaviour.
        self.run_lock = threading.Lock() if self.on_directml else nullcontext()

    @property
    def provider_names(self) -> list[str]:
        """Return the names of the providers."""
        return [x[0] if isinstance(x, tuple) else x for x in self.providers]

    @property
    def on_directml(self) -> bool:
        """Return whether DirectML is among the providers."""
        return _DIRECTML in self.provider_names

    def session_of(self, path: Path) -> InferenceSession:
        """Return the session of a file, creating it on first use.

        Raises:
            ModelError: ONNX Runtime rejects it.
        """
        if (session := self.open_sessions.get(path)) is not None:
            return session
        with self._create_lock:
            if path not in self.open_sessions:
                self.open_sessions[path] = self._create_session(path)
            return self.open_sessions[path]

    def run(
        self,
        session: InferenceSession,
        output_names: Sequence[str],
        feeds: Mapping[str, Array],
        run_options: onnxruntime.RunOptions | None = None,
    ) -> list[Array]:
        """Run a session, one at a time where the provider demands it; return its outputs."""
        with self.run_lock:
            return cast("list[Array]", session.run(output_names, feeds, run_options))

    def drop_sessions(self) -> None:
        """Drop every session."""
        with self._create_lock:
            self.open_sessions.clear()

    def _create_session(self, path: Path) -> InferenceSession:
        options = self._options or _quiet_options()
        if self.on_directml:  # what DirectML demands
            options.enable_mem_pattern = False
            options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        source, weights = openable_source(str(path))
        if weights is not None:
            options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
        if self._share:
            options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            return onnxruntime.InferenceSession(source, options, providers=self.providers)
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            reason = reason_of(error)
            raise ModelError(f"{path}: ONNX Runtime does not load it: {reason}") from error


def join_provider_options(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> Sequence[Any] | None:
    """Return providers with their options, as onnxruntime takes both in one.

    Raises:
        UsageError: There are not as many options as providers.
    """
    if options is None:
        return providers
    if providers is None or len(providers) != len(options):
        raise UsageError("provider_options has one dict for each of providers, as of onnxruntime")
    return [(name, dict(each)) for name, each in zip(providers, options, strict=True)]


def _default_providers() -> list[Any]:
    """Return DirectML where it is available, and the CPU for what it does not run."""
    available = onnxruntime.get_available_providers()
    # The device that the containers were proved on. Without one ONNX Runtime asks DXCore, which
    # older Windows has not, and falls back to the CPU with a line on standard output.
    preferred = [(_DIRECTML, {"device_id": 0})] if _DIRECTML in available else []
    return [*preferred, _CPU]


def _quiet_options() -> SessionOptions:
    options = SessionOptions()
    options.log_severity_level = 3
    return options

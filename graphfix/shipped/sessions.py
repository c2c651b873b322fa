"""The ONNX Runtime sessions that run the files of a shipped folder."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import onnxruntime
from onnxruntime import InferenceSession, SessionOptions

from graphfix.errors import ModelError, UsageError
from graphfix.providers.table import PROVIDERS
from graphfix.runtime.ort_paths import WEIGHTS_FOLDER, openable_source
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import reason_of

_DIRECTML, _CPU = PROVIDERS["dml"].ort_name, PROVIDERS["cpu"].ort_name
# Without a device id onnxruntime falls back from these to the CPU without an error.
_NUMBERED = (_DIRECTML, PROVIDERS["cuda"].ort_name)


class SessionPool:
    """One session per file, created on first use; safe to use from several threads.

    Args:
        providers: As for onnxruntime; None for DirectML where it is available, then the CPU.
        options: Options for every session; DirectML's own are set besides.
        share: Whether the sessions share the memory of their weights, and prepack none of them.
        may_fall_back: Whether ONNX Runtime may take the CPU for a provider that fails.

    Attributes:
        providers: The execution providers of every session.
        open_sessions: The open session of each file.
        run_lock: Held while a session runs, where the provider runs one at a time.
    """

    def __init__(
        self,
        providers: Sequence[Any] | None,
        options: SessionOptions | None,
        *,
        share: bool,
        may_fall_back: bool = True,
    ) -> None:
        self.providers = list(default_providers() if providers is None else providers)
        self.open_sessions: dict[Path, InferenceSession] = {}
        self._options = options
        self._share = share
        self._may_fall_back = may_fall_back
        self._create_lock = threading.Lock()
        # DirectML allows one run at a time; two at once are undefined behaviour.
        self.run_lock = threading.Lock() if self.on_directml else nullcontext()

    @property
    def provider_names(self) -> list[str]:
        """Return the names of the providers."""
        return names_of(self.providers)

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
        source, weights = openable_source(str(path))
        if weights is not None:
            options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
        if self._share:
            options.add_session_config_entry("session.disable_prepacking", "1")
        demands = _meet_directml(options) if self.on_directml else nullcontext()
        try:
            with demands:
                session = onnxruntime.InferenceSession(
                    source, options, providers=self.providers, enable_fallback=self._may_fall_back
                )
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            reason = reason_of(error)
            raise ModelError(f"{path}: ONNX Runtime does not load it: {reason}") from error
        used, wanted = session.get_providers()[0], self.provider_names[0]
        if used != wanted and not self._may_fall_back:
            raise ModelError(f"{path}: ONNX Runtime fell back to {used} instead of {wanted}")
        return session


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


def default_providers() -> list[Any]:
    """Return DirectML where it is available, and the CPU for what it does not run."""
    available = onnxruntime.get_available_providers()
    return providers_with_cpu(_DIRECTML if _DIRECTML in available else _CPU)


def known_providers() -> list[str]:
    """Return the names of the providers that this ONNX Runtime has and graphfix knows."""
    available = onnxruntime.get_available_providers()
    return [x.ort_name for x in PROVIDERS.values() if x.ort_name in available]


def providers_with_cpu(name: str) -> list[Any]:
    """Return a provider as onnxruntime takes it, and the CPU for what it does not run."""
    if name == _CPU:
        return [_CPU]
    # The device that the containers were proved on. Without one ONNX Runtime asks DXCore, which
    # older Windows has not, and falls back to the CPU with a line on standard output.
    return [(name, {"device_id": 0}) if name in _NUMBERED else name, _CPU]


def names_of(providers: Sequence[Any]) -> list[str]:
    """Return the names of providers, some of which may have options."""
    return [x[0] if isinstance(x, tuple) else x for x in providers]


@contextmanager
def _meet_directml(options: SessionOptions) -> Iterator[None]:
    """Set what DirectML demands while a session is made; another provider may do without."""
    own = options.enable_mem_pattern, options.execution_mode
    options.enable_mem_pattern = False
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    try:
        yield
    finally:
        options.enable_mem_pattern, options.execution_mode = own


def _quiet_options() -> SessionOptions:
    options = SessionOptions()
    options.log_severity_level = 3
    return options

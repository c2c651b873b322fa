"""The door to onnxruntime: a model, loaded, that turns feeds into outputs.

In this process on the CPU. On DirectML and CUDA a graph may kill the process that runs it, so that
is always another one, see :mod:`graphfix.runtime.remote`: this Python once more, or, where it has
no DirectML, one that has.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from graphfix.errors import GraphfixError
from graphfix.runtime._results import flattened
from graphfix.runtime.local import load, options_of, port_of, run
from graphfix.runtime.paths import WEIGHTS_FOLDER
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.python import here, require
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.source import Source, sourced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfix.runtime.provider import Ep


_TRUSTED = (1, 25)


def trusted() -> bool:
    """Whether this ONNX Runtime survives what it is given on the CPU.

    1.24.4, the last for DirectML, dies of an integer division by zero, with the whole process; the
    newest do not. A length may be 0 at one of the sizes that are tried.
    """
    import onnxruntime

    found = re.match(r"(\d+)\.(\d+)", onnxruntime.__version__)
    return found is not None and (int(found[1]), int(found[2])) >= _TRUSTED


class Session:
    """A model loaded in ONNX Runtime.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory, which
            is not changed. Models with external weights are given as a path or in memory.
        ep: The execution provider. All but ``"cpu"`` run the model in a process of their own, whose
            death is an error like any other; ``threads`` does not apply there.
        extra_outputs: Names of inner tensors of the main graph to return besides the outputs.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        threads: How many threads one operator may use; at most four by default.
        free_dims: Sizes for symbolic dims, by name, as ONNX Runtime's free-dimension overrides.
            The session then runs at these sizes only. They need ``optimize``.
        profile: Whether to record what each node does, for :meth:`profile`.

    Raises:
        ModelError: The file cannot be read, or ONNX Runtime rejects the model; with its reason.
        UsageError: The provider is not to be had; with how to get it.
    """

    def __init__(
        self,
        model: Source,
        *,
        ep: Ep = "cpu",
        extra_outputs: Sequence[str] = (),
        optimize: bool = True,
        threads: int | None = None,
        free_dims: Mapping[str, int] | None = None,
        profile: bool = False,
    ) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._remote: RemoteSession | None = None
        if ep != "cpu" or not trusted():
            require(ep)
            self._remote = remote = RemoteSession(
                model,
                here(ep),
                optimize=optimize,
                free_dims=free_dims,
                profile=profile,
                extra_outputs=extra_outputs,
            )
            self.inputs, self.outputs = remote.inputs, remote.outputs
            return
        try:
            source, weights = sourced(model, extra_outputs, self._folder)
            options = options_of(optimize, threads or min(4, os.cpu_count() or 1))
            if weights is not None:
                options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
            for name, size in (free_dims or {}).items():
                options.add_free_dimension_override_by_name(name, size)
            if profile:
                options.enable_profiling = True
                options.profile_file_prefix = str(self._folder() / "profile")
            self._session = load(source, options)
            ports = (*self._session.get_inputs(), *self._session.get_overridable_initializers())
            self._names = {x.name for x in ports}
        except GraphfixError:
            self.close()
            raise
        self.inputs = tuple(port_of(x) for x in self._session.get_inputs())
        self.outputs = tuple(port_of(x) for x in self._session.get_outputs())

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: An array for each input, by name. Arrays that the model has no input for are
                ignored.
            outputs: Names of the outputs wanted; by default all.

        Returns:
            An array for each output, by name. A sequence ``y`` comes as ``y.length``, ``y[0]``,
            ``y[1]``, ...; a map as ``y.keys`` and ``y['key']``; an absent optional as
            ``y.present``, false.

        Raises:
            RunError: An input is missing or does not fit, or an operator failed.
        """
        if self._remote is not None:
            return self._remote.run(feeds, outputs)
        # Copies: ONNX Runtime's BatchNormalization in training mode writes into what it is fed.
        given = {name: np.array(array) for name, array in feeds.items() if name in self._names}
        wanted = [x.name for x in self.outputs] if outputs is None else list(outputs)
        results = run(self._session, wanted, given)
        found: dict[str, Array] = {}
        for name, result in zip(wanted, results, strict=True):
            found |= flattened(name, result)
        return found

    def profile(self) -> list[dict[str, Any]]:
        """What ONNX Runtime's profiler recorded of all runs; it ends the session.

        Returns:
            Its events as it writes them. Those of nodes have ``args.provider``, ``args.op_name``
            and a ``name`` such as ``/layer/MatMul_kernel_time``. Empty without ``profile=True``,
            and of a process that died.
        """
        if self._remote is not None:
            return self._remote.profile()
        path = self._session.end_profiling()
        self.__dict__.pop("_session", None)
        if not path:
            return []
        events: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
        return events

    def close(self) -> None:
        """Let go of the model's memory now, not when the garbage collector comes."""
        self.__dict__.pop("_session", None)
        if self._remote is not None:
            self._remote.close()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _folder(self) -> Path:
        """A folder that goes with the session."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="graphfix-")
        return Path(self._scratch.name)

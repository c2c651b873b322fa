"""The door to onnxruntime: a model, loaded, that turns feeds into outputs.

In a process of its own, wherever it runs: a graph may kill the process that runs it, ask for more
memory than there is, or never end. See :mod:`graphfix.runtime.remote`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.python import here, require
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfix.runtime.provider import Ep

# More would only wait for each other, in the small runs of a verification.
_MOST_THREADS = 4


class Session:
    """A model loaded in ONNX Runtime.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory, which
            is not changed. Models with external weights are given as a path or in memory.
        ep: The execution provider.
        extra_outputs: Names of inner tensors of the main graph to return besides the outputs.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        threads: How many threads one operator may use on the CPU; at most four by default.
        free_dims: Sizes for symbolic dims, by name, as ONNX Runtime's free-dimension overrides.
            The session then runs at these sizes only. They need ``optimize``.
        profile: Whether to record what each node does, for :meth:`profile`.

    Raises:
        ModelError: The file cannot be read, ONNX Runtime rejects the model, or dies of it; with
            its reason.
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
        require(ep)
        usual = min(_MOST_THREADS, os.cpu_count() or 1) if ep == "cpu" else 0
        self._remote = RemoteSession(
            model,
            here(ep),
            optimize=optimize,
            free_dims=free_dims,
            profile=profile,
            extra_outputs=extra_outputs,
            threads=threads or usual,
            bounded=ep == "cpu",
        )
        self.inputs, self.outputs = self._remote.inputs, self._remote.outputs

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
            RunError: An input is missing or does not fit, an operator failed, or ONNX Runtime
                died of it; the next run gets a fresh process.
            StoppedError: It took too long, see :mod:`graphfix.runtime.limits`.
        """
        return self._remote.run(feeds, outputs)

    def profile(self) -> list[dict[str, Any]]:
        """What ONNX Runtime's profiler recorded of all runs; it ends the session.

        Returns:
            Its events as it writes them. Those of nodes have ``args.provider``, ``args.op_name``
            and a ``name`` such as ``/layer/MatMul_kernel_time``. Empty without ``profile=True``,
            and of a process that died.
        """
        return self._remote.profile()

    def close(self) -> None:
        """Let go of the model's memory now, not when the garbage collector comes."""
        self._remote.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

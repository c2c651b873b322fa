"""The door to onnxruntime: a model, loaded, that turns feeds into outputs.

In a process of its own, wherever it runs: a graph may kill the process that runs it, ask for more
memory than there is, or never end. See :mod:`graphfix.runtime.remote`.
"""

import os
from collections.abc import Mapping, Sequence

from graphfix.providers.table import Ep
from graphfix.runtime.model_source import Source
from graphfix.runtime.python import runner_for
from graphfix.runtime.remote import RemoteSession

# More would only wait for each other, in the small runs of a verification.
_MOST_THREADS = 4


class Session(RemoteSession):
    """A model loaded in ONNX Runtime.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory, which
            is not changed. Models with external weights are given as a path or in memory.
        ep: The execution provider.
        extra_outputs: Names of inner tensors of the main graph to return besides the outputs.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        free_dims: Sizes for symbolic dims, by name, as ONNX Runtime's free-dimension overrides.
            The session then runs at these sizes only. They need ``optimize``.
        profile: Whether to record what each node does, for :meth:`profile`.
        without: Names of ONNX Runtime's optimizers that are to be left out.

    Raises:
        ModelError: The file cannot be read, ONNX Runtime rejects the model, or dies of it; with
            its reason.
        UsageError: The provider is unavailable; with how to get it.
    """

    def __init__(
        self,
        model: Source,
        *,
        ep: Ep = "cpu",
        extra_outputs: Sequence[str] = (),
        optimize: bool = True,
        free_dims: Mapping[str, int] | None = None,
        profile: bool = False,
        without: Sequence[str] = (),
    ) -> None:
        super().__init__(
            model,
            runner_for(ep),
            optimize=optimize,
            free_dims=free_dims,
            profile=profile,
            without=without,
            extra_outputs=extra_outputs,
            threads=min(_MOST_THREADS, os.cpu_count() or 1) if ep == "cpu" else 0,
            bounded=ep == "cpu",
        )

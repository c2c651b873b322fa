"""Where models run: the execution providers that ``--ep`` names, and whether they are to be had.

All that a verb with ``--ep`` needs, a line each::

    @_options.ep                               # the option; its argument is `ep: Ep`

    from graphfix.measure import Session, places

    places.require(ep)                         # first: exit code 2 and how to get it, if missing
    with Session(model, ep=ep, free_dims={"T": 500}) as session:
        outputs = session.run(feeds, ["logits"])
    print(f"does not run on {places.LABELS[ep]}")

:class:`graphfix.measure.Session` is the one door: it runs the model in this process on the CPU, and
in another one on DirectML and CUDA; the caller sees no difference. A graph that kills that process
is a ``RunError`` of the run, or a ``ModelError`` of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from graphfix.errors import UsageError
from graphfix.measure import runner
from graphfix.measure.runtime import PROVIDERS, available

if TYPE_CHECKING:
    from graphfix.measure.runtime import Ep

    Wanted = Ep | Literal["auto"]

LABELS: dict[Ep, str] = {"cpu": "the CPU", "dml": "DirectML", "cuda": "CUDA"}
"""What a provider is called in a sentence."""


def require(ep: Ep) -> None:
    """Say that a provider is missing before anything is run, not after half of it.

    Raises:
        UsageError: The provider is not to be had; with what to install.
    """
    if ep == "dml" and not runner.native():
        runner.find()
    if ep == "cuda" and PROVIDERS[ep] not in available():
        raise UsageError(
            "CUDA is not to be had here: this ONNX Runtime does not have it. In an environment of "
            "its own, 'pip install onnxruntime-gpu' on a machine with an NVIDIA GPU and CUDA; or "
            "use --ep cpu"
        )


def choose(wanted: Wanted) -> tuple[Ep, str]:
    """The provider to use, and a remark if it is not what a reader would expect.

    ``"auto"`` is DirectML, or the CPU with the reason why it is not DirectML.

    Raises:
        UsageError: A provider is asked for by name, and not to be had.
    """
    if wanted != "auto":
        require(wanted)
        return wanted, ""
    try:
        require("dml")
    except UsageError as error:
        return "cpu", f"on the CPU, not on DirectML: {error}"
    return "dml", ""

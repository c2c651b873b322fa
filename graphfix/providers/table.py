"""The execution providers that ``--ep`` names: what each is called, and what has it.

A provider is a row here. What its kernels take, and where each node of a model runs, stands in the
folder of its name beside this file.
"""

from dataclasses import dataclass
from typing import Literal

Ep = Literal["cpu", "dml", "webgpu", "cuda"]
DeviceEp = Literal["dml", "webgpu"]
"""The providers besides the CPU whose kernels graphfix knows."""


@dataclass(frozen=True)
class Distribution:
    """A package of ONNX Runtime that has a provider.

    Attributes:
        package: Its name for pip.
        version: The version that graphfix knows, or the newest of several.
        extra: The extra of graphfix that installs it, or nothing; a name for ``--ep``, too.
        launcher: The program that make puts into the folder of its provider, or nothing.
    """

    package: str
    version: str
    extra: str = ""
    launcher: str = ""


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        label: What it is called in a sentence.
        ort_name: What ONNX Runtime calls it.
        distributions: The packages that have it; the first is the one to recommend.
        setup: The target of make that sets up other Pythons with it, each started by its
            launcher in ``build/NAME``, or nothing.
        setup_paths: What comes before a path of this machine in that Python.
        profile: What ``-p fast`` stands for where a model is proved on it.
        recompiles: Whether it compiles what it fuses again at another size.
    """

    label: str
    ort_name: str
    distributions: tuple[Distribution, ...]
    setup: str = ""
    setup_paths: str = ""
    profile: str = "fast"
    recompiles: bool = False

    @property
    def key(self) -> str:
        """Return what it is called in data for programs: ``directml``, ``webgpu``."""
        return self.short_label.lower()

    @property
    def short_label(self) -> str:
        """Return the label as a heading has it."""
        return self.label.removeprefix("the ")


PROVIDERS: dict[Ep, Provider] = {
    "cpu": Provider(
        "the CPU",
        "CPUExecutionProvider",
        (Distribution("onnxruntime", "1.32.0"),),
    ),
    "dml": Provider(
        "DirectML",
        "DmlExecutionProvider",
        (
            Distribution("onnxruntime-directml", "1.24.4", "directml", "dml-python"),
            Distribution("onnxruntime-windowsml", "1.30.0", "windowsml", "windowsml-python"),
        ),
        setup="dml",
        setup_paths=r"Z:\host",
        recompiles=True,
    ),
    "webgpu": Provider(
        "WebGPU",
        "WebGpuExecutionProvider",
        (Distribution("onnxruntime-webgpu", "1.27.0", "webgpu", "webgpu-python"),),
        setup="webgpu",
        profile="fast-webgpu",
    ),
    "cuda": Provider(
        "CUDA",
        "CUDAExecutionProvider",
        (Distribution("onnxruntime-gpu", "1.32.0"),),
    ),
}
"""The providers by their name for ``--ep``."""


EVERYWHERE: tuple[Ep, ...] = tuple(PROVIDERS)
"""All of them."""


def predicted_provider(ep: Ep) -> DeviceEp:
    """Return the provider that predictions are about: DirectML unless another known one is used."""
    return "webgpu" if ep == "webgpu" else "dml"


def ep_called(ort_name: str) -> Ep:
    """Return the provider that has a name in ONNX Runtime, by its name for ``--ep``."""
    return next(ep for ep, x in PROVIDERS.items() if x.ort_name == ort_name)


def variable_of(ep: Ep, what: Literal["PYTHON", "PATHS", "HOME", "VERSION"] = "PYTHON") -> str:
    """Return the name of an environment variable about a provider: ``GRAPHFIX_DML_PYTHON``.

    ``PYTHON`` has the command line of a Python that has the provider; ``PATHS`` what comes before a
    path of this machine there; ``HOME`` the folder that make has filled, if not ``build/dml``;
    ``VERSION`` the version that is meant where there are several.
    """
    return f"GRAPHFIX_{ep.upper()}_{what}"

"""The execution providers that models are timed on: those that are there, and why others not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from graphfix.benchmark.timed_process import describe_machine
from graphfix.errors import ModelError, UsageError
from graphfix.files.model_input import require_valid_choices
from graphfix.providers.table import EVERYWHERE, PROVIDERS, Ep
from graphfix.runtime.python import Wanted, choose_provider, runner_for
from graphfix.runtime.run_errors import RunError


@dataclass(frozen=True)
class Places:
    """The providers to time on.

    Attributes:
        about: What each says of itself and of the machine; at least one.
        note: Why the one is not the one that was asked for.
        missing: Those that are unavailable, each with the reason.
    """

    about: dict[Ep, dict[str, str]]
    note: str = ""
    missing: dict[Ep, str] = field(default_factory=dict)


def find_places(wanted: Wanted | Sequence[Ep], tell: Callable[[str], None]) -> Places:
    """Return the providers that are there.

    Raises:
        UsageError: None is; or the only one that was asked for is not.
        ModelError: The only one has no device.
    """
    several = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    if len(several) == 1:
        only = cast("Wanted", several[0])
        require_valid_choices(ep=(only, ("auto", *EVERYWHERE)))
        provider, note = choose_provider(only)
        tell("starting a process")
        return Places({provider: describe_machine(runner_for(provider))}, note)
    about: dict[Ep, dict[str, str]] = {}
    missing: dict[Ep, str] = {}
    for place in dict.fromkeys(several):
        require_valid_choices(ep=(place, EVERYWHERE))
        try:
            tell(f"starting a process on {PROVIDERS[place].label}")
            about[place] = describe_machine(runner_for(place))
        except (UsageError, ModelError, RunError) as error:
            missing[place] = str(error)
    if not about:
        reasons = "; ".join(missing.values()) or "name at least one provider"
        raise UsageError(f"there is no provider to time on: {reasons}")
    return Places(about, missing=missing)

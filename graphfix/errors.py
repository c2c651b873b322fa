"""The exceptions that graphfix raises.

The message of each says what happened, where, and what to do next; the command line prints it
unchanged.
"""

from typing import Any


class GraphfixError(Exception):
    """Base of every error that graphfix raises on purpose."""


class UsageError(GraphfixError):
    """The request itself is wrong: an unknown pass, a bad option, an output equal to the input."""


class ModelError(GraphfixError):
    """A model that cannot be read, written or loaded by ONNX Runtime."""


class FeedError(GraphfixError):
    """Inputs that do not fit the model, or that could not be made for it."""


class PaddingError(GraphfixError):
    """A model in which padding reaches a node that ilens-mask cannot analyse."""


class VerificationError(GraphfixError):
    """A repaired model that does not compute what the original does; nothing is written."""

    def __init__(self, report: Any) -> None:  # noqa: ANN401  (a room above)
        failures = [x for x in (report.verdict, report.padded) if x is not None and not x]
        super().__init__(f"the repaired model was not proved: {failures[0]}")
        self.report = report
        """What was done, and what was found: a :class:`graphfix.Report`."""


class PassError(GraphfixError):
    """A pass that raised in the middle of its work; what it raised is the cause."""

    def __init__(self, spec: str, message: str) -> None:
        super().__init__(message)
        self.spec = spec
        """The pass as ``-p`` takes it."""


class FaultError(GraphfixError):
    """A fault of graphfix itself; what was raised is the cause."""


class PluginError(GraphfixError):
    """A pass from outside graphfix that cannot be used."""

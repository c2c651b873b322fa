"""Time limit of one run of a model."""

import os

SECONDS = "GRAPHFIX_RUN_SECONDS"
"""The environment variable with the longest that one run on the CPU may take."""

_DEFAULT_SECONDS = 120.0


def run_seconds() -> float:
    """Return how long one run may take, in seconds."""
    try:
        return max(float(os.environ[SECONDS]), 0.1)
    except (KeyError, ValueError):
        return _DEFAULT_SECONDS

"""What tests of the command line share: a verb that is called, and what it says."""

import signal

import pytest

from graphfix.cli import main
from graphfix.engine import registry


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of one width, no plugins that other tests have loaded, no handler that stays."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(registry, "_plugins", {})
    # main() sets a handler, and a test is no place to keep one.
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code of a verb, and what it says on stdout and stderr."""
    capsys.readouterr()
    code = main([str(x) for x in arguments])
    out, err = capsys.readouterr()
    return code, out, err

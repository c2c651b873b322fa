"""Meaning of DirectML's errors, their causes, and the rules that find those: ``errors.toml``.

The sources: WIL (microsoft/wil, result_macros.h) for how an exception becomes an HRESULT, ONNX
Runtime for where it is thrown, and runs on onnxruntime-directml 1.24.4 where it says so.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class ErrorCause:
    """A cause of an error.

    Attributes:
        text: What it is.
        source: Where that is known from.
        rules: The passes and rules that find it.
    """

    text: str
    source: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErrorCode:
    """An error that users paste.

    Attributes:
        key: The HRESULT in eight digits, or the telling part of a message.
        title: Its name.
        meaning: What it says, and what it does not say.
        causes: What it has been seen to come from, the commonest first.
        advice: What to do where the graph is not at fault.
        pattern: How it is recognised in a text, if not by its key.
        at_fault: What is at fault if the graph never is: the ``array`` that was fed, or the
            ``system``, which is the GPU, its driver, Windows or a library.
    """

    key: str
    title: str
    meaning: str
    causes: tuple[ErrorCause, ...]
    advice: str = ""
    pattern: str = ""
    at_fault: str = ""


def _load_codes() -> tuple[ErrorCode, ...]:
    text = (
        resources.files("graphfix.providers.directml")
        .joinpath("errors.toml")
        .read_text(encoding="utf-8")
    )
    data = tomllib.loads(text)
    causes = {
        name: ErrorCause(x["text"], x["source"], tuple(x.get("rules", ())))
        for name, x in data["causes"].items()
    }
    return tuple(
        ErrorCode(**{**error, "causes": tuple(causes[name] for name in error["causes"])})
        for error in data["error"]
    )


CODES = _load_codes()
"""Every error that is known, in the order of ``errors.toml``."""

_HEX = re.compile(r"(?<![0-9a-f])(?:0x)?([0-9a-f]{8})(?![0-9a-f])", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<![\w.])(-\d{9,10}|\d{10})(?![\w.])")
_NODE = re.compile(r"(?:Name:|node |node_?name:? ?)['\"]([^'\"]+)['\"]", re.IGNORECASE)


def find_code(text: str) -> ErrorCode | None:
    """Find the error that a text is or holds: a code in hex or decimal, or a pasted message.

    Example: ``8007023e``, ``0x80070057``, ``-2147024809``, or the whole line of a log.
    """
    code_by_key = {code.key: code for code in CODES}
    numbers = [x.upper() for x in _HEX.findall(text)]
    numbers += [f"{int(x) & 0xFFFFFFFF:08X}" for x in _DECIMAL.findall(text)]
    matches = [code_by_key[number] for number in numbers if number in code_by_key]
    matches += (x for x in CODES if re.search(x.pattern or re.escape(x.title), text, re.IGNORECASE))
    return next(iter(matches), None)


def is_error_text(text: str) -> bool:
    """Return whether a text is a code, known or not, or a printed line: no name has spaces."""
    stripped = text.strip()
    return bool(_HEX.fullmatch(stripped) or _DECIMAL.fullmatch(stripped) or " " in stripped)


def node_named_in(text: str) -> str | None:
    """Return the name of the node that a pasted message names, or None."""
    match = _NODE.search(text)
    return match[1] if match else None

"""What DirectML's errors mean, what they come from, and what finds it: ``errors.toml``.

The sources: WIL (microsoft/wil, result_macros.h) for how an exception becomes an HRESULT, ONNX
Runtime for where it is thrown, and runs on onnxruntime-directml 1.24.4 where it says so.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Cause:
    """Something that an error comes from.

    Attributes:
        text: What it is.
        source: Where that is known from.
        rules: The passes and rules that find it.
    """

    text: str
    source: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """An error that users paste.

    Attributes:
        key: The HRESULT in eight digits, or the telling part of a message.
        title: Its name.
        meaning: What it says, and what it does not say.
        causes: What it has been seen to come from, the commonest first.
        advice: What to do where the graph is not at fault.
        pattern: How it is told in a text, if not by its key.
    """

    key: str
    title: str
    meaning: str
    causes: tuple[Cause, ...]
    advice: str = ""
    pattern: str = ""


def _read() -> tuple[Code, ...]:
    text = resources.files("graphfix.directml").joinpath("errors.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    causes = {
        name: Cause(x["text"], x["source"], tuple(x.get("rules", ())))
        for name, x in data["causes"].items()
    }
    return tuple(
        Code(**{**error, "causes": tuple(causes[name] for name in error["causes"])})
        for error in data["error"]
    )


CODES = _read()
"""Every error that is known, in the order of ``errors.toml``."""

_HEX = re.compile(r"(?<![0-9a-f])(?:0x)?([0-9a-f]{8})(?![0-9a-f])", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<![\w.])(-\d{9,10}|\d{10})(?![\w.])")
_NODE = re.compile(r"(?:Name:|node |node_?name:? ?)['\"]([^'\"]+)['\"]", re.IGNORECASE)


def find(text: str) -> Code | None:
    """The error that a text is or holds: a code in hex or as a number, or a pasted message.

    Example: ``8007023e``, ``0x80070057``, ``-2147024809``, or the whole line of a log.
    """
    known = {code.key: code for code in CODES}
    numbers = [x.upper() for x in _HEX.findall(text)]
    numbers += [f"{int(x) & 0xFFFFFFFF:08X}" for x in _DECIMAL.findall(text)]
    told = [known[number] for number in numbers if number in known]
    told += (x for x in CODES if re.search(x.pattern or re.escape(x.title), text, re.IGNORECASE))
    return next(iter(told), None)


def is_number(text: str) -> bool:
    """Whether a text is nothing but a code, known or not."""
    return bool(_HEX.fullmatch(text.strip()) or _DECIMAL.fullmatch(text.strip()))


def node_in(text: str) -> str | None:
    """The name of the node that a pasted message names, if it does."""
    found = _NODE.search(text)
    return found[1] if found else None

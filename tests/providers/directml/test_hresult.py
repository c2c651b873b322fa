"""Codes of DirectML's errors in pasted texts."""

from __future__ import annotations

import pytest

from graphfix.providers.directml.hresult import CODES, find_code, is_error_text, node_named_in


@pytest.mark.parametrize(
    "text",
    [
        "80070057",
        "0x80070057",
        "-2147024809",
        "2147942487",
        "hr: 0X80070057, at line 12",
        "ffffffff and then 80070057",
    ],
)
def test_a_code_in_hex_or_decimal(text: str) -> None:
    code = find_code(text)
    assert code is not None
    assert code.key == "80070057"


def test_what_is_no_known_code() -> None:
    assert find_code("a8007005") is None
    assert find_code("180070057") is None
    assert find_code("nothing") is None


def test_each_code_is_found_by_itself() -> None:
    for code in CODES:
        assert code.causes
        assert all(cause.text and cause.source for cause in code.causes)
        assert code.pattern or find_code(code.title) is code
        if len(code.key) == 8 and is_error_text(code.key):
            assert find_code(code.key) is code


def test_each_code_has_a_way_on() -> None:
    for code in CODES:
        assert code.advice or any(cause.rules for cause in code.causes)
        assert code.at_fault in ("", "array", "system")
        assert not (code.at_fault and any(cause.rules for cause in code.causes))


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("80070057", True),
        (" 0x12345678 ", True),
        ("-2147024809", True),
        ("80070057 at", True),
        ("Failed to find a thing", True),
        ("word", False),
    ],
)
def test_a_text_that_is_no_name(text: str, *, alone: bool) -> None:
    assert is_error_text(text) is alone


def test_the_node_that_a_message_names() -> None:
    assert node_named_in("while running Conv node. Name:'/net/Conv' Status") == "/net/Conv"
    assert node_named_in('node "a b" failed') == "a b"
    assert node_named_in("node_name: 'x'") == "x"
    assert node_named_in("no name") is None

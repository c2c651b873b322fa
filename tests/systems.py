"""What there is only on some systems."""

from __future__ import annotations

import ctypes
import sys


def wine() -> bool:
    """Whether this Windows is Wine."""
    return sys.platform == "win32" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")

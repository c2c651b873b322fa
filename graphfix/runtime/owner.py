"""Whether a file or a folder belongs to who runs this process.

On Windows a folder belongs to a user or, where an administrator has made it, to their group: both
are in the token of a process.

https://learn.microsoft.com/windows/win32/secauthz/access-tokens
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    import ctypes
    from ctypes import byref, c_void_p, wintypes

    _FILE, _OWNER = 1, 1  # SE_FILE_OBJECT, OWNER_SECURITY_INFORMATION
    _QUERY = 8  # TOKEN_QUERY
    _USER, _MAKES = 1, 4  # TokenUser, and TokenOwner, whose is what the process makes

    _security = ctypes.WinDLL("advapi32")
    _kernel = ctypes.WinDLL("kernel32")
    _security.GetNamedSecurityInfoW.argtypes = (
        *(ctypes.c_wchar_p, wintypes.INT, wintypes.DWORD),
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    )
    _security.OpenProcessToken.argtypes = (c_void_p, wintypes.DWORD, c_void_p)
    _security.GetTokenInformation.argtypes = (
        *(c_void_p, wintypes.INT),
        *(c_void_p, wintypes.DWORD, c_void_p),
    )
    _security.EqualSid.argtypes = (c_void_p, c_void_p)
    _kernel.GetCurrentProcess.restype = c_void_p
    _kernel.CloseHandle.argtypes = _kernel.LocalFree.argtypes = (c_void_p,)
    _kernel.LocalFree.restype = c_void_p

    def _is_mine(path: Path) -> bool:
        owner, descriptor, token = c_void_p(), c_void_p(), c_void_p()
        failed = _security.GetNamedSecurityInfoW(
            str(path), _FILE, _OWNER, byref(owner), None, None, None, byref(descriptor)
        )
        try:
            if failed or not owner.value:
                return False
            if not _security.OpenProcessToken(_kernel.GetCurrentProcess(), _QUERY, byref(token)):
                return False
            return any(_is(token, kind, owner) for kind in (_USER, _MAKES))
        finally:
            _kernel.LocalFree(descriptor)
            if token.value:
                _kernel.CloseHandle(token)

    def _is(token: c_void_p, kind: int, owner: c_void_p) -> bool:
        """Whether the first thing that a token says of a kind is that user or group."""
        room = ctypes.create_string_buffer(256)  # a pointer to it is first, and it is behind
        used = wintypes.DWORD()
        if not _security.GetTokenInformation(token, kind, room, len(room), byref(used)):
            return False
        return bool(_security.EqualSid(c_void_p.from_buffer(room), owner))


def is_mine(path: Path) -> bool:
    """Whether this user has made it; not where no file belongs to anybody, as on FAT."""
    if sys.platform == "win32":
        return _is_mine(path)
    return path.lstat().st_uid == os.getuid()

"""What ``providers="auto"`` has measured on this machine, remembered for the next session.

It lies in the user's cache folder and not in the shipped one: that may be read-only, its files are
those of its manifest, and it is copied to other machines, where other providers are faster. Each
key has a file of its own, written whole, so that two processes at once do no harm. What cannot be
read, or is of something else, is measured again and is no error.
"""

import contextlib
import hashlib
import json
import math
import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime import SessionOptions

from graphfix.paths import user_cache_folder
from graphfix.shipped.manifest import Manifest
from graphfix.shipped.provider_choice import ProviderChoice

_SCHEMA = 1
_MOST_BYTES = 1 << 16
_NO_FILE = (OSError, RuntimeError)
"""What is raised where there is no home, or nothing can be read or written there."""


def key_of(
    manifest: Manifest, providers: Sequence[str], options: SessionOptions | None, *, share: bool
) -> dict[str, Any]:
    """Return all that a choice depends on: the folder's content, the versions and the devices.

    Args:
        manifest: The manifest, which has the hash of each file.
        providers: The providers that this ONNX Runtime has.
        options: What the user set for every session.
        share: Whether the sessions share the memory of their weights.
    """
    settings = options or SessionOptions()
    return {
        "schema": _SCHEMA,
        "folder": hashlib.sha256(manifest.to_text().encode()).hexdigest(),
        "onnxruntime": onnxruntime.__version__,
        "processor": f"{os.cpu_count()} x {platform.processor() or platform.machine()}",
        "devices": _devices_by_provider(providers),
        "threads": settings.intra_op_num_threads,
        "optimizations": settings.graph_optimization_level.name,
        "share": share,
    }


def load_choice(key: Mapping[str, Any]) -> ProviderChoice | None:
    """Return the choice that was remembered for a key; None if there is none, or no good one."""
    try:
        with _file_of(key).open("rb") as file:
            stored = json.loads(file.read(_MOST_BYTES))
        if stored["key"] != key:
            return None
        choice = ProviderChoice(**stored["choice"])
        good = (
            choice.provider in key["devices"]
            and all(math.isfinite(x) and x > 0 for x in choice.seconds.values())
            and all(isinstance(x, str) for x in (*choice.reasons.values(), choice.container))
            and {*choice.seconds, *choice.reasons} == key["devices"].keys()
        )
    except (*_NO_FILE, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return replace(choice, failed=(), remembered=True) if good else None


def save_choice(key: Mapping[str, Any], choice: ProviderChoice) -> None:
    """Remember a choice; without a place for it, the next session measures again.

    So it does after a failure, which may be of this moment.
    """
    if choice.failed:
        return
    text = json.dumps({"key": key, "choice": asdict(choice)}, indent=2) + "\n"
    with contextlib.suppress(*_NO_FILE):
        target = _file_of(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(target)  # fails on Windows while another process reads it
        finally:
            draft.unlink(missing_ok=True)


def _file_of(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return user_cache_folder() / f"fastest-{digest[:32]}.json"


def _devices_by_provider(providers: Sequence[str]) -> dict[str, list[str]]:
    """Return the devices of each provider, as ONNX Runtime describes them; [] if it says none."""
    devices: dict[str, list[str]] = {x: [] for x in providers}
    with contextlib.suppress(Exception):  # older versions do not have it, or no driver answers
        for x in onnxruntime.get_ep_devices():
            if x.ep_name in devices:
                hardware = x.device
                name = hardware.metadata.get("Description") or hardware.vendor
                devices[x.ep_name].append(f"{name} {hardware.vendor_id}:{hardware.device_id}")
    return {name: sorted(found) for name, found in devices.items()}

"""Prints the Vulkan devices of this machine, by name and driver, a line each.

Under Wine DirectML runs on one of them, and Wine's DXGI shows it under the name of some well-known
card. For the Windows Python of ``make dml``, so only the standard library is used.

https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#vkGetPhysicalDeviceProperties2
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_char, c_uint32, c_void_p

_APPLICATION_INFO, _INSTANCE_CREATE_INFO = 0, 1
_PROPERTIES_2, _DRIVER_PROPERTIES = 1000059001, 1000196000
_API_1_2 = 1 << 22 | 2 << 12
_NAME = 20  # where VkPhysicalDeviceProperties has deviceName


class _Application(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("next", c_void_p),
        ("name", c_void_p),
        ("version", c_uint32),
        ("engine", c_void_p),
        ("engine_version", c_uint32),
        ("api", c_uint32),
    )


class _Create(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("application", c_void_p),
        ("layers", c_uint32),
        ("layer_names", c_void_p),
        ("extensions", c_uint32),
        ("extension_names", c_void_p),
    )


class _Driver(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("next", c_void_p),
        ("id", c_uint32),
        ("name", c_char * 256),
        ("info", c_char * 256),
        ("conformance", c_uint32),
    )


class _Properties(ctypes.Structure):
    # VkPhysicalDeviceProperties has 824 bytes; newer headers may have added to it.
    _fields_ = (("kind", c_uint32), ("next", c_void_p), ("raw", c_char * 4096))


def devices() -> list[dict[str, str]]:
    """Each device's name, and its driver with its version; in Vulkan's order.

    Raises:
        OSError: There is no Vulkan here, or it has no driver.
    """
    vulkan = ctypes.CDLL("vulkan-1.dll" if sys.platform == "win32" else "libvulkan.so.1")
    application = _Application(kind=_APPLICATION_INFO, api=_API_1_2)
    create = _Create(kind=_INSTANCE_CREATE_INFO, application=ctypes.addressof(application))
    instance = c_void_p()
    if result := vulkan.vkCreateInstance(byref(create), None, byref(instance)):
        raise OSError(f"Vulkan makes no instance: {result}")
    try:
        count = c_uint32()
        vulkan.vkEnumeratePhysicalDevices(instance, byref(count), None)
        handles = (c_void_p * count.value)()
        vulkan.vkEnumeratePhysicalDevices(instance, byref(count), handles)
        return [_described(vulkan, c_void_p(handle)) for handle in handles]
    finally:
        vulkan.vkDestroyInstance(instance, None)


def _described(vulkan: ctypes.CDLL, handle: c_void_p) -> dict[str, str]:
    driver = _Driver(kind=_DRIVER_PROPERTIES)
    properties = _Properties(kind=_PROPERTIES_2, next=ctypes.addressof(driver))
    vulkan.vkGetPhysicalDeviceProperties2(handle, byref(properties))
    at = ctypes.addressof(properties) + _Properties.raw.offset + _NAME
    name = ctypes.string_at(at).decode("utf-8", "replace")
    said = (x.decode("utf-8", "replace") for x in (driver.name, driver.info) if x)
    return {"name": name, "driver": " ".join(said)}


if __name__ == "__main__":
    for one in devices():
        print(f"{one['name']}, {one['driver']}")

#!/usr/bin/env bash
# What `make webgpu` does: a Python whose ONNX Runtime has the WebGPU provider, in build/webgpu.
#
# It is a virtual environment with onnxruntime-webgpu. Where this machine's own Vulkan driver opens a
# device, it runs on that; else on Mesa's software driver of Debian 13 (that of Debian 12 is too old
# for Dawn), which is unpacked beside it, with the libraries that it needs, and installed nowhere. For
# that it needs root, on Debian x86-64; a minute and 1 GB. A second run does only what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${1:-${GRAPHFIX_WEBGPU_HOME:-$here/../build/webgpu}}
version=1.27.0
# shellcheck source=../dml/debian.sh
. "$here/../dml/debian.sh" webgpu

mkdir -p "$home"
home=$(cd "$home" && pwd)
launcher=$home/webgpu-python

python=$home/venv/bin/python
if [ "$("$python" -c 'import onnxruntime as o; print(o.__version__)' 2>/dev/null)" != "$version" ]; then
  "${PYTHON:-python3}" -m venv --clear "$home/venv"
  "$python" -m pip install --quiet --disable-pip-version-check "onnxruntime-webgpu==$version" numpy
fi
say "onnxruntime-webgpu $version is there"

# Writes the launcher, and succeeds if a model runs on a device that it opens.
try() {
  cat >"$launcher"
  chmod 755 "$launcher"
  "$launcher" "$here/try_device.py" </dev/null >"$home/check.log" 2>&1
}

if try <<WRAPPER; then
#!/bin/sh
exec "$python" "\$@"
WRAPPER
  say "WebGPU runs on this machine's Vulkan driver"
else
  root=$home/root
  lib=$root/usr/lib/x86_64-linux-gnu
  if [ ! -e "$home/root.done" ]; then
    why="no Vulkan driver of this machine is new enough, and Mesa's software one"
    rm -f "$launcher"
    [ "$(id -u)" = 0 ] || die "$why needs root to unpack; run it with sudo"
    [ "$(uname -m)" = x86_64 ] || die "$why is unpacked for x86-64 only"
    find_mirror
    install_programs mmdebstrap
    rm -rf "$root"
    mmdebstrap --quiet --variant=extract --include=mesa-vulkan-drivers,libvulkan1,libstdc++6 \
      --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$root" "$mirror"
    touch "$home/root.done"
  fi
  say "Mesa's software driver is there"
  printf '{"file_format_version": "1.0.1", "ICD": {"api_version": "1.4.0", "library_path": "%s"}}' \
    "$lib/libvulkan_lvp.so" >"$home/lvp_icd.json"
  try <<WRAPPER || { rm -f "$launcher"; tail -n 3 "$home/check.log" >&2; die "it opens no device; see $home/check.log"; }
#!/bin/sh
# The driver needs the C library that it was built with: so does the Python that loads it.
export VK_DRIVER_FILES="$home/lvp_icd.json" VK_ICD_FILENAMES="$home/lvp_icd.json"
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib:/lib/x86_64-linux-gnu:/usr/lib64" "$python" "\$@"
WRAPPER
  say "WebGPU runs on Mesa's software driver: right for what runs and what comes out, not a clock"
fi
echo "WebGPU is ready. graphfix finds it in build/webgpu; from elsewhere:"
printf "  export GRAPHFIX_WEBGPU_PYTHON='%s'\n" "$launcher"

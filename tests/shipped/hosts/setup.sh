#!/usr/bin/env bash
# What `make hosts` does: what the tests of docs/hosts need besides Node and g++, in a folder.
#
# ONNX Runtime's packages of npm, and the headers of ONNX Runtime and of nlohmann/json as Debian 13
# has them. Nothing is installed. A second run does only what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${1:-$here/../../../build/hosts}
version=1.30.0
suite=trixie
mkdir -p "$home"
home=$(cd "$home" && pwd)

# Its install script would look for CUDA on the network.
if [ ! -e "$home/node_modules/onnxruntime-node" ]; then
  (cd "$home" && npm install --silent --no-save --ignore-scripts --no-audit --no-fund \
    --prefix "$home" "onnxruntime-node@$version" "onnxruntime-web@$version")
fi

if [ ! -e "$home/usr/include/nlohmann/json.hpp" ]; then
  # The mirror that this machine itself takes its packages from, with lists of our own.
  # shellcheck disable=SC2016  # apt expands it
  mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | head -n 1)}
  [ -n "$mirror" ] || { echo "make hosts: apt knows no Debian mirror; name one in MIRROR" >&2; exit 1; }
  apt=$home/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/list"
  ask=(apt-get -q -o Dir::Etc::sourcelist="$apt/list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State="$apt" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache"
    -o APT::Sandbox::User=root)
  "${ask[@]}" update >"$apt/log"
  (cd "$apt" && "${ask[@]}" download libonnxruntime-dev nlohmann-json3-dev >>log)
  for package in "$apt"/*.deb; do dpkg-deb -x "$package" "$home"; done
  rm -rf "$apt"
fi
echo "what the hosts need is in $home"

#!/usr/bin/env bash
# What `make hosts` does: what the tests of docs/hosts need besides Node and g++, in a folder.
#
# ONNX Runtime's packages of npm, and the headers of ONNX Runtime and of nlohmann/json as Debian 13
# has them. Nothing is installed. A second run does only what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${1:-$here/../../../build/hosts}
version=1.30.0
# shellcheck source=../../../dml/debian.sh
. "$here/../../../dml/debian.sh" hosts
mkdir -p "$home"
home=$(cd "$home" && pwd)

# Its install script would look for CUDA on the network.
if [ ! -e "$home/node_modules/onnxruntime-node" ]; then
  (cd "$home" && npm install --silent --no-save --ignore-scripts --no-audit --no-fund \
    --prefix "$home" "onnxruntime-node@$version" "onnxruntime-web@$version")
fi

if [ ! -e "$home/usr/include/nlohmann/json.hpp" ]; then
  find_mirror
  apt=$home/apt # lists of our own
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

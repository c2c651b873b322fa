# shellcheck shell=bash
# What it takes to set something up from Debian's packages, for those that source this: . debian.sh
# TARGET, with the target of make that it is for.

target=$1
# shellcheck disable=SC2034  # for those that source this
suite=trixie

say() { echo "[$SECONDS s] $*"; }
die() {
  echo "make $target: $*" >&2
  exit 1
}

# Sets "mirror", the one that this machine itself takes its packages from.
find_mirror() {
  command -v apt-get >/dev/null || die "needs Debian's apt-get"
  # shellcheck disable=SC2016  # apt expands it
  mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | head -n 1)} || true
  [ -n "$mirror" ] || die "apt knows no Debian mirror; run apt-get update, or name one in MIRROR"
}

# Installs programs, of the packages of their names, if one of them lacks.
install_programs() {
  local name
  for name; do
    command -v "$name" >/dev/null && continue
    { apt-get update -q && apt-get install -y -q "$@"; } >/dev/null || die "apt-get installs no $name"
  done
}

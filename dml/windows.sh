#!/usr/bin/env bash
# What `make windows` does: graphfix's own tests, natively, in the Windows Python of `make dml`.
#
# windows.sh [--setup] [PYTEST ARGUMENTS...]. Beside the Python that runs models for Linux, the root
# gets another: a whole one, with graphfix editable from this checkout and what its tests need. The
# wheels are chosen and fetched on this side; inside Wine nothing needs a network. UV is the uv that
# does so: pip would read the markers (colorama, onnxruntime-directml) as Linux reads them.
# A second run installs only what pyproject.toml changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(dirname "$here")
home=${GRAPHFIX_DML_HOME:-$checkout/build/dml}
uv=${UV:-uv}

say() { echo "[$SECONDS s] $*"; }
die() {
  echo "make windows: $*" >&2
  exit 1
}

[ -x "$home/dml-python" ] || die "there is no Windows Python in $home; run 'make dml' first (as root)"
[ "$(id -u)" = 0 ] || die "needs root, for chroot and mount; run it with sudo"
home=$(cd "$home" && pwd)
work=$home/opt/dml
for script in in-wine in-root; do # as this checkout has them; another run may be using them
  cmp -s "$here/$script" "$work/$script" || install -m 755 "$here/$script" "$work/"
done

python=$work/windows
site=$python/Lib/site-packages
cat >"$home/windows-python" <<WRAPPER
#!/bin/sh
# The Windows Python that has graphfix, in the current folder: -m graphfix, -m pytest, ...
export IN_WINE_PYTHON=windows/python.exe IN_WINE_FOLDER="/host\$PWD"
exec "$work/in-root" "$home" /opt/dml/in-wine "\$@"
WRAPPER
chmod 755 "$home/windows-python"

exec 9>"$work/windows.lock" # one at a time
flock 9
stamp=$(cat "$checkout/pyproject.toml" "$here/windows.sh" <(echo "$checkout") | sha256sum)
if [ "$stamp" != "$(cat "$python/done" 2>/dev/null)" ]; then
  rm -rf "$python"
  cp -r "$work/cp312" "$python"
  rm "$python"/python312._pth # with it there are no site-packages, no PYTHON... and no current folder
  mkdir -p "$site"
  # numpy 2.0.2 is the newest that Wine 10 loads, as in setup.sh.
  (cd "$checkout" && UV_NATIVE_TLS=${UV_NATIVE_TLS:-1} "$uv" pip install --quiet --no-python-downloads \
    --python-platform windows --python-version 3.12 --only-binary :all: --target "$site" \
    --requirements pyproject.toml --group test pip setuptools \
    --constraints <(echo numpy==2.0.2))
  say "the wheels for Windows are there"
  (cd "$checkout" && PYTHONWARNINGS=ignore "$home/windows-python" -m pip install --quiet --no-index --no-deps \
    --no-build-isolation --no-warn-script-location --editable . </dev/null)
  echo "$stamp" >"$python/done"
fi
exec 9>&-
say "graphfix is installed in the Windows Python"
[ "${1:-}" != --setup ] || exit 0

# Another code page comes with another locale, which must be there: IN_WINE_LANG=ja_JP.UTF-8.
lang=${IN_WINE_LANG:-C.UTF-8}
locale=$home/usr/lib/locale/${lang%%.*}.utf8
if [ ! -d "$locale" ] && [ "$lang" != C.UTF-8 ]; then
  localedef --prefix="$home" --no-archive -i "${lang%%.*}" -f UTF-8 "${lang%%.*}.utf8" 2>/dev/null ||
    die "IN_WINE_LANG=$lang: no such locale; on Debian, apt-get install locales has them all"
fi

cd "$checkout"
# Its caches are its own, too. In a process beside: one test that hangs or kills it costs no other.
"$home/windows-python" -m pytest -q -o cache_dir=build/windows \
  -n "${WORKERS:-1}" --dist loadgroup --max-worker-restart 50 \
  -o faulthandler_timeout="${TEST_SECONDS:-900}" -o faulthandler_exit_on_timeout=true "$@" </dev/null

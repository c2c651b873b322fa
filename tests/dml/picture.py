"""Pictures of the top of ``build/zoo/index.html``, light and dark, by Chromium.

They show what another run gives again: crashes, differences, nodes. Times are left out, for those
of one machine hold for no other.

Run as ``python tests/dml/picture.py``, after ``make zoo EP=dml``; they lie beside the page.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = {"zoo.png": 1, "zoo-dark.png": 0}  # Chromium's numbers for light and dark
SIZE = "1180,720"
WITHOUT_TIMES = """<style>[data-figure="ratio"], [data-of="ratio"] { display: none }</style>"""


def without_times(page: str) -> str:
    """The page with its column of times hidden."""
    head, end, rest = page.partition("</head>")
    return f"{head}{WITHOUT_TIMES}{end}{rest}"


def main(page: Path) -> int:
    """Take both; 2 if there is no page, or no browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((x for x in names if shutil.which(x)), None)
    if browser is None or not page.is_file():
        print("no Chromium here" if browser is None else f"no {page}", file=sys.stderr)
        return 2
    for name, scheme in PICTURES.items():
        with tempfile.TemporaryDirectory() as profile:
            shown = Path(profile) / "zoo.html"
            shown.write_text(without_times(page.read_text(encoding="utf-8")), encoding="utf-8")
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            command += ["--disable-background-networking", f"--user-data-dir={profile}"]
            command += [f"--blink-settings=preferredColorScheme={scheme}"]
            command += [f"--window-size={SIZE}", f"--screenshot={page.with_name(name)}"]
            subprocess.run([*command, shown.as_uri()], check=True, capture_output=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(ROOT / "build" / "zoo" / "index.html"))

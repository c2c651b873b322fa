"""What a browser makes of pages: at three widths, in light and in dark, with all of it unfolded."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BROWSER = next(
    (x for x in ("chromium", "chromium-browser", "google-chrome") if shutil.which(x)), ""
)
needed = pytest.mark.skipif(not BROWSER, reason="there is no Chromium here")
WIDTHS = (420, 800, 1400)
LEAST = 11  # pixels of a letter
_FRAME = '<iframe data-page="{name}" style="border:0;width:{width}px;height:900px" srcdoc="{text}">'
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>:root { color-scheme: light dark }</style>
FRAMES
<script>
onload = () => {
  const faults = [], dark = matchMedia("(prefers-color-scheme: dark)").matches;
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const name = frame.dataset.page + " at " + root.clientWidth;
    page.querySelectorAll("details").forEach(x => x.open = true);
    if (root.scrollWidth > root.clientWidth) faults.push(name + ": " + root.scrollWidth + " wide");
    if (frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches != dark)
      faults.push(name + ": another colour scheme");
    for (const x of page.body.querySelectorAll("*")) {
      const own = [...x.childNodes].some(y => y.nodeType == 3 && y.data.trim());
      const size = parseFloat(getComputedStyle(x).fontSize);
      if (own && x.localName != "script" && size < LEAST)
        faults.push(name + ": " + size + " px: " + x.textContent.slice(0, 40));
    }
  }
  const said = document.createElement("pre");
  said.id = "faults";
  said.textContent = JSON.stringify([dark, faults]);
  document.body.append(said);
};
</script>"""


def dumped(page: Path, *more: str) -> tuple[str, str]:
    """The document that the browser has in the end, and what it says on its console."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *more]
    command += ["--disable-background-networking", "--enable-logging=stderr", "--v=0"]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def faults(pages: Mapping[str, str], folder: Path) -> list[str]:
    """What overflows to the side, letters that are too small, and what the console says."""
    frames = (
        _FRAME.format(name=name, width=width, text=html.escape(text)) + "</iframe>"
        for name, text in pages.items()
        for width in WIDTHS
    )
    path = folder / "frames.html"
    text = _PAGE.replace("FRAMES", "\n".join(frames)).replace("LEAST", str(LEAST))
    path.write_text(text, encoding="utf-8")
    found = []
    for scheme in (0, 1):
        shown, said = dumped(path, f"--blink-settings=preferredColorScheme={scheme}")
        seen = re.search(r'<pre id="faults">(.*?)</pre>', shown, re.DOTALL)
        assert seen, said
        dark, here = json.loads(html.unescape(seen[1]))
        assert dark == (scheme == 0)
        found += [f"{'dark' if dark else 'light'}: {x}" for x in here]
        found += [x for x in said.splitlines() if "CONSOLE" in x]
    return found

"""The site: README, docs/ and passes/README.md, as they are on GitHub; ``make site``.

The pages are plain Markdown. What a site needs besides is added here while it is read: the contents
at the side, and a picture for light and one for dark.
"""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.ext import napoleon

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "graphfix"
author = "the authors of graphfix"
version = release = runpy.run_path(str(ROOT / "graphfix/version.py"))["__version__"]
html_title = f"{project} {version}"

CONTENTS = {
    "Learn": ("docs/tutorial",),
    "How to": (
        "docs/repair",
        "docs/fast",
        "docs/float16",
        "docs/ship",
        "docs/decoders",
        "docs/hosts",
        "docs/padding",
        "docs/models",
        "docs/troubleshooting",
        "docs/reduce",
        "docs/check",
        "docs/directml",
        "docs/providers",
        "docs/bench",
        "docs/zoo",
        "docs/library",
        "docs/integrations",
        "docs/repository",
        "docs/own-pass",
    ),
    "Look up": (
        "passes/README",
        "docs/rules",
        "docs/api",
        "docs/glossary",
        "docs/stability",
        "CHANGELOG",
    ),
    "Understand": (
        "docs/verification",
        "docs/verification-mutants",
        "docs/compare",
        "docs/conformance",
        "docs/benchmarks",
        "docs/contributing",
    ),
}

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [f"{root_doc}.md", *(f"{x}.md" for names in CONTENTS.values() for x in names)]
# Sphinx goes through all folders, and the root that make dml makes leads back to /.
exclude_patterns = ["build", ".*"]
# What GitHub makes of a page: anchors at headings, and links to files that are no pages.
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]

# docs/api.md lists the names; their docstrings are in Google's style.
autodoc_mock_imports = ["olive"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
# A docstring of a property such as "How many: 2 errors" is a sentence, not a type and a sentence.
napoleon.GoogleDocstring._parse_attribute_docstring = lambda _: []
# A docstring also names what is no page: other packages, and types that nobody has to import.
suppress_warnings = ["ref.python"]  # two functions have an Options each
nitpick_ignore_regex = [(r"py:.*", r".*")]

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "start.html"}
templates_path = ["_templates"]
highlight_language = "text"

_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)">\s*</picture>'
)


_NAME = re.compile(r"^- `(?P<path>graphfix[.\w]+)`: .*$", re.MULTILINE)


def _documented(found: re.Match[str]) -> str:
    """The directive that shows the docstring of a name."""
    module, _, name = found["path"].rpartition(".")
    if module == "graphfix.integrations.olive":  # which is not installed here
        is_class = name[0].isupper()
    else:
        is_class = isinstance(getattr(importlib.import_module(module), name), type)
    directive = "autoclass" if is_class else "autofunction"
    members = "\n   :members:" if is_class else ""
    return f"\n```{{eval-rst}}\n.. {directive}:: {found['path']}{members}\n```\n"


def _for_the_site(_app: Sphinx, name: str, source: list[str]) -> None:
    if name == "docs/api":
        source[0] = _NAME.sub(_documented, source[0])
    if name != root_doc:
        return
    text, pictures = _PICTURE.subn(
        r"![\g<alt>](\g<light>){.only-light}\n![\g<alt>](\g<dark>){.only-dark}", source[0]
    )
    if not pictures:
        raise ValueError("README.md has no <picture> as conf.py expects it")
    trees = (
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in CONTENTS.items()
    )
    source[0] = text + "\n" + "\n".join(trees)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _for_the_site)

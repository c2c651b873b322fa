"""Findings as SARIF 2.1.0, which code scanners and editors read.

The standard: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0"; GitHub's
code scanning asks for more (docs.github.com, "SARIF support for code scanning"). A node of a graph
is no line of a text, so places are logical locations; who insists on a line gets the first.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from graphfix.core import Finding
from graphfix.version import __version__

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# A page that a viewer can open; the rule itself is explained by the command in its help.
_HELP = "https://onnxruntime.ai/docs/execution-providers/"


def sarif_document(
    findings_by_file: Mapping[str, Sequence[Finding]], about: Mapping[str, str]
) -> dict[str, object]:
    """Return a SARIF log of one run.

    Args:
        findings_by_file: The findings, by the model's file.
        about: For each pass and rule that was asked, its summary.
    """
    every = [x for findings in findings_by_file.values() for x in findings]
    names = list(dict.fromkeys([*about, *(x.rule for x in every)]))
    rules = [_rule_entry(name, about.get(name, name)) for name in names]
    driver = {"name": "graphfix", "semanticVersion": __version__, "rules": rules}
    results = [y for x in findings_by_file.items() for y in _result_entries(*x, names)]
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule_entry(name: str, summary: str) -> dict[str, object]:
    return {
        "id": name,
        "shortDescription": {"text": summary},
        "fullDescription": {"text": f"{summary} graphfix explain {name} says why."},
        "help": {"text": f"graphfix explain {name}"},
        "helpUri": _HELP,
    }


def _result_entries(
    source: str, findings: Iterable[Finding], names: Sequence[str]
) -> Iterable[dict[str, object]]:
    file = {"artifactLocation": {"uri": _file_uri(source)}, "region": {"startLine": 1}}
    for finding in findings:
        fix = f" Repair with: graphfix run -p {finding.fix}" if finding.fix is not None else ""
        logical = {"name": finding.at, "kind": "node"}
        if finding.module:
            logical["fullyQualifiedName"] = f"{finding.module}::{finding.at}"
        key = f"{finding.rule}\n{finding.at}\n{finding.message}".encode()
        digest = hashlib.sha256(key).hexdigest()
        yield {
            "ruleId": finding.rule,
            "ruleIndex": names.index(finding.rule),
            "level": finding.severity,
            "message": {"text": f"{finding.message}.{fix}"},
            "locations": [{"physicalLocation": file, "logicalLocations": [logical]}],
            # The one fingerprint that code scanning reads; without it, it hashes the line.
            "partialFingerprints": {"primaryLocationLineHash": digest[:32]},
        }


def _file_uri(source: str) -> str:
    """Return a path as a URI: relative to the current folder if below it, or absolute."""
    path = Path(source)
    if path.is_absolute():
        try:
            path = path.relative_to(Path.cwd())
        except (ValueError, OSError):  # elsewhere; or where graphfix runs is no more
            return path.as_uri()
    return quote(os.fsencode(path.as_posix()))  # its bytes: a name may be in no encoding

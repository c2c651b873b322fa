"""Pages, generated manuals, SARIF."""

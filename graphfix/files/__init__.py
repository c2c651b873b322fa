"""Models on disk: loading, saving, external data, and what a malformed file is."""

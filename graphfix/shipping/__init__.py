"""Build a folder from an export: one graph of fixed size per container, and the manifest."""

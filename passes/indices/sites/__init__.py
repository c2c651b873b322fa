"""Index tensors: what a Range counts, and how rows are shifted."""

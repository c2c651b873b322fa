"""A survey of a provider's operators, by their schemas (``run.py``) and at edges (``edges.py``)."""

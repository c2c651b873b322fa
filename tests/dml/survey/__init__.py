"""A survey of DirectML's operators by their schemas: one module an idea, ``run.py`` runs them."""

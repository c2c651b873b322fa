"""Text such as ``a:k=v,b``: options, quoting, manuals."""

"""What :mod:`graphfix.passes.static_cache` is made of."""

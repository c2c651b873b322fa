"""What :mod:`graphfix.passes.sizes.static_cache` is made of."""

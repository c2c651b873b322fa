"""Sizes: symbolic dims that get a number, frozen sizes that get their symbol back."""

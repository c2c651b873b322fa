"""Helpers that several families of passes share."""

"""Verification: whether two models compute the same, within which gates, and where they differ."""

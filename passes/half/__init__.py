"""Conversion to float16."""

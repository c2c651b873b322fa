"""Inputs made from the model itself: roles, sizes, cases, garbage in the padding, clips."""

"""Masks: Where, fill values, and the Softmax they reach."""

"""Masks: how they are added, made and looked up, and the mask of lengths."""

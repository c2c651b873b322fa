"""Caches that grow from run to run: how they are recognised, and how a fixed-size model is fed."""

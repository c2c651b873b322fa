"""Caches that grow from run to run: how they are told, and how a model of one size is fed."""

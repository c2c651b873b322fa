"""Repairs: each closes one leak, at one node, with nodes of its own."""

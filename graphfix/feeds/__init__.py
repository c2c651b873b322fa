"""Inputs for a model, made from its graph: roles, sizes, cases, garbage in padding, clips."""

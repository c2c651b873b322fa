"""Passes that change which inputs and outputs a model has, and what they are called."""

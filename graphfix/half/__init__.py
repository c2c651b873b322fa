"""Search for what of a model must stay in float32, by running it."""

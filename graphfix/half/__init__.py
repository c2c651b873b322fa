"""What of a model must stay in float32, found by running it."""

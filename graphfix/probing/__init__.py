"""Places where two runs part, and why: of two models, or of a clip alone and in a container."""

"""LayerNorm and RMSNorm written in pieces."""

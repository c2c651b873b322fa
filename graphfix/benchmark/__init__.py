"""How long models take, side by side."""

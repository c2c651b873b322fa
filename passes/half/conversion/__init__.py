"""What float16 cannot hold, and the edit that converts the rest."""

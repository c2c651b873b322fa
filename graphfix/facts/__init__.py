"""What is proved of a tensor: its symbolic shape, what it holds, and how far it reaches."""

"""The execution providers: a table of all of them, and for each its facts and its placement."""

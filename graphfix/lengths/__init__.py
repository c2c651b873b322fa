"""What is valid of each tensor when the input of a model is padded, and where padding leaks.

An abstract interpretation: symbolic shapes say how long the valid part of each axis is, one rule
for each family of operators says what padding does to it, and a repair is noted only where an
operator mixes along time what its input does not keep apart.

``domain`` holds what is known of a tensor, ``rules`` what operators do to it, ``analysis`` walks
the graph, ``lower`` makes lengths and masks into nodes, ``repairs`` closes the leaks.
"""

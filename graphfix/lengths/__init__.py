"""What is valid of each tensor when the input of a model is padded, and where padding leaks.

An abstract interpretation: symbolic shapes say how long the valid part of each axis is, one rule
for each family of operators says what padding does to it, and a repair is noted only where an
operator mixes along time what its input does not keep apart.

Each file imports only those before it in this list: ``domain`` holds what is known of a tensor and
imports nothing of the room; ``axes`` joins them; ``counts`` and ``one_size`` say which names of
dims are one, ``choice`` and ``source`` which axis is padded; ``lower`` makes lengths and masks into
nodes; ``repairs`` closes the leaks; ``site`` is what a rule sees of a node; ``rules`` says what
operators do to a tensor, and ``moves`` follows relative positions until each is in its place;
``analysis`` walks the graph, and ``apply`` makes the repairs.
"""

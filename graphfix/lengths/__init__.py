"""Valid part of each tensor when a model's input is padded, and the places where padding leaks.

An abstract interpretation: symbolic shapes say how long the valid part of each axis is, one rule
for each family of operators says what padding does to it, and a repair is asked for only where an
operator mixes frames along time and its input does not keep the padding out.

Each file imports only those before it in this list: ``tail_state`` holds what is known of a tensor;
``mask_counts`` and ``dim_aliases`` find names of dims that stand for one size; ``padded_axis`` and
``length_source`` find the padded axis and the valid lengths; ``joint_axes`` joins axes;
``dim_nodes`` and ``length_nodes`` build lengths and masks as nodes; ``repairs`` closes the leaks;
``rule_site`` is a node as its rule sees it; ``rules`` says what operators do to a tensor, and
``relative_positions`` follows relative positions to their places; ``analysis`` walks the graph, and
``apply`` writes the repairs into it.
"""

"""Search, by running a model, for the nodes that must stay in float32."""

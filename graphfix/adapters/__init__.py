"""Other libraries' rewrites as passes: onnxscript rules, graphsurgeon scripts."""

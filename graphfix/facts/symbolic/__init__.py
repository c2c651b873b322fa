"""Shape rules that onnx_shape_inference lacks or has too bold, added through its own registry.

Here a dim is what it is in every run that succeeds, for inputs with no dim of 0 (sizes are taken
to be positive when an expression is simplified). What is not known gets a symbol of its own.
"""

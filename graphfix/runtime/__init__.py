"""The doors to onnxruntime: sessions, the other Python, processes that may die, what ran where."""

"""Access to onnxruntime: sessions, other Pythons, processes that may die, profiles."""

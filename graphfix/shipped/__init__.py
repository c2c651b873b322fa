"""Run a shipped folder: the session, the stream, the manifest.

Needs numpy and ONNX Runtime alone.
"""

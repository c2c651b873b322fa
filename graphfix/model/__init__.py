"""The graph itself: files, text, constants, symbolic shapes."""

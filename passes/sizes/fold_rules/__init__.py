"""The rules of fold, one idea a file."""

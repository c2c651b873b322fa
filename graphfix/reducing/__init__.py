"""The smallest model that still fails: what ``graphfix reduce`` does."""
